"""A target that notices the ends of its jobs: they are recorded at once, and polls remain for everything else."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import World, a_world
from worker.core.errors import Rejected
from worker.core.run.state import State
from worker.jobs.runner import Handle, JobStatus


@dataclass
class NotifyingRunner(FakeRunner):
    """A fake target whose jobs give notice of their ends."""

    waits: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    problem: Rejected | None = None
    gives_notice: bool = True

    async def wait_for_end(self, handle: Handle, /) -> bool:
        self.calls["wait_for_end"] += 1
        if self.problem:
            raise self.problem
        if self.gives_notice:
            await self.waits.setdefault(str(handle["id"]), asyncio.Event()).wait()
        return self.gives_notice

    def notify(self) -> None:
        for wait in self.waits.values():
            wait.set()

    def end(self, status: JobStatus | None = None) -> None:
        """End the jobs, and say so."""
        self.finish(status)
        self.notify()


async def a_notifying_world() -> tuple[World, NotifyingRunner]:
    runner = NotifyingRunner()
    return replace(await a_world(), runner=runner), runner


@on_virtual_time
async def test_the_end_of_a_job_is_recorded_at_once_whatever_the_poll_interval() -> None:
    world, runner = await a_notifying_world()
    async with world.worker():
        await world.until(State.POLLING)
        runner.end()
        await world.settle()

        assert await world.state() is State.COMPLETED
        assert runner.calls["status"] == 1


@on_virtual_time
async def test_a_notice_of_a_job_that_runs_on_changes_nothing_and_polls_find_its_end() -> None:
    world, runner = await a_notifying_world()
    async with world.worker():
        await world.until(State.POLLING)
        runner.notify()
        await world.settle()
        assert await world.state() is State.POLLING

        runner.finish()
        await world.wait(minutes=2)

    assert await world.state() is State.COMPLETED


@on_virtual_time
@pytest.mark.parametrize("problem", [Rejected("not a handle"), None], ids=["fails", "gives no notice"])
async def test_without_a_notice_the_polls_find_the_end(problem: Rejected | None) -> None:
    world, runner = await a_notifying_world()
    runner.problem, runner.gives_notice = problem, False
    async with world.worker():
        await world.until(State.POLLING)
        runner.end()
        await world.settle()
        assert await world.state() is State.POLLING

        await world.wait(minutes=2)

    assert await world.state() is State.COMPLETED


@on_virtual_time
async def test_the_worker_that_adopts_a_run_is_told_of_its_end_too() -> None:
    world, runner = await a_notifying_world()
    async with world.worker():
        await world.until(State.POLLING)
    async with world.worker("w2") as heir:
        await world.adopt_orphans(heir)
        runner.end()
        await world.settle()

        assert await world.state() is State.COMPLETED
    assert len(runner.starts) == 1


@on_virtual_time
async def test_a_worker_that_may_not_act_any_more_records_nothing() -> None:
    world, runner = await a_notifying_world()
    async with world.worker() as worker:
        await world.until(State.POLLING)
        worker.standing.is_alive = False
        runner.end()
        await world.settle()

        assert await world.state() is State.POLLING
        assert runner.calls["status"] == 0


@on_virtual_time
async def test_each_attempt_is_waited_for_once() -> None:
    world, runner = await a_notifying_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.wait(minutes=10)
        assert runner.calls["wait_for_end"] == 1

        runner.fail()
        runner.notify()
        await world.wait(minutes=30)

    assert len(runner.starts) == 2
    assert runner.calls["wait_for_end"] == 2


@on_virtual_time
async def test_a_stopped_job_ends_its_run_as_soon_as_it_is_gone() -> None:
    world, runner = await a_notifying_world()
    runner.stops_slowly = True
    async with world.worker():
        await world.until(State.POLLING)
        await world.ask_cancel()
        await world.settle()
        assert await world.state() is State.STOPPING

        runner.end()
        await world.settle()

        assert await world.state() is not State.STOPPING
