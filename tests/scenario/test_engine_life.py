"""A run from its first signal to its end, on the real router, engine and store."""

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world
from worker.app.worklog import QUIET
from worker.core.model import keys
from worker.core.run.state import FailureCategory, Outcome, State
from worker.jobs.runner import Succeeded
from worker.store.table import Put, TableName


@on_virtual_time
async def test_a_signal_starts_a_run_that_waits_for_its_rules_then_runs_its_job_to_the_end() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.settle()
        waiting = await world.state()

        await world.count(100)
        await world.settle()
        polling = await world.state()
        world.runner.finish()
        await world.wait(minutes=2)

    assert (waiting, polling) == (State.EVALUATING, State.POLLING)
    assert await world.state() is State.COMPLETED
    assert await world.events() == ["VALIDATION_PASSED", "JOB_TRIGGERED", "JOB_COMPLETED"]
    assert [line.event for line in await world.job_log()] == ["success"]
    [start] = world.runner.starts
    assert start.config["environment"] == {"DAY": DAY}


@on_virtual_time
async def test_looking_again_and_again_at_a_run_that_goes_on_is_not_worth_a_line_each_time() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.POLLING)
        handled = [event for event, _ in worker.log].count("fact.handled")

        await world.wait(minutes=10)

    logged = [event for event, _ in worker.log]
    assert logged.count("time.came") >= 10
    assert logged.count("fact.handled") == handled
    assert "time.came" in QUIET


@on_virtual_time
async def test_a_success_that_could_not_be_checked_stands_and_is_told_in_the_same_commit() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        world.runner.finish(Succeeded(notices=("its log cannot be read",)))
        await world.wait(minutes=2)

    assert await world.state() is State.COMPLETED
    told = (await world.stored_events())[-1].event
    assert told.type == "JOB_SUCCESS_UNCHECKED"
    assert "its log cannot be read" in told.message
    assert (await world.events()).count("JOB_COMPLETED") == 1


@on_virtual_time
async def test_a_waiting_run_starts_within_a_second_of_the_sensor_it_waited_for() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)

        await world.count(100)
        await world.wait(milliseconds=100)

        assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_plain_sensor_wakes_the_runs_of_every_period_that_wait_for_it() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        for day in ("2026-03-02", DAY):
            await world.ready(day)
        await world.settle()

        await world.write("count", rows=100)
        await world.settle()

        assert len(world.runner.starts) == 2


@on_virtual_time
async def test_a_burst_of_sensor_writes_makes_one_pass_a_second_and_one_after_the_last() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.EVALUATING)
        for rows in range(50):
            await world.count(rows)
            await world.wait(milliseconds=20)
        await world.count(100)
        await world.wait(milliseconds=1100)

        passes = [facts for _, facts in worker.log if facts.get("fact") in {"RulesNotHeld", "RulesHeld"}]

    assert await world.state() is State.POLLING
    assert len(passes) <= 5


@on_virtual_time
async def test_a_job_that_is_over_at_once_completes_its_run_at_once() -> None:
    world = await a_world()
    world.runner.at_once = Succeeded()
    async with world.worker():
        await world.deploy()
        await world.count(100)
        await world.ready()
        await world.settle()

    assert await world.state() is State.COMPLETED


@on_virtual_time
async def test_a_failed_job_is_retried_under_a_new_token_and_then_fails_for_good() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        for _ in range(2):
            world.runner.fail("node lost")
            await world.wait(minutes=2)

    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt, run.outcome) == (State.FAILED_FINAL, 2, Outcome.FAILED)
    assert len(set(world.runner.tokens)) == 2
    assert await world.events() == [
        "VALIDATION_PASSED",
        "JOB_TRIGGERED",
        "JOB_FAILED",
        "VALIDATION_PASSED",
        "JOB_TRIGGERED",
        "JOB_FAILED",
        "RETRY_EXHAUSTED",
    ]
    assert [(line.event, line.attempt) for line in await world.job_log()] == [("fail", 1), ("fail", 2)]
    assert [(rerun.number, rerun.reason) for rerun in await world.reruns()] == [(0, "job-fail-retry")]


@on_virtual_time
async def test_a_failure_of_the_code_is_charged_to_its_own_budget() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        world.runner.fail("syntax error", FailureCategory.PERMANENT)
        await world.wait(minutes=2)
        world.runner.fail("node lost")
        await world.wait(minutes=2)

    run = await world.run()
    assert run is not None
    assert (run.attempt, run.spent.code, run.spent.transient) == (3, 1, 1)


@on_virtual_time
async def test_rules_that_never_hold_end_the_run_at_the_end_of_its_window() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.count(99)
        await world.wait(minutes=61)

    run = await world.run()
    assert run is not None
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.EXHAUSTED)
    assert "99" in run.reason
    assert await world.events() == ["VALIDATION_EXHAUSTED"]


@on_virtual_time
async def test_data_that_comes_in_the_windows_last_second_is_still_taken() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        # Written without a record, as when the feed is behind: the last pass finds it all the same.
        await world.wait(minutes=59)
        world.read_to[TableName.CONTROL] = 10**9
        await world.count(100)
        await world.wait(minutes=1)

    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_job_that_outlives_its_poll_window_is_stopped_before_it_is_retried() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.wait(minutes=62)

    assert len(world.runner.running) == 1
    assert len(world.runner.starts) == 2
    assert "JOB_POLL_EXHAUSTED" in await world.events()


@on_virtual_time
async def test_a_run_past_its_timeout_stops_its_job_and_says_so() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("maxRetries: 1", "jobPollWindowSeconds: 86400\n  runTimeoutSeconds: 7200"))
        await world.count(100)
        await world.ready()
        await world.wait(hours=2, minutes=2)

    assert await world.state() is State.FAILED_FINAL
    assert world.runner.running == []
    assert (await world.events())[-1] == "SFN_TIMEOUT"


@on_virtual_time
async def test_an_excluded_day_does_not_run_and_is_told_once_however_often_its_sensor_is_written() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("  evaluation", "  exclude: {dates: [2026-03-03]}\n  evaluation"))
        for attempt in range(3):
            await world.ready(note=attempt)
            await world.settle()

    assert await world.run() is None
    assert await world.events() == ["PIPELINE_EXCLUDED"]


@pytest.mark.parametrize("hour", ["07", "7"])
def test_an_hour_in_the_data_makes_a_run_of_that_hour(hour: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await world.ready(hour=hour)
            await world.settle()

        assert await world.state(f"{DAY}T07") is State.EVALUATING

    scenario()


@on_virtual_time
async def test_a_sensor_of_top_level_attributes_starts_runs_and_satisfies_rules() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await _put_plain(world, "ready", status="done", date=DAY)
        await _put_plain(world, f"count#{DAY.replace('-', '')}", rows=100)
        await world.settle()

    assert await world.state() is State.POLLING


@on_virtual_time
async def test_every_event_of_a_run_is_for_the_relay_and_in_order_of_its_version() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)

    stored = await world.stored_events()
    versions = [each.event.detail["version"] for each in stored]
    assert all(each.out for each in stored)
    assert versions == sorted(versions, key=str)
    assert {each.event.period for each in stored} == {DAY}


@on_virtual_time
async def test_a_run_goes_on_under_the_configuration_it_began_with() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.deploy(CONFIG.replace("value: 100", "value: 500"))

        await world.count(100)
        await world.ready("2026-03-02")
        await world.count(100, "2026-03-02")
        await world.wait(minutes=10)

        assert await world.state() is State.POLLING
        assert await world.state("2026-03-02") is State.EVALUATING


async def _put_plain(world: World, key: str, **data: str | int) -> None:
    row = {"PK": keys.pipeline_pk(ORDERS), "SK": keys.sensor_sk(key), **data}
    await world.tables.commit(Put(TableName.CONTROL, row))
