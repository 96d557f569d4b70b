"""The watch over one run's deadline, as data. It exists whether or not the run ever does. `watch.py` moves it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from worker.core.model.keys import RunKey, SessionId


class Verdict(StrEnum):
    """How the deadline was judged; final, whatever a rerun does later."""

    MET = "MET"
    BREACHED = "BREACHED"
    WAIVED = "WAIVED"


class WatchState(StrEnum):
    ARMED = "ARMED"
    WARNED = "WARNED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaWatch:
    """A watch as its row says. The two instants were fixed when it was armed; `version` rises with every change."""

    key: RunKey
    version: int = 0  # 0: not stored yet
    config_hash: str
    since: datetime  # when it entered its state; a closed one was judged then
    arrived_at: datetime | None = None  # the arrival that a relative deadline counts from; None: by the clock
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
