"""SLA watch state: the data of one run's deadline. It exists even if the run never does.

`watch.py` changes it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from worker.core.model.deadlines import SlaTimes
from worker.core.model.keys import RunKey, SessionId


class Verdict(StrEnum):
    """Lists how a deadline was judged; final, whatever a rerun does later."""

    MET = "MET"
    BREACHED = "BREACHED"
    WAIVED = "WAIVED"


class WatchState(StrEnum):
    ARMED = "ARMED"
    WARNED = "WARNED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaWatch:
    """Holds a watch as its row states it; `version` rises with every change.

    The times were set when it was armed. The deadline of the run and that of its evaluation are judged apart.
    """

    key: RunKey
    version: int = 0  # 0: not stored yet
    config_hash: str
    since: datetime  # when it entered its state; for a closed one, when it was judged
    arrived_at: datetime | None = None  # the arrival that a relative deadline counts from; None: a time of day
    warning_at: datetime | None = None
    breach_at: datetime | None = None  # None: only the evaluation has a deadline
    warned_at: datetime | None = None
    verdict: Verdict | None = None
    reason: str = ""
    evaluation_at: datetime | None = None  # when the rules must hold; None: no such deadline
    evaluation_verdict: Verdict | None = None
    evaluation_judged_at: datetime | None = None
    evaluation_reason: str = ""
    owner: SessionId | None = None

    @property
    def times(self) -> SlaTimes:
        return SlaTimes(self.warning_at, self.breach_at, self.evaluation_at)

    @property
    def is_deadline_open(self) -> bool:
        return self.breach_at is not None and self.verdict is None

    @property
    def is_evaluation_open(self) -> bool:
        return self.evaluation_at is not None and self.evaluation_verdict is None

    @property
    def is_closed(self) -> bool:
        """Return whether everything that it watches was judged."""
        return not (self.is_deadline_open or self.is_evaluation_open)

    @property
    def state(self) -> WatchState:
        if self.is_closed:
            return WatchState.CLOSED
        return WatchState.ARMED if self.warned_at is None else WatchState.WARNED
