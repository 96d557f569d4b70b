"""A queue, its consumer and the store for its dead letters, on virtual time. The accounts are checked all the time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from consumers.delivery.retry import RetryPolicy
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters, queue_letter_source
from consumers.queues.queue import Message
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.remote_store import FaultyTables
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.stream import FULL_WAITS
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.sqlite.tables import SqliteTables


class Handled:
    """A handler that remembers. `before` may fail or wait."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.at_once = self.at_once_max = 0
        self.before: Callable[[Message], Awaitable[None]] | None = None

    async def __call__(self, message: Message) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            if self.before is not None:
                await self.before(message)
        finally:
            self.at_once -= 1
        self.bodies.append(message.body)


def assert_accounts_balance(consumer: QueueConsumer) -> None:
    counts = consumer.counts
    ended = counts.done + counts.failed + counts.parked + counts.released
    assert counts.received == ended + consumer.in_flight, counts


@dataclass
class QueueWorld:
    clock: VirtualClock = field(default_factory=VirtualClock)
    handled: Handled = field(default_factory=Handled)
    pace: QueuePace = field(default_factory=QueuePace)
    receives_max: int | None = None
    check_every_s: float = 0.5

    def __post_init__(self) -> None:
        self.queue = FakeQueue(self.clock, receives_max=self.receives_max)
        self.tables = FaultyTables(SqliteTables.in_memory(self.clock))
        self.watched = FailureCountingTables(self.tables)
        self.letters = DeadLetters(self.tables)
        failures = partial(getattr, self.watched, "failures")
        self.tries = RetryPolicy(self.clock, self.tables.ping, FULL_WAITS, store_failures=failures)

    def consumer(self) -> QueueConsumer:
        letters = QueueDeadLetters("alerts", self.letters, self.tries, self.clock)
        return QueueConsumer(
            name="alerts",
            calls=self.queue,
            handle=self.handled,
            tries=self.tries,
            clock=self.clock,
            park=letters.park,
            failed=letters.failed,
            pace=self.pace,
        )

    async def letters_kept(self) -> list[DeadLetter]:
        return await self.letters.list(queue_letter_source("alerts"))

    @asynccontextmanager
    async def consuming(self, consumer: QueueConsumer | None = None) -> AsyncGenerator[QueueConsumer]:
        """Consume; on leaving, stop in order."""
        consumer = consumer or self.consumer()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(consumer.run(), name="consumer")
            checking = tasks.create_task(self._check(consumer), name="accountant")
            yield consumer
            consumer.stop()
            await asyncio.wait([running])
            checking.cancel()
        assert_accounts_balance(consumer)
        assert consumer.in_flight == 0

    async def consume_and_crash(self, after_s: float) -> None:
        """Consume for so long, then be gone without a word."""
        task = asyncio.create_task(self.consumer().run())
        await self.clock.sleep(after_s)
        task.cancel()
        await asyncio.wait([task])

    async def _check(self, consumer: QueueConsumer) -> None:
        while True:
            assert_accounts_balance(consumer)
            await self.clock.sleep(self.check_every_s)


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()
