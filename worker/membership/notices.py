"""Notices: what happens among the workers of a group, for `app` to log and count."""

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
    """SessionOver: this worker's own session has ended; other workers may take everything it held."""

    session: SessionId
    reason: str


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """PeerEnded: this worker ended the session of a worker whose heartbeat had stopped."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    stream: str
    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """LeaseGone: this worker no longer holds the lease; it was released, transferred or lost."""

    stream: str
    shard: str


@dataclass(frozen=True, slots=True)
class ClockWrong:
    """ClockWrong: the wall clock differs too much from the store's; this worker leaves until it is right."""

    ahead_s: float


Notice: TypeAlias = SessionBegan | SessionOver | PeerEnded | LeaseTaken | LeaseGone | ClockWrong | StoreNotice
Notify: TypeAlias = Callable[[Notice], None]


def to_nobody(_: Notice) -> None:
    return
