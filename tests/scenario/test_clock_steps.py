"""A wall clock that is set back or ahead delays no decision, and makes none come early: durations are elapsed time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import refuse
from tests.support.worlds.cron import a_timed_config, cron_on, periods_of
from tests.support.worlds.engine import CONFIG, DAY, World, a_world, begin, run_key
from worker.core.model.keys import SessionId
from worker.core.run.facts import SensorChanged
from worker.core.run.state import Outcome, StartStep, State
from worker.core.sla.state import Verdict
from worker.jobs.runner import Succeeded
from worker.store.table import Put, TableName

MINUTE, HOUR, DAY_LONG = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BACK = [-MINUTE, -20 * MINUTE, -HOUR, -DAY_LONG]
AHEAD = [MINUTE, 20 * MINUTE, 5 * HOUR, DAY_LONG]
STEPS = [*BACK, *AHEAD]

WITH_DEADLINE = CONFIG + 'sla: {deadline: "14:00", expectedDuration: 30m, dayOffset: 0}\n'
DRY = CONFIG.replace("pipeline: {id: orders}", "pipeline: {id: orders}\ndryRun: true")


def named(step: timedelta) -> str:
    return f"{step.total_seconds() / 60:+.0f} min"


any_step = pytest.mark.parametrize("step", STEPS, ids=named)
set_back = pytest.mark.parametrize("step", BACK, ids=named)
set_ahead = pytest.mark.parametrize("step", AHEAD, ids=named)


async def within(world: World, limit: timedelta, is_so: Callable[[], object]) -> bool:
    """Say whether something comes true within a time that really passes."""
    for _ in range(int(limit.total_seconds())):
        if is_so():
            return True
        await world.wait(seconds=1)
    return bool(is_so())


async def becomes(world: World, state: State, limit: timedelta) -> bool:
    for _ in range(int(limit.total_seconds())):
        if await world.state() is state:
            return True
        await world.wait(seconds=1)
    return await world.state() is state


# --- nothing waits for the time to come back --------------------------------------------------------------------------


@any_step
@on_virtual_time
async def test_a_job_that_ends_after_the_clock_was_set_is_noticed_within_its_poll_interval(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.wait(minutes=7)

        world.clock.step(step)
        world.runner.finish()

        assert await becomes(world, State.COMPLETED, timedelta(seconds=61))


@any_step
@on_virtual_time
async def test_polls_go_on_at_their_interval_however_long_ago_the_clock_was_set(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        world.clock.step(step)
        await world.wait(minutes=10)
        before = world.runner.calls["status"]

        await world.wait(minutes=10)

    assert 9 <= world.runner.calls["status"] - before <= 12


@any_step
@on_virtual_time
async def test_a_refused_start_is_tried_again_after_its_pause_and_not_when_the_time_has_come_back(
    step: timedelta,
) -> None:
    world = await a_world()
    world.runner.scripts.extend([refuse(), refuse()])
    async with world.worker():
        await begin(world)
        await world.settle()
        assert len(world.runner.starts) == 1

        world.clock.step(step)

        assert await within(world, timedelta(seconds=31), lambda: len(world.runner.starts) >= 2)
        assert await becomes(world, State.POLLING, timedelta(seconds=61))


@any_step
@on_virtual_time
async def test_a_start_without_an_answer_is_looked_for_as_soon_as_ever(step: timedelta) -> None:
    world = await a_world()
    world.runner.scripts.append(world.runner.accept_and_lose_answer)
    async with world.worker():
        await begin(world)
        await world.settle()
        assert (run := await world.run())
        assert run.start_step is StartStep.UNANSWERED

        world.clock.step(step)

        assert await becomes(world, State.POLLING, timedelta(seconds=120))
    assert len(world.runner.starts) == 1


@any_step
@on_virtual_time
async def test_a_stop_that_takes_its_time_is_followed_up(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.STOPPING)

        world.clock.step(step)
        world.runner.fail("stopped")

        assert await becomes(world, State.FAILED_FINAL, timedelta(seconds=31))
    assert (run := await world.run())
    assert run.outcome is Outcome.CANCELLED


@any_step
@pytest.mark.parametrize("config", [CONFIG, DRY], ids=["live", "dry run"])
@on_virtual_time
async def test_a_pass_that_was_put_off_for_a_second_is_made_in_a_second(step: timedelta, config: str) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(config)
        await world.ready()
        await world.count(10)
        await world.settle()
        await world.count(20)
        await world.wait(seconds=0.2)

        await world.count(100)  # within a second of the last pass: the next one waits
        await world.wait(seconds=0.1)
        world.clock.step(step)
        await world.settle()

    wanted = "DRY_RUN_WOULD_TRIGGER" if config == DRY else "VALIDATION_PASSED"
    assert wanted in await world.events()


@any_step
@pytest.mark.parametrize("config", [CONFIG, DRY], ids=["live", "dry run"])
@on_virtual_time
async def test_a_run_that_waits_is_evaluated_within_its_interval_without_a_record(step: timedelta, config: str) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(config)
        await world.ready()
        await world.settle()
        await world.wait(minutes=12)
        worker.log.clear()

        world.clock.step(step)
        await world.wait(minutes=5, seconds=1)
        evaluated = [event for event, _ in worker.log if event in {"time.came", "fact.ignored"}]
        # The record of the change never comes: the next regular evaluation sees it.
        world.read_to = dict.fromkeys(world.read_to, 10**9)
        await world.count(100)
        await world.wait(minutes=5, seconds=1)

    assert evaluated or config == DRY
    wanted = "DRY_RUN_WOULD_TRIGGER" if config == DRY else "VALIDATION_PASSED"
    assert wanted in await world.events()


# --- nothing expires early, and nothing never -------------------------------------------------------------------------


@any_step
@on_virtual_time
async def test_a_job_has_its_poll_window_of_elapsed_time(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.wait(minutes=20)

        world.clock.step(step)
        await world.wait(minutes=35)
        early = await world.state()
        await world.wait(minutes=10)

    assert early is State.POLLING
    assert "JOB_POLL_EXHAUSTED" in await world.events()


@any_step
@on_virtual_time
async def test_rules_have_their_window_of_elapsed_time(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.wait(minutes=20)

        world.clock.step(step)
        await world.wait(minutes=35)
        early = await world.state()
        await world.wait(minutes=10)

    assert early is State.EVALUATING
    assert "VALIDATION_EXHAUSTED" in await world.events()


@any_step
@on_virtual_time
async def test_a_run_times_out_after_its_elapsed_time(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("maxRetries: 1", "maxRetries: 1\n  jobPollWindowSeconds: 86400"))
        await world.count(100)
        await world.ready()
        await world.wait(hours=2)

        world.clock.step(step)
        await world.wait(hours=1, minutes=50)
        early = await world.state()
        await world.wait(minutes=20)

    assert early is State.POLLING
    assert "SFN_TIMEOUT" in await world.events()


@any_step
@on_virtual_time
async def test_a_stop_is_given_up_after_its_elapsed_time(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.STOPPING)
        await world.wait(minutes=4)

        world.clock.step(step)
        await world.wait(minutes=5)
        early = await world.state()
        await world.wait(minutes=3)

    assert early is State.STOPPING
    assert (run := await world.run())
    assert run.outcome is Outcome.ORPHANED


@on_virtual_time
async def test_a_clock_that_is_set_again_and_again_changes_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        for step in (HOUR, -2 * HOUR, DAY_LONG, -DAY_LONG, 90 * MINUTE):
            await world.wait(minutes=8)
            world.clock.step(step)
        await world.wait(minutes=15)
        early = await world.state()
        await world.wait(minutes=6)

    assert early is State.POLLING
    assert "JOB_POLL_EXHAUSTED" in await world.events()


@on_virtual_time
async def test_a_clock_that_is_kept_right_in_small_steps_costs_a_run_no_write() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        assert (before := await world.run())
        for _ in range(10):
            world.clock.step(timedelta(seconds=-0.4))
            await world.wait(minutes=1)

    assert await world.run() == before


# --- a worker that begins after the clock was set ---------------------------------------------------------------------


@set_back
@pytest.mark.parametrize("state", [State.EVALUATING, State.POLLING, State.STOPPING])
@on_virtual_time
async def test_a_row_of_a_time_that_has_not_come_is_gone_on_with_at_once(step: timedelta, state: State) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(state)
    world.clock.step(step)

    async with world.worker("w2") as worker:
        world.group[SessionId("w1")] = False
        await world.adopt_orphans(worker)
        await world.wait(minutes=2)
        if state is State.EVALUATING:
            world.read_to = dict.fromkeys(world.read_to, 10**9)
            await world.count(100)
            assert await becomes(world, State.POLLING, timedelta(minutes=6))
        else:
            world.runner.finish()
            ended = State.COMPLETED if state is State.POLLING else State.FAILED_FINAL
            assert await becomes(world, ended, timedelta(seconds=61))


@set_back
@on_virtual_time
async def test_a_refused_start_of_a_time_that_has_not_come_is_tried_again(step: timedelta) -> None:
    world = await a_world()
    world.runner.scripts.append(refuse())
    async with world.worker():
        await begin(world)
        await world.settle()
    world.clock.step(step)

    async with world.worker("w2") as worker:
        world.group[SessionId("w1")] = False
        await world.adopt_orphans(worker)

        assert await becomes(world, State.POLLING, timedelta(minutes=15, seconds=61))


@set_back
@on_virtual_time
async def test_a_window_of_a_time_that_has_not_come_ends_at_the_latest_one_window_later(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
    world.clock.step(step)

    async with world.worker("w2") as worker:
        world.group[SessionId("w1")] = False
        await world.adopt_orphans(worker)
        await world.wait(minutes=63)

    assert "JOB_POLL_EXHAUSTED" in await world.events()


# --- what is about the wall clock follows it --------------------------------------------------------------------------


@set_back
@on_virtual_time
async def test_a_deadline_is_warned_of_and_judged_once_although_its_time_comes_twice(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(WITH_DEADLINE)
        await world.ready()
        await world.wait(hours=2, minutes=1)
        assert (watch := await world.watch())
        assert watch.verdict is Verdict.BREACHED

        world.clock.step(step)
        await world.wait(hours=4)

    told = await world.events()
    assert (told.count("SLA_WARNING"), told.count("SLA_BREACH")) == (1, 1)


@set_back
@on_virtual_time
async def test_a_deadline_that_was_warned_of_is_judged_when_the_wall_clock_says_so(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(WITH_DEADLINE)
        await world.ready()
        await world.wait(hours=1, minutes=40)

        world.clock.step(step)
        await world.wait(seconds=31)
        early = await world.events()
        await world.wait(seconds=(20 * MINUTE - step).total_seconds())

    assert early.count("SLA_WARNING") == 1
    assert "SLA_BREACH" not in early
    assert (await world.events()).count("SLA_BREACH") == 1


@set_back
@on_virtual_time
async def test_a_success_after_the_clock_was_set_back_is_judged_once(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(WITH_DEADLINE)
        await world.count(100)
        await world.ready()
        await world.settle()
        world.clock.step(step)
        world.runner.finish(Succeeded())
        await world.wait(hours=3)

    assert (await world.events()).count("SLA_MET") == 1


@any_step
@on_virtual_time
async def test_no_cron_time_fires_twice_and_none_is_lost(step: timedelta) -> None:
    world = await a_world()
    await world.deploy(a_timed_config("0 * * * *", more=", misfire: {policy: all, maxLateness: 48h}"))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(hours=2, minutes=30)
        world.clock.step(step)
        await world.wait(hours=3)
        until = world.clock.now()

    periods = await periods_of(world.tables)
    started = [event for event in await world.events() if event == "VALIDATION_PASSED"]
    assert len(periods) == len(set(periods))
    assert len(started) <= len(periods)
    wanted = [NOON + hour * HOUR for hour in range(int(max(until - NOON, timedelta()) / HOUR))]
    late = [at for at in wanted if until - at < timedelta(days=2)]
    assert {f"{at:%Y-%m-%dT%H}" for at in late} <= set(periods)


# --- what others say after the clock was set --------------------------------------------------------------------------


@set_back
@on_virtual_time
async def test_the_herd_of_timers_that_fire_after_a_step_is_spread(step: timedelta) -> None:
    """Everything fires once; a target is asked no faster than it may be."""
    world = await a_world()
    days = [f"2026-03-{day:02d}" for day in range(1, 4)]
    async with world.worker():
        await world.deploy()
        for day in days:
            await world.count(100, day)
            await world.ready(day)
            await world.settle()
        world.clock.step(step)
        world.runner.finish()
        await world.wait(seconds=61)

        assert [await world.state(day) for day in days] == [State.COMPLETED] * 3


@set_back
@on_virtual_time
async def test_a_report_of_the_running_attempt_is_not_taken_for_one_of_an_earlier_attempt(step: timedelta) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        world.clock.step(step)
        await world.wait(minutes=2)
        at = world.clock.now()
        sk = f"JOB#stream#{DAY}#{int(at.timestamp() * 1000)}"
        row = {"PK": "PIPELINE#orders", "SK": sk, "event": "success", "timestamp": int(at.timestamp() * 1000)}
        await world.tables.commit(Put(TableName.JOBLOG, row))
        await world.settle()

        assert await world.state() is State.COMPLETED


@set_back
@on_virtual_time
async def test_data_that_changes_after_the_clock_was_set_back_to_before_the_installation_is_late_data(
    step: timedelta,
) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        world.clock.step(step - DAY_LONG)
        await world.wait(minutes=1)
        await world.ready(rows=2)
        await world.settle()

    assert "LATE_DATA_ARRIVAL" in await world.events()


@set_back
@on_virtual_time
async def test_a_rerun_that_is_asked_for_at_a_time_before_the_installation_is_not_taken_for_an_old_one(
    step: timedelta,
) -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        world.clock.step(step - DAY_LONG)
        await world.ask_rerun()
        await world.settle()

    assert (run := await world.run())
    assert run.attempt == 2


# --- a clock that the store shows to be wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.EVALUATING, State.POLLING, State.STOPPING])
@any_step
@on_virtual_time
async def test_nothing_is_decided_by_a_clock_that_is_known_to_be_wrong(step: timedelta, state: State) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(WITH_DEADLINE)
        await world.until(state)
        before, told = await world.run(), await world.events()

        world.clock.step(step)
        worker.standing.is_clock_right = False
        await world.wait(minutes=10)

        assert await world.run() == before
        assert await world.events() == told
        world.clock.step(-step)
        worker.standing.is_clock_right = True
        world.runner.finish()
        await world.count(100)
        await world.wait(minutes=2)
        ended = {State.EVALUATING: State.POLLING, State.POLLING: State.COMPLETED, State.STOPPING: State.FAILED_FINAL}
        assert await world.state() is ended[state]


@on_virtual_time
async def test_an_answer_on_its_way_when_the_clock_went_wrong_stops_no_job() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.POLLING)
        world.runner.hangs = asyncio.Event()
        await world.wait(minutes=1)

        world.clock.step(DAY_LONG)
        worker.standing.is_clock_right = False
        world.runner.hangs.set()
        await world.wait(minutes=1)

    assert await world.state() is State.POLLING


# --- a clock that the store shows to be wrong for a while -------------------------------------------------------------


@any_step
@on_virtual_time
async def test_a_clock_that_was_wrong_for_a_while_and_is_right_again_moves_no_time(step: timedelta) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.POLLING)
        assert (before := await world.run())

        worker.standing.is_clock_right = False
        world.clock.step(step)
        await world.ready()  # a fact that is taken in by whatever clock
        await world.wait(minutes=2)
        worker.standing.is_clock_right = True
        world.clock.step(-step)
        await world.wait(minutes=2)

        assert (after := await world.run())

    assert after == before


@set_ahead
@on_virtual_time
async def test_a_job_that_was_started_while_the_clock_was_ahead_keeps_the_patience_of_its_run(step: timedelta) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.TRIGGERING)
        assert (before := await world.run())
        assert world.runner.hangs is not None

        worker.standing.is_clock_right = False
        world.clock.step(step)
        world.runner.hangs.set()
        await world.settle()
        assert await world.state() is State.POLLING
        worker.standing.is_clock_right = True
        world.clock.step(-step)
        await world.wait(minutes=5)

        assert (after := await world.run())

    assert (after.state, after.timeout_at) == (State.POLLING, before.timeout_at)
    assert (after.attempt_began_at, after.since <= world.clock.now()) == (before.attempt_began_at, True)


# --- a worker that had nothing to do when the clock was set -----------------------------------------------------------


@any_step
@on_virtual_time
async def test_times_that_one_worker_moved_are_not_moved_again_by_the_one_that_takes_over(step: timedelta) -> None:
    world = await a_world()
    async with world.worker("w2", reads_feed=False) as idle:
        async with world.worker():
            await world.until(State.POLLING)
            await idle.engine.handle(run_key(), SensorChanged("count"))  # the last that it hears of any run
            world.clock.step(step)
            await world.wait(minutes=2)
            assert (moved := await world.run())
            assert moved.owner == "w1"

        await world.adopt_orphans(idle)
        await world.wait(minutes=2)
        assert (after := await world.run())

    assert (after.state, after.since, after.timeout_at) == (State.POLLING, moved.since, moved.timeout_at)
