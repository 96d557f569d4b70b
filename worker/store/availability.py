"""Store availability: reports an outage, with its reason and duration, again each minute, and its end.

A call without an answer gives no reason. So its silence is reported only until a reason is known.

Reads and writes are tracked separately. A full disk accepts no writes and answers every read; it must not alternate
between healthy and unhealthy.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    is_reason_known: bool


class StoreAvailability:
    """Tracks a worker's store calls to detect outages. The loop and the heartbeat's thread both use it."""

    def __init__(self, clock: Clock, notify: Callable[[StoreNotice], None]) -> None:
        self._clock, self._notify = clock, notify
        self._failing: dict[AccessKind, _Failing] = {}
        self._down_since: float | None = None
        self._notified_at, self._is_explained = 0.0, False  # of the last notice: when, and whether it gave a reason
        self._lock = threading.Lock()

    def failed(self, access: AccessKind, *, began_at: float, reason: str) -> None:
        """Record a call that failed. It counts even if it began before the last answer: it failed now."""
        self._record(access, _Failing(began_at, reason, is_reason_known=True))

    def unanswered(self, access: AccessKind, *, began_at: float, silence: str) -> None:
        """Record a call that got no answer in time; `silence` describes it. A known reason stays."""
        self._record(access, _Failing(began_at, silence, is_reason_known=False))

    def _record(self, access: AccessKind, failing: _Failing) -> None:
        with self._lock:
            before = self._failing.get(access)
            if before is not None:
                is_newer = failing.is_reason_known or not before.is_reason_known
                failing = replace(failing if is_newer else before, since=before.since)
            self._failing[access] = failing
            now = self._clock.monotonic()
            _, shown = self._most_telling()
            if self._down_since is None:
                if now - failing.since < OUTAGE_AFTER_S:
                    return
                self._down_since = failing.since
            elif now - self._notified_at < REMINDED_EVERY_S and (self._is_explained or not shown.is_reason_known):
                return
            self._is_explained = shown.is_reason_known
            self._notified_at, for_s = now, now - self._down_since
        self._notify(StoreDown(shown.reason, for_s))

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
            access, failing = self._most_telling()
            lasted_s = self._clock.monotonic() - failing.since
            return f"the store cannot be {access} for {lasted_s:.0f} s: {failing.reason}"

    def _most_telling(self) -> tuple[AccessKind, _Failing]:
        """Return the access that fails for a known reason, or else the one that fails longest."""
        return min(self._failing.items(), key=lambda item: (not item[1].is_reason_known, item[1].since))
