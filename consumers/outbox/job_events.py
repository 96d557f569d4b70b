"""Pass on events about the states of jobs as hints ("look now"), which decide nothing.

The events are not stored. The worker that receives one may not hold the job's run. It then puts the hint into a row of
its own, which the other workers read. Both are bounded by time and not by the number of events: a row is written at
most twice a second and read at most twice a second.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from consumers.outbox.envelopes import Envelope
from worker.core.errors import RetryLater
from worker.jobs.state_changes import announced_type, hint_in
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.job_hints import JobHintRows, SharedHints
from worker.targets.job_hints import JobHints

WRITE_EVERY_S: Final = 0.5
READ_EVERY_S: Final = 0.5
# For a worker that sees no other: one that only consumes queues has no session, and may still send hints.
READ_ALONE_S: Final = 5.0
# A sent hint stays in its row for this long, so that a reader that is late finds it.
KEPT_S: Final = 3.0
KEPT_MAX: Final = 2_000  # of about 22 bytes

# Brings a hint to the worker that holds the job's run, if any. Returns once that is certain. Raises `RetryLater`.
PassOn: TypeAlias = Callable[[str], Awaitable[None]]

_log = logger()


class JobEvents:
    """Turns events about jobs into hints, first for this worker, then for the others."""

    def __init__(self, hints: JobHints, pass_on: PassOn) -> None:
        self._hints, self._pass_on = hints, pass_on

    async def take(self, envelope: Envelope) -> bool:
        """Return False for an event that is not about a job whose end is announced. Raises `RetryLater`."""
        if announced_type(envelope.source, envelope.type) not in self._hints.types:
            return False
        hint = hint_in(envelope.source, envelope.type, envelope.detail)
        if hint and not self._hints.hint(hint) and not self._hints.is_alone:
            await self._pass_on(hint)
        return True


class HintSender:
    """Puts hints into this worker's row, together with others that arrive at the same time."""

    def __init__(self, rows: JobHintRows, sender: str, clock: Clock) -> None:
        self._rows, self._sender, self._clock = rows, sender, clock
        self._count = 0
        self._kept: deque[tuple[float, str]] = deque()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._called = asyncio.Event()

    async def send(self, hint: str) -> None:
        """Return once the row has the hint. Needs `run`. Raises `RetryLater`."""
        waiting = self._waiting.get(hint)
        if waiting is None:
            waiting = self._waiting[hint] = asyncio.get_running_loop().create_future()
            self._called.set()
        await asyncio.shield(waiting)  # others may wait for the same hint

    async def run(self) -> None:
        """Write the row when there are hints, until cancelled."""
        while True:
            await self._called.wait()
            self._called.clear()
            await self._write()
            await self._clock.sleep(WRITE_EVERY_S)

    async def _write(self) -> None:
        sent, self._waiting = self._waiting, {}
        now = self._clock.monotonic()
        while self._kept and (self._kept[0][0] < now - KEPT_S or len(self._kept) + len(sent) > KEPT_MAX):
            self._kept.popleft()
        self._kept.extend((now, hint) for hint in sent)
        self._count += len(sent)
        shared = SharedHints(sender=self._sender, count=self._count, hints=tuple(hint for _, hint in self._kept))
        problem: RetryLater | None = None
        try:
            await self._rows.put(shared, self._clock.now())
        except RetryLater as error:
            problem = error
        for waiting in sent.values():
            if waiting.done():
                continue
            if problem is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(RetryLater(f"a hint about a job was not passed on: {problem}"))
                waiting.exception()  # nobody may be left to wait for it


class HintReader:
    """Reads the rows of all senders, while a job runs here whose end would be announced."""

    def __init__(self, rows: JobHintRows, hints: JobHints, clock: Clock, own: str = "") -> None:
        self._rows, self._hints, self._clock, self._own = rows, hints, clock, own
        self._seen: dict[str, int] = {}  # how many hints of each sender were read

    async def run(self) -> None:
        while True:
            await self._clock.sleep(READ_ALONE_S if self._hints.is_alone else READ_EVERY_S)
            if not len(self._hints):
                continue
            try:
                await self._read()
            except RetryLater as error:
                _log.warning("hints.failed", reason=str(error))

    async def _read(self) -> None:
        found = [shared for shared in await self._rows.list() if shared.sender != self._own]
        for shared in found:
            # A sender that is new here may have sent hints about jobs that began before this worker looked.
            for hint in shared.since(min(self._seen.get(shared.sender, 0), shared.count)):
                self._hints.hint(hint)
        self._seen = {shared.sender: shared.count for shared in found}
