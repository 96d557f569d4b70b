"""Store availability: reports an outage, with its reason and duration, again each minute, and its end.

Reads and writes are tracked separately. A full disk accepts no writes and answers every read; it must not alternate
between healthy and unhealthy.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from worker.runtime.clock import Clock

REMINDED_EVERY_S: Final = 60.0
OUTAGE_AFTER_S: Final = 2.0  # a single failed call is retried, and says nothing about the store


class AccessKind(StrEnum):
    READ = "read"
    WRITE = "written"


@dataclass(frozen=True, slots=True)
class StoreDown:
    """StoreDown: the store has not answered for `for_s`; everything that needs it waits."""

    reason: str
    for_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class StoreBack:
    """StoreBack: the store answers again, `after_s` after the first failed call."""

    after_s: float


StoreNotice: TypeAlias = StoreDown | StoreBack


@dataclass(frozen=True, slots=True)
class _Failing:
    since: float
    reason: str


class StoreAvailability:
    """Tracks a worker's store calls to detect outages. The loop and the heartbeat's thread both use it."""

    def __init__(self, clock: Clock, notify: Callable[[StoreNotice], None]) -> None:
        self._clock, self._notify = clock, notify
        self._failing: dict[AccessKind, _Failing] = {}
        self._down_since: float | None = None
        self._notified_at = 0.0
        self._lock = threading.Lock()

    def failed(self, access: AccessKind, *, began_at: float, reason: str) -> None:
        """Record a call without an answer. It counts even if it began before the last answer: it failed now."""
        with self._lock:
            since = self._failing[access].since if access in self._failing else began_at
            self._failing[access] = _Failing(since, reason)
            now = self._clock.monotonic()
            if self._down_since is None:
                if now - since < OUTAGE_AFTER_S:
                    return
                self._down_since = since
            elif now - self._notified_at < REMINDED_EVERY_S:
                return
            self._notified_at, for_s = now, now - self._down_since
        self._notify(StoreDown(reason, for_s))

    def answered(self, access: AccessKind) -> None:
        if not self._failing:  # the usual case needs no lock
            return
        with self._lock:
            self._failing.pop(access, None)
            if self._failing or self._down_since is None:
                return
            after_s = self._clock.monotonic() - self._down_since
            self._down_since = None
        self._notify(StoreBack(after_s))

    def outage(self) -> str | None:
        """Return since when and why the store does not answer; None if it does."""
        with self._lock:
            if self._down_since is None:
                return None
            access, failing = min(self._failing.items(), key=lambda item: item[1].since)
            lasted_s = self._clock.monotonic() - failing.since
            return f"the store cannot be {access} for {lasted_s:.0f} s: {failing.reason}"
