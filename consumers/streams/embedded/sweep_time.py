"""Sweep time: the time by which expired rows are deleted; a clock that is wrong hardly moves it.

A deleted row does not come back when the clock is right again: a sensor whose run was deleted would start it once more.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from worker.core.errors import RetryLater
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.membership.held_lease import HeldLease
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

# A store that is used for an hour a day keeps up. A clock that is ahead for less than an hour moves the time by less
# than a day, which is how long expired rows are kept anyway.
FASTEST: Final = 24.0
STORED_EVERY: Final = timedelta(hours=1)

_log = logger()


class SweepTime:
    """Follows the wall clock back at once, and ahead at most `FASTEST` times as fast as time passes here.

    `reached` is the time that an earlier holder of the duty stored; without one, the clock is believed.
    """

    def __init__(self, clock: Clock, reached: datetime | None) -> None:
        self._clock = clock
        self._at, self._read_s = reached or clock.now(), clock.monotonic()

    def read(self) -> datetime:
        read_s = self._clock.monotonic()
        proven = self._at + timedelta(seconds=FASTEST * (read_s - self._read_s))
        self._at, self._read_s = min(self._clock.now(), proven), read_s
        return self._at


async def tidy_while_held(
    held: HeldLease, clock: Clock, every_s: float, once: Callable[[datetime], Awaitable[None]]
) -> None:
    """Call `once` with the time to sweep by, again and again, until the lease must be released.

    The lease's position holds that time for the next holder, because its clock may be the wrong one.
    """
    stored = None if held.position is None else parse_rfc3339(held.position)
    time = SweepTime(clock, stored)
    while not held.is_stopping:
        by = time.read()
        try:
            if stored is None or by - stored >= STORED_EVERY:
                await held.checkpoint(format_rfc3339(by.replace(microsecond=0)))
                stored = by
            await once(by)
        except RetryLater as problem:
            _log.warning("upkeep.failed", reason=str(problem))
        await held.nap(every_s)
