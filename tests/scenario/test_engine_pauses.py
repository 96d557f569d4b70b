"""Pausing a pipeline: nothing begins meanwhile, and everything is made up for after it."""

from datetime import timedelta

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import refuse
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world
from worker.core.model import keys
from worker.core.run.state import Outcome, Pause, State
from worker.store.repos.pauses import Pauses
from worker.store.table import Prefix, TableName


async def ready_while_paused(world: World) -> None:
    await world.deploy()
    await Pauses(world.tables).put(ORDERS, Pause("migration"))
    await world.count(100)
    await world.ready()


@on_virtual_time
async def test_nothing_begins_during_a_pause_and_everything_is_made_up_for_after_it() -> None:
    world = await a_world()
    async with world.worker():
        await ready_while_paused(world)
        await world.wait(minutes=10)
        during = await world.run()

        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

    assert during is None
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_signal_that_came_during_a_pause_counts_though_its_row_speaks_of_the_next_day_by_then() -> None:
    world = await a_world()
    days = ["2026-03-03", "2026-03-04", "2026-03-05"]
    async with world.worker("w1"):
        await world.deploy()
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        for day in days:
            await world.count(100, day)
            await world.ready(day)
            await world.wait(hours=1)
    async with world.worker("w2"):
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

        assert [await world.state(day) for day in days] == [State.POLLING] * 3
        rows = await world.tables.query(TableName.CONTROL, keys.pipeline_pk(ORDERS), sk=Prefix(keys.HELD_BACK))
        assert list(rows.rows) == []


@on_virtual_time
async def test_a_signal_that_came_during_a_pause_counts_however_long_that_lasts() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await Pauses(world.tables).put(ORDERS, Pause("migration", world.clock.now() + timedelta(days=9)))
        await world.count(100)
        await world.write(f"ready#{DAY}", status="done")
        await world.wait(days=9, minutes=1)

    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_signal_that_was_taken_back_during_a_pause_begins_nothing_after_it() -> None:
    world = await a_world()
    async with world.worker():
        await ready_while_paused(world)
        await world.settle()
        await world.write("ready", status="no, wait", date=DAY)
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

    assert await world.state() is None


@pytest.mark.parametrize(("late", "outcome"), [(False, None), (True, Outcome.EXHAUSTED)], ids=["in time", "late"])
def test_a_signal_that_came_during_a_pause_keeps_to_its_deadline(late: bool, outcome: Outcome | None) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world, day_before = await a_world(), "2026-03-02"  # whose deadline is on the next day
        async with world.worker(), world.worker("w2", reads_feed=False) as other:
            await world.deploy(CONFIG.replace("value: done}", 'value: done, deadline: "13:00"}', 1))
            await Pauses(world.tables).put(ORDERS, Pause("migration"))
            await world.count(100, day_before)
            await world.wait(minutes=61 if late else 59)
            await world.ready(day_before)
            await world.wait(hours=1)
            await other.parts.resync.run(ORDERS)  # as the watchdog does, which knows no time
            await Pauses(world.tables).remove(ORDERS)
            await world.settle()

        run = await world.run(day_before)
        assert run is not None
        assert run.outcome is outcome
        assert len(world.runner.starts) == (0 if late else 1)

    scenario()


@on_virtual_time
async def test_a_run_that_waits_starts_no_job_during_a_pause_but_polls_go_on() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.ready("2026-03-02")
        await world.settle()
        await Pauses(world.tables).put(ORDERS, Pause("migration", world.clock.now() + timedelta(minutes=12)))
        await world.count(100, "2026-03-02")
        world.runner.finish()
        await world.wait(minutes=8)
        during = (await world.state(), await world.state("2026-03-02"))
        await world.wait(minutes=8)

    assert during == (State.COMPLETED, State.EVALUATING)
    assert await world.state("2026-03-02") is State.POLLING


@on_virtual_time
async def test_what_waits_for_the_end_of_a_pause_is_taken_up_the_moment_it_ends() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await Pauses(world.tables).put(ORDERS, Pause("migration", world.clock.now() + timedelta(minutes=2)))
        await world.count(100)
        await world.count(100, "2026-03-02")
        await world.ready("2026-03-02")
        await world.wait(seconds=119)
        during = (await world.state(), await world.state("2026-03-02"))
        await world.wait(seconds=3)
        after = (await world.state(), await world.state("2026-03-02"))

    assert during == (State.EVALUATING, None)
    assert after == (State.POLLING, State.POLLING)


@on_virtual_time
async def test_a_pause_that_is_made_longer_ends_when_it_says_last() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        for minutes in (1, 3):
            await Pauses(world.tables).put(ORDERS, Pause("migration", world.clock.now() + timedelta(minutes=minutes)))
        await world.count(100)
        await world.wait(seconds=179)
        during = await world.state()
        await world.wait(seconds=3)

    assert during is State.EVALUATING
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_rerun_asked_for_during_a_pause_waits_for_its_end() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.FAILED_FINAL)
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        await world.ask_rerun()
        await world.settle()
        during = await world.state()
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

    assert during is State.FAILED_FINAL
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_rerun_that_a_person_asked_for_is_not_lost_when_late_data_comes_before_it_is_answered() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        await world.deploy(CONFIG.replace("maxRetries: 1", "maxDriftReruns: 0"))
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        await world.ask_rerun()
        await world.settle()
        await world.ready(note="late")
        await world.settle()
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt, run.spent.manual) == (State.POLLING, 2, 1)


@on_virtual_time
async def test_a_refused_start_is_held_back_by_a_pause_and_sent_after_it() -> None:
    world = await a_world()
    world.runner.scripts.append(refuse())
    async with world.worker():
        await world.deploy()
        await world.count(100)
        await world.ready()
        await world.settle()
        await Pauses(world.tables).put(ORDERS, Pause("migration", world.clock.now() + timedelta(minutes=10)))
        await world.wait(minutes=9)
        during = len(world.runner.starts)
        await world.wait(minutes=3)

    assert during == 1
    assert await world.state() is State.POLLING
