"""Whether the store answers: an outage is reported once, with its reason, and its end with how long it took.

Reads and writes are followed apart: a full disk takes no writes and answers every read, and must not look healthy and
ill in turns.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from worker.runtime.clock import Clock

OUTAGE_AFTER_S: Final = 2.0  # a call that fails alone is retried, and says nothing about the store


class AccessKind(StrEnum):
    READ = "read"
    WRITE = "written"


@dataclass(frozen=True, slots=True)
class StoreDown:
    """The store does not answer; everything that needs it waits."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    """The store answers again, so long after the first call that failed."""

    after_s: float


StoreNotice: TypeAlias = StoreDown | StoreBack


@dataclass(frozen=True, slots=True)
class _Failing:
    since: float
    reason: str


class StoreAvailability:
    """What the calls of a worker say about its store. Used from the loop and from the heartbeat's thread."""

    def __init__(self, clock: Clock, notify: Callable[[StoreNotice], None]) -> None:
        self._clock, self._notify = clock, notify
        self._failing: dict[AccessKind, _Failing] = {}
        self._down_since: float | None = None
        self._lock = threading.Lock()

    def failed(self, access: AccessKind, *, began_at: float, reason: str) -> None:
        """Note a call that got no answer. One that began before the last answer still counts: it failed now."""
        with self._lock:
            since = self._failing[access].since if access in self._failing else began_at
            self._failing[access] = _Failing(since, reason)
            if self._down_since is not None or self._clock.monotonic() - since < OUTAGE_AFTER_S:
                return
            self._down_since = since
        self._notify(StoreDown(reason))

    def answered(self, access: AccessKind) -> None:
        if not self._failing:  # nearly always: no lock for it
            return
        with self._lock:
            self._failing.pop(access, None)
            if self._failing or self._down_since is None:
                return
            after_s = self._clock.monotonic() - self._down_since
            self._down_since = None
        self._notify(StoreBack(after_s))

    def outage(self) -> str | None:
        """Say since when and why the store does not answer; None if it does."""
        with self._lock:
            if self._down_since is None:
                return None
            access, failing = min(self._failing.items(), key=lambda item: item[1].since)
            lasted_s = self._clock.monotonic() - failing.since
            return f"the store cannot be {access} for {lasted_s:.0f} s: {failing.reason}"
