"""After the job: late data, drift, reports by others. What is delivered again is never news."""

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, Worker, World, a_world, run_key
from worker.core.model import keys
from worker.core.model.values import Json
from worker.core.run.state import State
from worker.store.table import Put, TableName

NEXT_DAY = "2026-03-04"
POST_RUN = """
postRun:
  driftField: rows
  driftThreshold: 10
  rules:
    - {key: count, check: gte, field: rows, value: 100}
    - {key: out, check: gte, field: rows, value: 1}
"""


async def completed(world: World, config: str = CONFIG) -> None:
    await world.deploy(config)
    await world.count(100)
    await world.ready()
    await world.settle()
    world.runner.finish()
    await world.wait(minutes=2)
    assert await world.state() is State.COMPLETED


@on_virtual_time
async def test_a_trigger_sensor_that_changed_after_the_run_is_late_data_and_leads_to_one_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world)
        await world.ready(note="corrected")
        await world.settle()

    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt, run.spent.drift) == (State.POLLING, 2, 1)
    assert (await world.events())[3:] == ["LATE_DATA_ARRIVAL", "RERUN_ACCEPTED", "VALIDATION_PASSED", "JOB_TRIGGERED"]
    assert [line.event for line in await world.job_log()] == ["success", "late-data-arrival", "rerun-accepted"]


@on_virtual_time
async def test_the_same_signal_delivered_again_is_not_late_data() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world)
        await world.ready()
        world.read_to[TableName.CONTROL] = 0
        await world.ready()
        await world.settle()

    assert await world.state() is State.COMPLETED
    assert "LATE_DATA_ARRIVAL" not in await world.events()


@on_virtual_time
async def test_late_data_beyond_the_budget_is_told_but_not_run_again() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world)
        for note in ("first", "second"):
            await world.ready(note=note)
            await world.settle()
            world.runner.finish()
            await world.wait(minutes=2)

    events = await world.events()
    assert events.count("LATE_DATA_ARRIVAL") == 2
    assert events.count("RERUN_ACCEPTED") == 1
    assert events[-1] == "RERUN_REJECTED"


@on_virtual_time
async def test_data_for_a_run_whose_rules_never_held_reopens_it_only_if_that_is_wanted() -> None:
    for reopen, expected in (("", State.FAILED_FINAL), (", reopen: true", State.POLLING)):
        world = await a_world()
        async with world.worker():
            await world.deploy(CONFIG.replace("interval: 5m", f"interval: 5m{reopen}"))
            await world.ready()
            await world.wait(minutes=61)
            await world.count(100)
            await world.ready(note="now complete")
            await world.settle()

        assert "LATE_DATA_ARRIVAL" in await world.events()
        assert await world.state() is expected


@on_virtual_time
async def test_a_number_that_drifts_from_what_the_job_was_started_on_leads_to_a_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world, CONFIG + POST_RUN)
        await world.count(111)
        await world.settle()

    drift = next(each.event for each in await world.stored_events() if each.event.type == "POST_RUN_DRIFT")
    assert (drift.detail["previousCount"], drift.detail["currentCount"], drift.detail["delta"]) == (100, 111, 11)
    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt) == (State.POLLING, 2)


@on_virtual_time
async def test_a_number_that_changes_while_the_job_runs_is_told_once_and_counts_against_the_start() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG + POST_RUN)
        await world.count(100)
        await world.ready()
        await world.settle()
        for _ in range(2):
            await world.count(150)
            await world.settle()
        in_flight = await world.events()
        world.runner.finish()
        await world.wait(minutes=2)
        await world.count(151)
        await world.settle()

    assert in_flight.count("POST_RUN_DRIFT_INFLIGHT") == 1
    assert "POST_RUN_DRIFT" in await world.events()


@on_virtual_time
async def test_what_the_job_wrote_is_compared_with_its_state_at_the_end_of_the_job() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG + POST_RUN)
        await world.count(100)
        await world.ready()
        await world.settle()
        await world.write(f"out#{DAY}", rows=70)
        world.runner.finish()
        await world.wait(minutes=2)
        await world.write(f"out#{DAY}", rows=75)
        await world.settle()
        within = await world.events()
        await world.write(f"out#{DAY}", rows=90)
        await world.settle()

    assert within[-2:] == ["POST_RUN_BASELINE_CAPTURED", "POST_RUN_PASSED"]
    assert "POST_RUN_DRIFT" in await world.events()


@on_virtual_time
async def test_a_post_run_sensor_without_drift_is_judged_by_the_rules_and_told_once_per_content() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world, CONFIG + POST_RUN)
        for _ in range(3):
            await world.count(95)
            await world.settle()

    assert (await world.events())[3:] == ["POST_RUN_FAILED"]


async def told_by_repeats(world: World, worker: Worker) -> list[str]:
    """Deliver every record again; say what is told because of that."""
    before = await world.events()
    world.read_to.clear()
    await world.drain(worker)
    await world.wait(minutes=2)
    return (await world.events())[len(before) :]


async def ran_again(world: World) -> None:
    """Wait for the rerun that was asked for, and let it end well."""
    await world.settle()
    world.runner.finish()
    await world.wait(minutes=2)
    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt) == (State.COMPLETED, 2)


@on_virtual_time
async def test_what_the_job_was_started_on_is_no_news_when_it_is_delivered_again_after_a_rerun() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await completed(world, CONFIG + POST_RUN)
        first = await told_by_repeats(world, worker)
        await world.count(150)
        await ran_again(world)

        assert await told_by_repeats(world, worker) == first == []


@on_virtual_time
async def test_a_number_that_comes_back_to_what_the_job_was_started_on_is_judged_again() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world, CONFIG.replace("maxRetries: 1", "maxDriftReruns: 0") + POST_RUN)
        for rows in (150, 100, 150):
            await world.count(rows)
            await world.settle()

    after = ["POST_RUN_DRIFT", "RERUN_REJECTED", "POST_RUN_FAILED", "POST_RUN_DRIFT", "RERUN_REJECTED"]
    assert (await world.events())[3:] == after


@on_virtual_time
async def test_an_old_image_of_a_post_run_sensor_whose_row_has_moved_on_is_no_drift() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.write("count", rows=100, date=DAY)
        await world.deploy(CONFIG + POST_RUN)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        await world.write("count", rows=150, date=DAY)
        await ran_again(world)
        await world.write("count", rows=90, date=NEXT_DAY)
        await world.settle()

        assert await told_by_repeats(world, worker) == []


@on_virtual_time
async def test_an_old_image_of_a_trigger_sensor_whose_row_has_moved_on_is_no_late_data() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await completed(world)
        await world.ready(note="corrected")
        await ran_again(world)
        await world.ready(NEXT_DAY)
        await world.settle()

        assert await told_by_repeats(world, worker) == []


NO_DRIFT_RERUNS = CONFIG.replace("maxRetries: 1", "maxDriftReruns: 0")


@on_virtual_time
async def test_several_images_of_a_post_run_sensor_whose_row_has_moved_on_are_each_told_once() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.write("count", rows=100, date=DAY)
        await world.deploy(NO_DRIFT_RERUNS + POST_RUN)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        for rows in (150, 200, 150):
            await world.write("count", rows=rows, date=DAY)
            await world.wait(minutes=1)
        await world.write("count", rows=90, date=NEXT_DAY)
        await world.settle()

        assert (await world.events()).count("POST_RUN_DRIFT") == 3
        assert await told_by_repeats(world, worker) == []


@on_virtual_time
async def test_several_images_of_late_data_whose_row_has_moved_on_are_each_told_once() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await completed(world, NO_DRIFT_RERUNS)
        for note in ("first", "second"):
            await world.ready(note=note)
            await world.wait(minutes=1)
        await world.ready(NEXT_DAY)
        await world.settle()

        assert (await world.events()).count("LATE_DATA_ARRIVAL") == 2
        assert await told_by_repeats(world, worker) == []


@on_virtual_time
async def test_data_that_was_told_as_late_and_taken_back_before_the_rerun_is_late_data_when_it_comes_again() -> None:
    world = await a_world()
    async with world.worker():
        await completed(world, CONFIG.replace("maxRetries: 1", "maxDriftReruns: 2"))
        await world.count(0)
        await world.ready(note="corrected")
        await world.settle()
        await world.ready()
        await world.count(100)
        await ran_again(world)
        await world.ready(note="corrected")
        await world.settle()

    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt) == (State.POLLING, 3)
    assert (await world.events()).count("LATE_DATA_ARRIVAL") == 2


async def report(world: World, event: str, *, by: str | None = None, category: str = "", millis: int = 0) -> None:
    stamp = keys.millis(world.clock.now()) + millis
    row: dict[str, Json] = {
        "PK": keys.pipeline_pk(ORDERS),
        "SK": f"{keys.job_prefix(run_key())}{stamp}",
        "event": event,
        "error": "said by others",
        **({"by": by} if by else {}),
        **({"category": category} if category else {}),
    }
    await world.tables.commit(Put(TableName.JOBLOG, row))


@on_virtual_time
async def test_a_success_that_others_report_completes_the_run() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await report(world, "success")
        await world.settle()

    assert await world.state() is State.COMPLETED
    assert (await world.events())[-1] == "JOB_COMPLETED"


@on_virtual_time
async def test_a_failure_that_others_report_is_retried_once_however_often_it_is_delivered() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await report(world, "fail")
        await world.settle()
        world.read_to[TableName.JOBLOG] = 0
        await report(world, "rerun-accepted")
        await world.settle()

    run = await world.run()
    assert run is not None
    assert (run.state, run.attempt) == (State.POLLING, 2)


@on_virtual_time
async def test_our_own_lines_in_the_job_log_are_no_news() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await report(world, "fail", by="interlock")
        await world.settle()

    run = await world.run()
    assert run is not None
    assert run.attempt == 1


@on_virtual_time
async def test_a_success_of_a_pipeline_we_know_nothing_of_is_passed_on_once() -> None:
    world = await a_world()
    async with world.worker():
        await report(world, "success")
        await world.settle()
        await report(world, "success", millis=1)
        await report(world, "fail", millis=2)
        await world.settle()

    assert await world.events() == ["JOB_COMPLETED"]
