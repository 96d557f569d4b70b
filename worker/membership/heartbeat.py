"""Heartbeat: keeps a session alive, and with it every lease that the session holds."""

import asyncio
from collections.abc import Callable

from worker.core.errors import RetryLater, WorkerError
from worker.core.membership.liveness import Timing
from worker.membership.fence import ENDED_BY_ANOTHER, Fence
from worker.runtime.clock import Clock
from worker.store.availability import AccessKind, StoreAvailability
from worker.store.repos.sessions import Sessions
from worker.store.table import Tables


class Pulse:
    """Carries data from the event loop to the heartbeat: that the loop is not stuck, changes and load."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock, self._stall_s = clock, timing.stall_s
        self._ticked_at = clock.monotonic()
        self.changes = 0  # raised when a lease was taken, asked for or released, so that others read the leases
        self.load = 0
        self.measure: Callable[[], int] | None = None  # returns the load: the runs that this worker holds

    def tick(self) -> None:
        self._ticked_at = self._clock.monotonic()
        if self.measure is not None:
            self.load = self.measure()

    @property
    def is_stalled(self) -> bool:
        return self._clock.monotonic() - self._ticked_at > self._stall_s


class Heart:
    """Increments a session's counter until the session is over."""

    def __init__(
        self,
        group: str,
        fence: Fence,
        pulse: Pulse,
        clock: Clock,
        timing: Timing,
        *,
        availability: StoreAvailability | None = None,
    ) -> None:
        self._group, self._fence, self._pulse = group, fence, pulse
        self._clock, self._timing, self._availability = clock, timing, availability
        self._number = 0

    async def beat(self, tables: Tables) -> None:
        """Send heartbeats until the fence is down. A failed heartbeat is retried after a quarter of `beat_s`.

        One of the retries must succeed before the fence falls.
        """
        sessions = Sessions(tables, self._group)
        pause_s = self._timing.beat_s
        while not self._fence.is_down():
            await self._clock.sleep(pause_s)
            is_confirmed = not self._pulse.is_stalled and await self._beat_once(sessions)
            pause_s = self._timing.beat_s if is_confirmed else self._timing.beat_s / 4

    async def _beat_once(self, sessions: Sessions) -> bool:
        self._number += 1
        sent_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._timing.beat_s):
                is_alive = await sessions.beat(
                    self._fence.session,
                    self._number,
                    changes=self._pulse.changes,
                    load=self._pulse.load,
                    at=self._clock.now(),
                )
        except RetryLater:
            return False
        except TimeoutError as error:
            self._report_silence(sent_at, error)
            return False
        except WorkerError as error:
            # Drop the fence before the error reaches the loop, which may be about to start something.
            self._fence.drop(f"the store cannot be used: {error}")
            raise
        if is_alive:
            self._fence.confirm(sent_at)
        else:
            self._fence.drop(ENDED_BY_ANOTHER)
        return is_alive

    def _report_silence(self, sent_at: float, error: TimeoutError) -> None:
        if self._availability is None:
            return
        if reason := _last_trouble(error):
            self._availability.failed(AccessKind.WRITE, began_at=sent_at, reason=reason)
        else:
            silence = f"no answer to a heartbeat within {self._timing.beat_s:g} s"
            self._availability.unanswered(AccessKind.WRITE, began_at=sent_at, silence=silence)


def _last_trouble(error: BaseException) -> str:
    """Return the last `RetryLater` behind a cancelled call, "" if it made no retry."""
    behind = error.__cause__ or error.__context__
    while behind is not None and not isinstance(behind, RetryLater):
        behind = behind.__cause__ or behind.__context__
    return "" if behind is None else str(behind)
