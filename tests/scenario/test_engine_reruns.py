"""Asking for a rerun: what is refused, what supersedes a run, and what may begin beside it."""

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, a_world
from worker.core.run.state import Outcome, State
from worker.store.table import TableName


@on_virtual_time
async def test_a_rerun_of_a_live_run_is_refused_unless_it_supersedes() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.ask_rerun()
        await world.settle()
        refused = await world.run()
        await world.ask_rerun(supersede=True)
        await world.settle()

    run = await world.run()
    assert refused is not None
    assert run is not None
    assert (refused.state, refused.attempt) == (State.POLLING, 1)
    assert (run.state, run.attempt) == (State.POLLING, 2)
    assert len(world.runner.running) == 1
    assert [event for event in await world.events() if event.startswith("RERUN")] == [
        "RERUN_REJECTED",
        "RERUN_ACCEPTED",
    ]


@on_virtual_time
async def test_a_rerun_after_a_success_needs_newer_data_and_has_a_budget() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.write(f"count#{DAY}", rows=100, updatedAt="2026-03-03T11:00:00Z")
        await world.ready()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        await world.ask_rerun()
        await world.settle()
        stale = await world.state()
        await world.count(150)
        await world.ask_rerun()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        await world.count(200)
        await world.ask_rerun()
        await world.settle()

    assert stale is State.COMPLETED
    assert [event for event in await world.events() if event.startswith("RERUN")] == [
        "RERUN_REJECTED",
        "RERUN_ACCEPTED",
        "RERUN_REJECTED",
    ]
    assert [rerun.reason for rerun in await world.reruns()] == ["manual"]


@on_virtual_time
async def test_a_rerun_request_delivered_again_or_removed_starts_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.FAILED_FINAL)
        await world.ask_rerun()
        await world.settle()
        world.runner.fail()
        await world.wait(minutes=3)
        starts = len(world.runner.starts)

        world.read_to[TableName.CONTROL] = 0
        await world.count(100)
        await world.wait(minutes=3)

    assert len(world.runner.starts) == starts


@on_virtual_time
async def test_a_rerun_begins_a_run_that_never_was() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.count(100, "2026-02-20")
        await world.ask_rerun("2026-02-20")
        await world.settle()

    assert await world.state("2026-02-20") is State.POLLING


@on_virtual_time
async def test_a_rerun_of_a_period_older_than_what_is_kept_is_refused_once_with_that_reason() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        for _ in range(2):
            await world.ask_rerun("2024-12-01")
            await world.settle()

    [told] = await world.stored_events()
    assert told.event.type == "RERUN_REJECTED"
    assert "2024-12-01 is before 2025-02-03; runs of earlier periods are no longer kept" in told.event.message
    assert "run the job by hand" in str(told.event.detail["actionHint"])


@on_virtual_time
async def test_a_target_that_cannot_stop_its_job_keeps_a_second_one_from_starting() -> None:
    world = await a_world()
    world.runner.can_stop = False
    async with world.worker():
        await world.until(State.POLLING)
        await world.ask_rerun(supersede=True)
        await world.settle()

    run = await world.run()
    assert run is not None
    assert run.outcome is Outcome.ORPHANED
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_overlap_where_it_is_allowed_lets_the_next_attempt_begin_beside_the_last() -> None:
    world = await a_world()
    world.runner.can_stop = False
    async with world.worker():
        await world.deploy(CONFIG.replace("maxRetries: 1", "overlap: allow"))
        await world.count(100)
        await world.ready()
        await world.settle()
        await world.ask_rerun(supersede=True)
        await world.settle()

    assert len(world.runner.running) == 2
