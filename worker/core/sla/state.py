"""SLA watch state: the data of one run's deadline. It exists even if the run never does.

`watch.py` changes it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

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

    The two times were set when it was armed.
    """

    key: RunKey
    version: int = 0  # 0: not stored yet
    config_hash: str
    since: datetime  # when it entered its state; for a closed one, when it was judged
    arrived_at: datetime | None = None  # the arrival that a relative deadline counts from; None: a time of day
    warning_at: datetime | None = None
    breach_at: datetime
    warned_at: datetime | None = None
    verdict: Verdict | None = None
    reason: str = ""
    owner: SessionId | None = None

    @property
    def state(self) -> WatchState:
        if self.verdict is not None:
            return WatchState.CLOSED
        return WatchState.ARMED if self.warned_at is None else WatchState.WARNED
