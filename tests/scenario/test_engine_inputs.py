"""Data that changes while its job runs: reported when the job succeeds, and run again, once for each change."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import FaultyTables
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world, begin, run_key
from worker.core.model import keys
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.operations.runs.events import EventReader
from worker.store.repos.events import Events
from worker.store.repos.requests import Requests
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Put, TableName, Tables, Write

NEXT_DAY = "2026-03-04"
SLA = "sla: {maxDuration: 90m, expectedDuration: 50m}\n"
NO_RERUNS = CONFIG.replace("maxRetries: 1", "maxDriftReruns: 0")
TWO_RERUNS = CONFIG.replace("maxRetries: 1", "maxDriftReruns: 2")
WATCHED = """
postRun:
  driftField: rows
  driftThreshold: 10
  rules:
    - {key: count, check: gte, field: rows, value: 100}
"""
AUDITED = WATCHED.replace("{key: count, check: gte, field: rows, value: 100}", "{key: audit, check: exists}")
LATE_AND_AGAIN = ["JOB_COMPLETED", "LATE_DATA_ARRIVAL", "RERUN_ACCEPTED", "VALIDATION_PASSED", "JOB_TRIGGERED"]


async def ended(world: World) -> None:
    world.runner.finish()
    await world.wait(minutes=2)


async def told(world: World, event: str) -> list[dict[str, Json]]:
    return [dict(each.event.detail) for each in await world.stored_events() if each.event.type == event]


async def the_run(world: World) -> Run:
    run = await world.run()
    assert run is not None
    return run


async def report_success(world: World) -> None:
    row: dict[str, Json] = {
        "PK": keys.pipeline_pk(ORDERS),
        "SK": f"{keys.job_prefix(run_key())}{keys.millis(world.clock.now())}",
        "event": "success",
    }
    await world.tables.commit(Put(TableName.JOBLOG, row))


# --- the order of events ----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_events_of_one_millisecond_are_listed_in_the_order_in_which_they_were_decided() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world, CONFIG + SLA)
        await world.settle()
        await world.ready(note="corrected")
        await world.settle()
        await ended(world)
        await ended(world)

    decided, at_once = await world.events(), [stored.event.at for stored in await world.stored_events()]
    assert len(set(at_once)) < len(at_once)
    listed = [stored.event.type for stored in await Events(world.tables).latest(ORDERS)]
    assert listed[::-1] == decided
    read = await EventReader(world.tables, NOON, pipeline=ORDERS).news(world.clock.now())
    assert [event.type for event in read] == decided


# --- the trigger and the rules ----------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_signal_that_changes_under_the_job_is_late_data_when_the_job_is_done_and_runs_again_on_it() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world, CONFIG + SLA)
        await world.settle()
        await world.ready(note="corrected")
        await world.settle()
        meanwhile = await world.events()
        await ended(world)
        again = await the_run(world)
        await ended(world)

    row = await Sensors(world.tables).get(ORDERS, "ready")
    events, run = await world.events(), await the_run(world)
    assert "LATE_DATA_ARRIVAL" not in meanwhile
    assert [event for event in events if event != "SLA_MET"][2:7] == LATE_AND_AGAIN
    assert (again.state, again.attempt, again.spent.drift) == (State.POLLING, 2, 1)
    assert row is not None
    assert again.started_on["ready"] == row.content_hash
    assert (run.state, run.attempt, run.spent.drift) == (State.COMPLETED, 2, 1)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("SLA_MET")) == (1, 1)
    lines = [line.event for line in await world.job_log()]
    assert lines == ["success", "late-data-arrival", "rerun-accepted", "success"]


@on_virtual_time
async def test_a_rules_sensor_that_changes_under_the_job_is_late_data_too() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.count(900)
        await ended(world)
        again = await the_run(world)
        await ended(world)

    assert (await world.events())[2:7] == LATE_AND_AGAIN
    assert again.attempt == 2
    [late] = await told(world, "LATE_DATA_ARRIVAL")
    assert (late["sensorKey"], late["sensorKeys"]) == ("count", ["count"])
    assert (await the_run(world)).state is State.COMPLETED


@on_virtual_time
async def test_several_inputs_that_change_under_one_job_are_one_report_and_one_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.count(900)
        await world.ready(note="corrected")
        await ended(world)
        await ended(world)

    events = await world.events()
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("RERUN_ACCEPTED")) == (1, 1)
    [late] = await told(world, "LATE_DATA_ARRIVAL")
    assert late["sensorKeys"] == ["ready", "count"]


@on_virtual_time
async def test_a_success_that_others_report_is_compared_with_the_start_as_well() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.ready(note="corrected")
        await world.count(900)
        await world.settle()
        await report_success(world)
        await world.settle()

    assert (await world.events())[2:7] == LATE_AND_AGAIN


@on_virtual_time
async def test_a_job_that_succeeds_before_it_can_be_stopped_is_compared_with_the_start_as_well() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world, CONFIG.replace("maxRetries: 1", "maxRetries: 1\n  jobPollWindowSeconds: 600"))
        await world.settle()
        world.runner.stops_slowly = True
        await world.wait(minutes=11)
        assert await world.state() is State.STOPPING
        await world.ready(note="corrected")
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)

    assert "LATE_DATA_ARRIVAL" in await world.events()
    assert (await the_run(world)).attempt == 2


@on_virtual_time
async def test_a_signal_that_changes_while_the_job_is_being_started_is_late_data_when_it_is_done() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.TRIGGERING)
        await world.ready(note="corrected")
        await world.settle()
        assert world.runner.hangs is not None
        world.runner.hangs.set()
        await world.settle()
        await ended(world)

    assert (await world.events())[2:7] == LATE_AND_AGAIN


@on_virtual_time
async def test_data_that_is_back_to_what_the_job_was_started_on_is_no_change() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.ready(note="mistaken")
        await world.settle()
        await world.ready()
        await ended(world)

    assert await world.state() is State.COMPLETED
    assert (await world.events())[2:] == ["JOB_COMPLETED"]


@on_virtual_time
async def test_a_change_that_was_reported_is_no_news_when_its_record_is_delivered_again() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await begin(world, NO_RERUNS)
        await world.settle()
        await world.ready(note="corrected")
        await world.count(900)
        await ended(world)
        before = await world.events()
        world.read_to.clear()
        await world.drain(worker)
        await world.wait(minutes=2)

    assert before[2:] == ["JOB_COMPLETED", "LATE_DATA_ARRIVAL", "RERUN_REJECTED"]
    assert await world.events() == before


@on_virtual_time
async def test_a_change_whose_record_comes_only_after_the_end_is_reported_once() -> None:
    world = await a_world()
    async with world.worker("w1", reads_feed=False) as worker:
        await begin(world, NO_RERUNS)
        await world.drain(worker)
        await world.settle()
        await world.ready(note="corrected")
        await ended(world)
        at_success = await world.events()
        await world.drain(worker)
        await world.settle()

    assert at_success[2:] == ["JOB_COMPLETED", "LATE_DATA_ARRIVAL"]
    assert (await world.events())[2:] == [*at_success[2:], "RERUN_REJECTED"]


@on_virtual_time
async def test_a_change_under_a_rerun_is_reported_when_it_succeeds_and_beyond_the_budget_not_run_again() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        for note in ("first", "second"):
            await world.settle()
            await world.ready(note=note)
            await ended(world)

    events, run = await world.events(), await the_run(world)
    assert (run.state, run.attempt, run.spent.drift) == (State.COMPLETED, 2, 1)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("RERUN_ACCEPTED")) == (2, 1)
    assert events[-1] == "RERUN_REJECTED"
    [rejected] = await told(world, "RERUN_REJECTED")
    assert rejected["reason"] == "drift rerun limit reached (1 of 1)"


@on_virtual_time
async def test_a_signal_that_was_withdrawn_is_reported_and_not_run_again() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.write("ready", status="revoked", date=DAY)
        await ended(world)

    [late] = await told(world, "LATE_DATA_ARRIVAL")
    assert late["noRerun"] == "the trigger's condition on ready does not hold any more"
    assert await world.state() is State.COMPLETED
    assert await Requests(world.tables).rerun_of(run_key()) is None


@on_virtual_time
async def test_a_sensor_that_is_gone_is_reported_and_not_run_again() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await Sensors(world.tables).remove(ORDERS, Sensor(f"count#{DAY}", {"rows": 100}))
        await ended(world)

    [late] = await told(world, "LATE_DATA_ARRIVAL")
    assert late["noRerun"] == "count is gone"
    assert await Requests(world.tables).rerun_of(run_key()) is None


@on_virtual_time
async def test_an_excluded_period_is_reported_and_not_run_again() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.deploy(CONFIG.replace("  evaluation:", f'  exclude: {{dates: ["{DAY}"]}}\n  evaluation:'))
        await world.ready(note="corrected")
        await ended(world)

    assert await world.state() is State.COMPLETED
    assert (await world.events())[-2:] == ["LATE_DATA_ARRIVAL", "PIPELINE_EXCLUDED"]


@on_virtual_time
async def test_a_sensor_whose_row_is_for_the_next_period_by_now_is_no_change_of_this_one() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.write("count", rows=100, date=DAY)
        await world.ready()
        await world.settle()
        await world.write("count", rows=90, date=NEXT_DAY)
        await world.ready(NEXT_DAY)
        await world.settle()
        await ended(world)

    assert await world.state() is State.COMPLETED
    assert "LATE_DATA_ARRIVAL" not in await world.events()


@on_virtual_time
async def test_a_rules_sensor_that_changed_is_late_data_though_its_row_is_for_the_next_period_by_now() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.write("count", rows=100, date=DAY)
        await world.ready()
        await world.settle()
        await world.write("count", rows=40, date=DAY)
        await world.settle()
        await world.write("count", rows=900, date=NEXT_DAY)
        await world.settle()
        noted = await the_run(world)
        world.read_to.clear()
        await world.drain(worker)
        await ended(world)
        await ended(world)

    events, run = await world.events(), await the_run(world)
    assert (noted.state, list(noted.changed_inputs)) == (State.POLLING, ["count"])
    assert events[2:7] == LATE_AND_AGAIN
    assert events.count("LATE_DATA_ARRIVAL") == 1
    assert (run.state, run.attempt) == (State.COMPLETED, 2)


@on_virtual_time
async def test_a_rules_sensor_that_was_put_back_before_it_moved_on_is_no_change() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.write("count", rows=100, date=DAY)
        await world.ready()
        await world.settle()
        for rows in (40, 100):
            await world.write("count", rows=rows, date=DAY)
            await world.settle()
        await world.write("count", rows=900, date=NEXT_DAY)
        await world.settle()
        await ended(world)

    assert "LATE_DATA_ARRIVAL" not in await world.events()


@on_virtual_time
async def test_a_change_of_this_period_is_reported_though_the_row_is_for_the_next_one_by_now() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await begin(world, NO_RERUNS)
        await world.settle()
        await world.ready(note="corrected")
        await world.settle()
        await world.ready(NEXT_DAY)
        await world.settle()
        await ended(world)
        before = await world.events()
        world.read_to.clear()
        await world.drain(worker)
        await world.settle()

    assert before.count("LATE_DATA_ARRIVAL") == 1
    assert (await world.events()).count("LATE_DATA_ARRIVAL") == 1


@on_virtual_time
async def test_another_sensor_of_a_prefix_that_comes_under_the_job_is_late_data_when_it_is_done() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("key: ready,", "key: ready, match: prefix,"))
        await world.count(100)
        await world.write(f"ready-eu#{DAY}", status="done")
        await world.settle()
        await world.write(f"ready-us#{DAY}", status="done", part=2)
        await world.settle()
        await ended(world)

    assert (await world.events())[2:7] == LATE_AND_AGAIN


@pytest.mark.parametrize("is_heard", ["at once", "after the end"])
@on_virtual_time
async def test_another_sensor_of_a_prefix_is_late_data_also_where_no_rule_reads_any(is_heard: str) -> None:
    world = await a_world()
    rules = CONFIG[CONFIG.index("validation:") : CONFIG.index("job:")]
    async with world.worker(reads_feed=False) as worker:
        await world.deploy(CONFIG.replace("key: ready,", "key: ready, match: prefix,").replace(rules, ""))
        await world.write(f"ready-eu#{DAY}", status="done")
        await world.drain(worker)
        await world.settle()
        await world.write(f"ready-us#{DAY}", status="done", part=2)
        if is_heard == "at once":
            await world.drain(worker)
        await ended(world)
        await world.drain(worker)
        await world.drain(worker)  # the request for the rerun, too
        await world.settle()

    assert (await the_run(world)).started_on == {}
    assert (await world.events())[2:7] == LATE_AND_AGAIN


@pytest.mark.parametrize("second", ["before the start", "under the job", "after the end"])
@on_virtual_time
async def test_sensors_of_a_prefix_that_a_resync_finds_again_and_again_are_late_data_once_at_most(second: str) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(TWO_RERUNS.replace("key: ready,", "key: ready, match: prefix,"))
        await world.write(f"ready-eu#{DAY}", status="done")
        await world.settle()
        for moment in ("before the start", "under the job", "after the end"):
            if moment == second:
                await world.write(f"ready-us#{DAY}", status="done", part=2)
                await world.settle()
            if moment == "before the start":
                await world.count(100)
                await world.settle()
            else:
                await ended(world)
        await ended(world)
        before = await world.events()
        for _ in range(3):
            await worker.parts.resync.run(ORDERS)
            await ended(world)

    assert await world.events() == before
    assert before.count("LATE_DATA_ARRIVAL") == (second != "before the start")


@on_virtual_time
async def test_a_polling_run_is_written_once_for_each_content_and_never_for_a_record_that_says_nothing_new() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world)
        await world.settle()
        versions = [(await the_run(world)).version]
        for note in (None, None, "new", "new", "new"):
            await world.ready(**({"note": note} if note else {}))
            await world.settle()
            versions.append((await the_run(world)).version)
        await world.wait(minutes=30)
        versions.append((await the_run(world)).version)

    assert [version - versions[0] for version in versions] == [0, 0, 0, 1, 1, 1, 1]


# --- post-run sensors -------------------------------------------------------------------------------------------------


@on_virtual_time
@pytest.mark.parametrize("config", [WATCHED, AUDITED], ids=["also a rule's", "only post-run"])
async def test_a_number_that_drifts_under_the_job_is_told_early_and_leads_to_a_rerun_when_it_is_done(
    config: str,
) -> None:
    world, name = await a_world(), "count" if config == WATCHED else "audit"
    async with world.worker():
        await world.write(f"audit#{DAY}", rows=100)
        await begin(world, CONFIG + config)
        await world.settle()
        await world.write(f"{name}#{DAY}", rows=900)
        await world.settle()
        early = await world.events()
        await ended(world)
        again = await the_run(world)
        await ended(world)

    events = await world.events()
    assert early[-1] == "POST_RUN_DRIFT_INFLIGHT"
    assert events[3:6] == ["JOB_COMPLETED", "POST_RUN_DRIFT", "RERUN_ACCEPTED"]
    assert (again.state, again.attempt, again.spent.drift) == (State.POLLING, 2, 1)
    assert (events.count("POST_RUN_DRIFT"), events.count("LATE_DATA_ARRIVAL")) == (1, 0)
    assert (await the_run(world)).state is State.COMPLETED
    [drift] = await told(world, "POST_RUN_DRIFT")
    assert (drift["previousCount"], drift["currentCount"], drift["sensorKey"]) == (100, 900, f"{name}#{DAY}")
    assert [record.reason for record in await world.reruns()] == ["data-drift"]


@on_virtual_time
async def test_a_number_that_moves_within_its_threshold_is_judged_by_the_post_run_rules_when_the_job_is_done() -> None:
    for rows, verdict in ((105, "POST_RUN_PASSED"), (95, "POST_RUN_FAILED")):
        world = await a_world()
        async with world.worker() as worker:
            await begin(world, CONFIG + WATCHED)
            await world.settle()
            await world.count(rows)
            await ended(world)
            world.read_to.clear()
            await world.drain(worker)
            await world.settle()

        assert (await world.events())[2:] == ["JOB_COMPLETED", verdict]


@on_virtual_time
async def test_drift_and_late_data_of_one_change_are_one_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world, TWO_RERUNS + WATCHED.replace("key: count", "key: ready"))
        await world.ready(rows=100)
        await world.settle()
        await world.ready(rows=900)
        await ended(world)
        await ended(world)

    events, run = await world.events(), await the_run(world)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("POST_RUN_DRIFT")) == (1, 1)
    assert (run.state, run.attempt) == (State.COMPLETED, 2)


@on_virtual_time
async def test_drift_under_the_job_of_a_row_that_is_for_the_next_period_by_now_leads_to_a_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(NO_RERUNS + WATCHED)
        await world.write("count", rows=100, date=DAY)
        await world.ready()
        await world.settle()
        await world.write("count", rows=900, date=DAY)
        await world.settle()
        await world.write("count", rows=10, date=NEXT_DAY)
        await world.settle()
        await ended(world)

    assert (await world.events())[-3:] == ["JOB_COMPLETED", "POST_RUN_DRIFT", "RERUN_REJECTED"]


@on_virtual_time
async def test_a_rerun_does_not_take_its_own_result_for_a_change_of_its_data() -> None:
    world = await a_world()
    async with world.worker():
        await begin(world, TWO_RERUNS + AUDITED)
        for rows in (100, 900):
            await world.settle()
            await world.write(f"audit#{DAY}", rows=rows)
            if rows == 100:
                await world.ready(note="corrected")
            await ended(world)

    events, run = await world.events(), await the_run(world)
    assert (run.state, run.attempt) == (State.COMPLETED, 2)
    assert "POST_RUN_DRIFT" not in events
    assert events.count("POST_RUN_BASELINE_CAPTURED") == 2


# --- the race of a record and the success -----------------------------------------------------------------------------


class Meddling(FaultyTables):
    """The store as a worker sees it, in which something happens between the last read and the commit of a success."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.meddle: Callable[[], asyncio.Future[None]] | None = None

    async def commit(self, *writes: Write) -> None:
        if self.meddle is not None and any(_ends_well(write) for write in writes):
            meddle, self.meddle = self.meddle, None
            await meddle()
        await self._tables.commit(*writes)


def _ends_well(write: Write) -> bool:
    return isinstance(write, Put) and write.key.sk == keys.trigger_sk(run_key()) and write.row["state"] == "COMPLETED"


async def _changed_at_the_last_moment(earlier: list[dict[str, Json]], last: dict[str, Json], config: str) -> World:
    """Let the last content be written, and its record be handled, after the success has read and before it commits."""
    world = await a_world(Meddling)
    meddling = world.seen_by_workers
    assert isinstance(meddling, Meddling)
    async with world.worker("w1", reads_feed=False) as worker, world.worker("w2", reads_feed=False) as other:
        await begin(world, config)
        await world.drain(worker)
        await world.settle()
        for content in earlier:
            await _write(world, content)
            await world.drain(worker)

        async def change() -> None:
            await _write(world, last)
            await world.drain(other)

        meddling.meddle = lambda: asyncio.ensure_future(change())
        await ended(world)
        assert meddling.meddle is None
        for _ in range(2):
            await world.drain(worker)
            await world.settle()
    return world


async def _write(world: World, content: dict[str, Json]) -> None:
    data = {name: value for name, value in content.items() if name != "key"}
    await world.write(str(content["key"]), **data)


GOOD: dict[str, Json] = {"key": "ready", "status": "done", "date": DAY}
BETTER: dict[str, Json] = {**GOOD, "note": "better"}
REVOKED: dict[str, Json] = {"key": "ready", "status": "revoked", "date": DAY}


@pytest.mark.parametrize(
    "earlier",
    [[], [BETTER, GOOD], [BETTER, REVOKED], [REVOKED], [BETTER, {**GOOD, "note": "other"}]],
    ids=["none", "changed and back", "changed and withdrawn", "withdrawn", "changed twice"],
)
@on_virtual_time
async def test_a_signal_that_is_handled_between_the_read_and_the_commit_of_a_success_is_not_lost(
    earlier: list[dict[str, Json]],
) -> None:
    world = await _changed_at_the_last_moment(earlier, BETTER, CONFIG)

    run, events = await the_run(world), await world.events()
    assert (run.state, run.attempt) == (State.POLLING, 2)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("RERUN_ACCEPTED")) == (1, 1)


@pytest.mark.parametrize(
    "earlier",
    [[], [{"key": f"count#{DAY}", "rows": 900}, {"key": f"count#{DAY}", "rows": 100}]],
    ids=["none", "drifted and back"],
)
@on_virtual_time
async def test_drift_that_is_handled_between_the_read_and_the_commit_of_a_success_is_not_lost(
    earlier: list[dict[str, Json]],
) -> None:
    world = await _changed_at_the_last_moment(earlier, {"key": f"count#{DAY}", "rows": 900}, CONFIG + WATCHED)

    run, events = await the_run(world), await world.events()
    assert (run.state, run.attempt) == (State.POLLING, 2)
    assert (events.count("POST_RUN_DRIFT"), events.count("RERUN_ACCEPTED")) == (1, 1)


@on_virtual_time
async def test_a_number_within_its_threshold_that_is_handled_between_read_and_commit_is_judged() -> None:
    world = await _changed_at_the_last_moment([], {"key": f"count#{DAY}", "rows": 95}, CONFIG + WATCHED)

    assert (await world.events())[2:] == ["JOB_COMPLETED", "POST_RUN_FAILED"]
