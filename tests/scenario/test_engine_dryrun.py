"""Dry runs: everything up to the start, nothing of it."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world, run_key
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.values import Json
from worker.core.run.state import DryState, State
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.reruns import Rerun, Reruns
from worker.store.table import Put, TableName, Tables, Write

NEXT_DAY = "2026-03-04"
REHEARSED = CONFIG + "dryRun: true\n"
DRIFTING = REHEARSED + (
    "postRun: {driftField: rows, driftThreshold: 5, rules: [{key: count, check: gte, field: rows, value: 1}]}\n"
)


@on_virtual_time
async def test_a_rehearsal_waits_for_its_rules_says_what_it_would_do_and_touches_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(REHEARSED)
        await world.ready()
        await world.settle()
        waiting = await DryRuns(world.tables).load(run_key())
        await world.count(100)
        await world.settle()

    run = await DryRuns(world.tables).load(run_key())
    assert waiting is not None
    assert run is not None
    assert (waiting.state, run.state) == (DryState.EVALUATING, DryState.WOULD_TRIGGER)
    assert await world.events() == ["DRY_RUN_WOULD_TRIGGER", "DRY_RUN_COMPLETED"]
    assert await world.run() is None
    assert world.runner.starts == []


@on_virtual_time
async def test_a_rehearsal_whose_rules_never_hold_is_given_up_at_the_end_of_its_window() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(REHEARSED)
        await world.ready()
        await world.wait(minutes=61)

    assert await world.events() == ["DRY_RUN_VALIDATION_EXHAUSTED"]


@on_virtual_time
async def test_a_rehearsal_sees_data_that_no_record_told_of_at_its_next_interval() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy(REHEARSED)
        await world.ready()
        await world.settle()
    async with world.worker("w2", reads_feed=False) as worker:
        await world.adopt_orphans(worker)
        await world.wait(seconds=20)
        await world.count(100)
        await world.wait(minutes=6)

    assert await world.events() == ["DRY_RUN_WOULD_TRIGGER", "DRY_RUN_COMPLETED"]


@on_virtual_time
async def test_late_data_and_drift_of_a_rehearsal_are_told_and_rerun_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(DRIFTING)
        await world.count(100)
        await world.ready()
        await world.settle()
        await world.ready(note="late")
        await world.count(200)
        await world.settle()

    assert (await world.events())[-2:] == ["DRY_RUN_LATE_DATA", "DRY_RUN_DRIFT"]
    assert world.runner.starts == []


@on_virtual_time
async def test_old_images_of_a_rehearsal_whose_rows_have_moved_on_are_no_news() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(DRIFTING)
        await world.write("count", rows=50, date=DAY)
        await world.ready(note="draft")
        await world.settle()
        await world.ready(note="better")
        await world.wait(minutes=1)
        await world.ready()
        await world.write("count", rows=100, date=DAY)
        await world.settle()
        for rows in (200, 300):
            await world.wait(minutes=1)
            await world.ready(note=f"for {rows}")
            await world.write("count", rows=rows, date=DAY)
        await world.settle()
        await world.ready(NEXT_DAY)
        await world.write("count", rows=10, date=NEXT_DAY)
        await world.settle()
        before = await world.events()
        world.read_to.clear()
        await world.drain(worker)

    told = [event for event in before if event in {"DRY_RUN_LATE_DATA", "DRY_RUN_DRIFT"}]
    assert sorted(told) == ["DRY_RUN_DRIFT"] * 2 + ["DRY_RUN_LATE_DATA"] * 2
    assert await world.events() == before


@pytest.mark.parametrize("second", ["before the start", "after the start"])
@on_virtual_time
async def test_parts_of_a_rehearsal_that_are_found_again_and_again_are_late_data_once_at_most(second: str) -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(REHEARSED.replace("key: ready,", "key: ready, match: prefix,"))
        await world.write(f"ready-eu#{DAY}", status="done")
        await world.settle()
        for moment in ("before the start", "after the start"):
            if moment == second:
                await world.write(f"ready-us#{DAY}", status="done", part=2)
                await world.wait(seconds=10)
            await world.count(100)
            await world.settle()
        before = await world.events()
        for _ in range(3):
            await worker.parts.resync.run(ORDERS, may_begin=lambda _: True)
            await world.settle()
            world.read_to.clear()
            await world.drain(worker)
            await world.settle()

    assert await world.events() == before
    assert before.count("DRY_RUN_LATE_DATA") == (second == "after the start")


@on_virtual_time
async def test_a_part_of_a_rehearsal_that_changes_again_is_late_data_again() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(REHEARSED.replace("key: ready,", "key: ready, match: prefix,"))
        await world.count(100)
        for part in ("eu", "us", "us", "eu"):
            await world.write(f"ready-{part}#{DAY}", status="done", at=str(world.clock.now()))
            await world.wait(seconds=10)
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert (await world.events())[2:] == ["DRY_RUN_LATE_DATA"] * 3


class Meddling(ForwardingTables):
    """The store as a worker sees it, in which something happens between the last read and the commit of the start."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.meddle: Callable[[], Awaitable[None]] | None = None
        self.loses_answer = False

    async def commit(self, *writes: Write) -> None:
        begins = any(_would_trigger(write) for write in writes)
        if begins and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        await super().commit(*writes)
        if begins and self.loses_answer:
            self.loses_answer = False
            raise RetryLater("no answer to the commit")


def _would_trigger(write: Write) -> bool:
    if not isinstance(write, Put) or write.key.sk != keys.dry_run_sk(run_key()):
        return False
    return write.row["state"] == DryState.WOULD_TRIGGER


@pytest.mark.parametrize("is_own", [True, False], ids=["own record", "another worker's record"])
@pytest.mark.parametrize("loses_answer", [False, True], ids=["answered", "commit not answered"])
@pytest.mark.parametrize("changed", ["ready", "count", "neither"])
@on_virtual_time
async def test_a_change_that_is_handled_between_the_read_and_the_start_of_a_rehearsal_is_told_once(
    changed: str, loses_answer: bool, is_own: bool
) -> None:
    world = await a_world(Meddling)
    meddling = world.seen_by_workers
    assert isinstance(meddling, Meddling)
    async with world.worker("w1", reads_feed=False) as worker, world.worker("w2", reads_feed=False) as other:
        await world.deploy(DRIFTING)
        await world.count(100)
        await world.ready()

        async def change() -> None:
            if changed == "ready":
                await world.ready(note="corrected")
            if changed == "count":
                await world.count(200)
            await world.drain(worker if is_own else other)

        meddling.meddle, meddling.loses_answer = change, loses_answer
        await world.drain(worker)
        await world.wait(minutes=1)
        assert meddling.meddle is None
        before = await world.events()
        world.read_to.clear()
        await world.drain(worker)
        await world.settle()

    expected = {"ready": ["DRY_RUN_LATE_DATA"], "count": ["DRY_RUN_DRIFT"], "neither": []}[changed]
    assert before[3:] == expected
    assert await world.events() == before


@on_virtual_time
async def test_a_rerun_of_a_rehearsed_pipeline_is_only_foretold() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(REHEARSED)
        await world.count(100)
        await world.ready()
        await world.settle()
        await world.ask_rerun()
        await world.settle()

    assert (await world.events())[-1] == "DRY_RUN_WOULD_RERUN"
    assert await world.run() is None


@pytest.mark.parametrize("name", ["out", f"out#{DAY}"], ids=["plain key", "dated key"])
@on_virtual_time
async def test_a_sensor_that_only_post_run_rules_name_has_a_baseline_and_its_drift_is_told(name: str) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(DRIFTING.replace("[{key: count,", "[{key: out,"))
        await world.write(name, rows=7)
        await world.count(100)
        await world.ready()
        await world.settle()
        for rows in (9, 900, 900):
            await world.write(name, rows=rows)
            await world.settle()

    events = await world.stored_events()
    assert [each.event.type for each in events] == [
        "POST_RUN_BASELINE_CAPTURED",
        "DRY_RUN_WOULD_TRIGGER",
        "DRY_RUN_COMPLETED",
        "DRY_RUN_DRIFT",
    ]
    assert (events[-1].event.detail["previousCount"], events[-1].event.detail["currentCount"]) == (7, 900)


async def already_rerun(world: World, *reasons: str) -> None:
    """What whoever runs the real job has recorded."""
    for number, reason in enumerate(reasons):
        rerun = Rerun(id=f"rerun-{number}", reason=reason, at=world.clock.now(), attempt=number + 2)
        await Reruns(world.tables).record(run_key(), rerun)


@pytest.mark.parametrize(
    ("recorded", "asked", "event", "count"),
    [
        ([], "manual", "DRY_RUN_WOULD_RERUN", 0),
        (["manual"], "manual", "DRY_RUN_RERUN_REJECTED", 1),
        (["job-fail-retry", "late-data"], "manual", "DRY_RUN_WOULD_RERUN", 0),
        (["late-data"], "data-drift", "DRY_RUN_RERUN_REJECTED", 1),
        (["manual", "job-fail-retry"], "late-data", "DRY_RUN_WOULD_RERUN", 0),
        (["manual", "late-data"], "replay", "DRY_RUN_WOULD_RERUN", 0),
    ],
)
@on_virtual_time
async def test_reruns_on_record_count_against_the_budget_of_a_rehearsal(
    recorded: list[str], asked: str, event: str, count: int
) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(REHEARSED)
        await already_rerun(world, *recorded)
        await world.count(100)
        await world.ready()
        await world.settle()
        await world.ask_rerun(reason=asked)
        await world.settle()

    [*_, last] = await world.stored_events()
    assert last.event.type == event
    assert (last.event.detail["rerunCount"], last.event.detail["budget"]) == (count, 1)
    if event == "DRY_RUN_RERUN_REJECTED":
        assert last.event.detail["reason"] == "limit exceeded"
        assert "1 of 1" in last.event.message


@pytest.mark.parametrize(
    ("recorded", "event", "retries"),
    [
        (["manual"], "DRY_RUN_WOULD_RETRY", 0),
        (["job-fail-retry"], "DRY_RUN_RETRY_EXHAUSTED", 1),
        (["job-fail-retry", "late-data", "job-fail-retry"], "DRY_RUN_RETRY_EXHAUSTED", 2),
    ],
)
@on_virtual_time
async def test_retries_on_record_count_against_the_budget_of_a_rehearsal(
    recorded: list[str], event: str, retries: int
) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(REHEARSED)
        await already_rerun(world, *recorded)
        await world.count(100)
        await world.ready()
        await world.settle()
        sk = f"{keys.job_prefix(run_key())}{keys.millis(world.clock.now())}"
        row: dict[str, Json] = {"PK": keys.pipeline_pk(ORDERS), "SK": sk, "event": "fail"}
        await world.tables.commit(Put(TableName.JOBLOG, row))
        await world.settle()

    [*_, last] = await world.stored_events()
    assert last.event.type == event
    assert (last.event.detail["retries"], last.event.detail["maxRetries"]) == (retries, 1)


@on_virtual_time
async def test_a_live_run_goes_on_to_its_end_when_its_pipeline_becomes_a_rehearsal() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.deploy(REHEARSED)
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        await world.ready("2026-03-02")
        await world.settle()

    assert await world.state(DAY) is State.COMPLETED
    assert await world.run("2026-03-02") is None
