"""What happens among the workers of a group, told as it happens: the wiring logs and counts it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from worker.core.model.keys import SessionId
from worker.store.availability import StoreNotice


@dataclass(frozen=True, slots=True)
class SessionBegan:
    session: SessionId


@dataclass(frozen=True, slots=True)
class SessionOver:
    """Our own session has ended; everything it held is another's to take."""

    session: SessionId
    reason: str


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """We ended the session of a worker that stood still."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    stream: str
    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """We hold it no more: let go, handed over, or lost."""

    stream: str
    shard: str


@dataclass(frozen=True, slots=True)
class ClockWrong:
    """Our wall clock differs from the store's by more than is safe; this worker leaves until it is set right."""

    ahead_s: float


Notice: TypeAlias = SessionBegan | SessionOver | PeerEnded | LeaseTaken | LeaseGone | ClockWrong | StoreNotice
Notify: TypeAlias = Callable[[Notice], None]


def to_nobody(_: Notice) -> None:
    return
