"""A bulk operation that is interrupted anywhere and resumed requests each run once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import FaultyTables
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world, run_key
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.run.state import Outcome, Run, State
from worker.operations.bulk.execution import BulkRequests, BulkSpec
from worker.operations.bulk.selection import RunSelection, fixed_filter, select_by_filter
from worker.operations.bulk.start import command_of, start_bulk
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.run_filter import RunFilter
from worker.store.repos.bulk_operations import BulkAction, BulkOperation, BulkOperations, BulkResult
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.table import TableName, Tables, Write, query_all

ANN = Requester(name="ann", via="cli")
RERUN = BulkSpec(action=BulkAction.RERUN, reason="the warehouse is back")
FAILED = RunFilter(statuses=("failed",))
MANY = CONFIG.replace("maxRetries: 1", "maxRetries: 1\n  maxManualReruns: 1")


async def failed_runs(world: World, number: int) -> list[RunKey]:
    """That many failed runs of past hours."""
    await world.deploy(MANY)
    version = await version_of(world.tables, ORDERS)
    assert version is not None
    begin = NOON.replace(hour=0) - timedelta(days=60)
    made: list[RunKey] = []
    for hour in range(number):
        at = begin + timedelta(hours=hour)
        key = run_key(f"{at.date().isoformat()}T{at.hour:02d}")
        run = Run(
            key=key,
            run_id=f"run-{hour}",
            state=State.FAILED_FINAL,
            outcome=Outcome.FAILED,
            reason="connection refused",
            config_hash=version.config_hash,
            created_at=NOON - timedelta(hours=2),
            since=NOON - timedelta(hours=1),
            timeout_at=NOON,
        )
        await Runs(world.tables).save(run)
        made.append(key)
    return made


async def begin(world: World, tables: Tables) -> BulkOperation:
    """What the command does up to its first request, each time it is run."""
    command = command_of(RERUN, ANN, FAILED.canonical)
    interrupted = await BulkOperations(tables).unfinished(command)
    if interrupted is not None:
        return interrupted
    now = world.clock.now()
    selection = await select_by_filter(tables, fixed_filter(FAILED, BulkAction.RERUN, now), now)
    return await start_bulk(
        tables, world.clock, ANN, RERUN, selection, command=command, bulk_id=f"b{next(world.numbers)}"
    )


async def requested_by_run(world: World) -> Counter[str]:
    """How often each run was requested: one event is part of the commit of every request."""
    told: Counter[str] = Counter()
    async for row in query_all(world.tables, TableName.EVENTS, keys.pipeline_pk(ORDERS)):
        if row.get("eventType") == EventType.OPERATOR_ACTION:
            told[str(row["date"])] += 1
    return told


def once_each(runs: Sequence[RunKey]) -> Counter[str]:
    return Counter({str(key.period): 1 for key in runs})


class Killed(BaseException):
    """The end of the process."""


class KillingTables(FaultyTables):
    """Ends the process at one commit: before the store has it, or after."""

    def __init__(self, tables: Tables, at: int, *, is_applied: bool) -> None:
        super().__init__(tables)
        self._direct, self._left, self._is_applied = tables, at, is_applied

    async def commit(self, *writes: Write) -> None:
        self._left -= 1
        if self._left >= 0:
            await self._direct.commit(*writes)
            return
        if self._is_applied:
            await self._direct.commit(*writes)
        raise Killed


async def run_until_killed(world: World, tables: Tables) -> bool:
    """Whether the command came to its end."""
    try:
        operation = await begin(world, tables)
        await BulkRequests(tables, world.clock, ANN).execute(operation)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("is_applied", [False, True], ids=["killed before the write", "killed after the write"])
@on_virtual_time
async def test_a_bulk_rerun_killed_at_any_write_and_run_again_requests_each_run_once(is_applied: bool) -> None:
    for point in range(6):  # the operation, four requests, the end
        world = await a_world()
        runs = await failed_runs(world, 4)
        assert not await run_until_killed(world, KillingTables(world.tables, point, is_applied=is_applied))

        async with world.worker():  # it reruns what was requested, so that the filter finds other runs than before
            await world.settle()
            assert await run_until_killed(world, world.tables)

        assert await requested_by_run(world) == once_each(runs)


@on_virtual_time
async def test_a_bulk_rerun_of_a_thousand_killed_at_random_points_requests_each_run_once() -> None:
    world, random = await a_world(), Random(17)
    runs = await failed_runs(world, 1_000)
    kills = 0
    while not await run_until_killed(
        world, KillingTables(world.tables, random.randrange(10, 200), is_applied=random.random() < 0.5)
    ):
        kills += 1
    rows = [await Requests(world.tables).rerun_of(key) for key in runs]

    assert kills > 5
    assert await requested_by_run(world) == once_each(runs)
    assert len({row.id for row in rows if row}) == 1_000


@on_virtual_time
async def test_a_command_typed_again_after_its_last_request_requests_nothing_twice() -> None:
    """The first one was killed after its end: no worker has handled its requests, so the filter finds the same runs."""
    world = await a_world()
    runs = await failed_runs(world, 4)
    assert await run_until_killed(world, world.tables)

    forecasts = await BulkRequests(world.tables, world.clock, ANN).preview(runs, RERUN)
    assert await run_until_killed(world, world.tables)

    assert not any(each.is_accepted for each in forecasts)
    assert "no worker has handled it yet" in forecasts[0].forecast.sentence
    assert await requested_by_run(world) == once_each(runs)


@on_virtual_time
async def test_two_processes_with_the_same_operation_request_each_run_once() -> None:
    world = await a_world()
    runs = await failed_runs(world, 40)
    operation = await begin(world, world.tables)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(BulkRequests(world.tables, world.clock, ANN).execute(operation), name="bulk")

    assert await requested_by_run(world) == once_each(runs)


@on_virtual_time
async def test_requests_are_limited_to_twenty_a_second() -> None:
    world = await a_world()
    await failed_runs(world, 100)
    began = world.clock.monotonic()

    await BulkRequests(world.tables, world.clock, ANN).execute(await begin(world, world.tables))

    assert world.clock.monotonic() - began == pytest.approx(99 / 20, abs=0.2)


@on_virtual_time
async def test_a_preview_says_what_would_be_rejected_and_writes_nothing() -> None:
    world = await a_world()
    runs = await failed_runs(world, 2)
    active = run_key("2026-03-01")
    version = await version_of(world.tables, ORDERS)
    assert version is not None
    waiting = Run(key=active, run_id="w", config_hash=version.config_hash, created_at=NOON, since=NOON, timeout_at=NOON)
    await Runs(world.tables).save(waiting)
    position = await world.tables.last_position()

    forecasts = await BulkRequests(world.tables, world.clock, ANN).preview([*runs, active], RERUN)

    assert [each.is_accepted for each in forecasts] == [True, True, False]
    assert forecasts[2].forecast.sentence == "the run is waiting"
    assert await world.tables.last_position() == position


@on_virtual_time
async def test_runs_that_cannot_be_rerun_are_rejected_with_the_reason_and_do_not_stop_the_others() -> None:
    world = await a_world()
    good = await failed_runs(world, 1)
    unknown = RunKey(type(ORDERS)("elsewhere"), good[0].schedule, good[0].period)
    schedule = RunKey(ORDERS, type(good[0].schedule)("nightly"), good[0].period)
    selection = RunSelection(runs=[unknown, schedule, *good])
    operation = await start_bulk(world.tables, world.clock, ANN, RERUN, selection, command="c", bulk_id="b")

    results = await BulkRequests(world.tables, world.clock, ANN).execute(operation)

    assert [each.result for each in results] == [BulkResult.REJECTED, BulkResult.REJECTED, BulkResult.REQUESTED]
    assert "no pipeline elsewhere" in results[0].sentence
    assert "nightly" in results[1].sentence


@on_virtual_time
async def test_a_store_that_does_not_answer_leaves_an_operation_that_can_be_continued() -> None:
    world = await a_world()
    runs = await failed_runs(world, 3)
    operation = await begin(world, world.tables)

    class Silent(FaultyTables):
        async def commit(self, *writes: Write) -> None:
            raise RetryLater("the store does not answer")

    with pytest.raises(RetryLater):
        await BulkRequests(Silent(world.tables), world.clock, ANN).execute(operation)
    found = await BulkOperations(world.tables).load(operation.id)
    assert found is not None
    await BulkRequests(world.tables, world.clock, ANN).execute(found)

    assert await requested_by_run(world) == once_each(runs)
    done = await BulkOperations(world.tables).load(operation.id)
    assert done is not None
    assert done.finished_at is not None


@on_virtual_time
async def test_at_most_a_thousand_runs_are_selected_and_the_rest_is_reported() -> None:
    world = await a_world()
    await failed_runs(world, 1_001)
    now = world.clock.now()

    selection = await select_by_filter(world.tables, fixed_filter(FAILED, BulkAction.RERUN, now), now)

    assert len(selection.runs) == 1_000
    assert "only the first 1,000 runs" in selection.left_out
