"""A worker process is asked to stop: once to finish, twice to leave."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from consumers.queues.consumer import QueuePace
from consumers.queues.queue import Message
from consumers.streams.source import Source
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.queue import QueueWorld
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, WorkerDeps
from worker.app.platforms import Resources
from worker.app.telemetry import Telemetry
from worker.app.worker import Worker
from worker.config.roles import Role
from worker.config.settings import Settings, TelemetrySettings
from worker.membership.clock_guard import ClockGuard
from worker.store.table import TableName, Tables


async def _nobody_wakes(_: Readers) -> None:
    await asyncio.Event().wait()


def _no_source(table: TableName) -> Source:
    raise AssertionError(f"nobody reads {table} here")


@dataclass
class OneQueue:
    """A platform that has a queue and nothing else."""

    world: QueueWorld
    group: str = "test"
    where: str = "memory"
    witness: None = None

    @property
    def guard(self) -> ClockGuard:
        return ClockGuard(self.world.clock)

    @property
    def tables(self) -> Tables:
        return self.world.tables

    def beater_tables(self) -> Tables:
        raise AssertionError("it has no session")

    async def open(self, stack: AsyncExitStack) -> Resources:
        deps = WorkerDeps(
            store=StoreDeps(group=self.group, tables=self.tables, clock=self.world.clock),
            sources=SourceDeps(source_of=_no_source, wake_readers=_nobody_wakes),
            outputs=OutputDeps(routes=[], runners={}),
        )
        return Resources(deps=deps, queues=[self.world.consumer()])


@pytest.mark.parametrize(("stops", "within_s"), [(1, 45), (2, 15)])
@on_virtual_time
async def test_asked_once_more_a_worker_finishes_nothing_and_gives_its_messages_back(
    stops: int, within_s: float
) -> None:
    world = QueueWorld(pace=QueuePace(finish_s=30))
    message = world.queue.send("slow")

    async def take_long(_: Message) -> None:
        await world.clock.sleep(600)

    world.handled.before = take_long
    telemetry = Telemetry(TelemetrySettings(), {}, world.clock, lambda _: None)
    worker = Worker(OneQueue(world), Settings(store="memory", roles=frozenset({Role.ALERTS})), world.clock, telemetry)
    running = asyncio.create_task(worker.run())
    await world.clock.sleep(5)
    began = world.clock.monotonic()
    for _ in range(stops):
        worker.stop()
        await world.clock.sleep(0.1)
    await running

    assert within_s - 15 <= world.clock.monotonic() - began <= within_s
    assert world.queue.visible_in_s(message) <= 0, "others see it"
