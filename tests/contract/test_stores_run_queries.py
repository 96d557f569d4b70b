"""Queries of runs on every backend: the lists follow every change of a run, and pages read no more than they say."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from tests.contract.storevalues import NOW, a_name, a_run, a_watch, run_key_of
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import EarlierAttempt, FailureCategory, Outcome, Run, State
from worker.core.sla.state import Verdict
from worker.core.statistics.rollup import NO_HOUR, Cell, RunTally
from worker.core.statistics.views import View
from worker.operations.runs.active_search import BUCKET_ROWS
from worker.operations.runs.cursors import BadCursor, write_cursor
from worker.operations.runs.run_detail import RunDetails
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import EXAMINED_MAX, RunQueries
from worker.store.repos import run_data
from worker.store.repos.run_data import RunData
from worker.store.repos.run_rollups import RollupProgress, RunRollups, stale_write
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import ACTIVE, Delete, Put, TableName, Tables

HOUR = timedelta(hours=1)


@pytest.fixture
def team() -> str:
    """Backends may keep their tables from one test to the next; a test finds its own runs by their owner."""
    return a_name()


async def states_found(tables: Tables, team: str) -> list[str]:
    wanted = RunFilter(owner=team, since="90m")
    queries, cursor, found = RunQueries(tables), None, list[str]()
    while True:
        page = await queries.page(wanted, NOW + HOUR, cursor=cursor)
        found += [record.status for record in page.records]
        cursor = page.next
        if cursor is None:
            return found


async def test_the_lists_follow_every_transition_of_a_run(tables: Tables, team: str) -> None:
    run = await Runs(tables).save(replace(a_run(), pipeline_owner=team))
    seen = await states_found(tables, team)
    for state, outcome in (
        (State.POLLING, None),
        (State.FAILED_FINAL, Outcome.FAILED),
        (State.EVALUATING, None),
        (State.COMPLETED, Outcome.SUCCEEDED),
        (State.FAILED_FINAL, Outcome.CANCELLED),
    ):
        run = await Runs(tables).save(replace(run, state=state, outcome=outcome))
        seen += await states_found(tables, team)
    await tables.commit(Delete(TableName.CONTROL, run_key(run.key)))

    assert seen == ["waiting", "running", "failed", "waiting", "completed", "cancelled"]
    assert await states_found(tables, team) == []


async def test_more_active_runs_than_can_be_sorted_are_found_once_each(tables: Tables, team: str, backend: str) -> None:
    if backend.startswith("dynamodb"):
        pytest.skip("it takes thousands of rows to fill the buckets; the other backends show it")
    count = BUCKET_ROWS * keys.ACTIVE_BUCKETS + 100
    pipelines = [PipelineId(f"p-{team}-{number}") for number in range(count)]
    runs = [replace(a_run(), key=run_key_of(pipeline), pipeline_owner=team) for pipeline in pipelines]
    for run in runs:
        await Runs(tables).save(run)

    found, cursor, pages = list[str](), None, 0
    while True:
        page = await RunQueries(tables).page(RunFilter(owner=team), NOW + HOUR, limit=300, cursor=cursor)
        found += [record.pipeline for record in page.records]
        cursor, pages = page.next, pages + 1
        assert page.examined <= EXAMINED_MAX
        if cursor is None or pages > 500:
            break

    assert sorted(found) == sorted(pipelines)


async def test_an_expired_row_without_index_is_not_listed_and_an_ended_run_is(
    tables: Tables, team: str, clock: ManualClock
) -> None:
    """The row of a run stays visible past its lifetime: Interlock must decide about it."""
    ended = replace(a_run(State.COMPLETED), outcome=Outcome.SUCCEEDED, pipeline_owner=team)
    await Runs(tables).save(ended)
    clock.advance(timedelta(days=401))

    wanted = RunFilter(owner=team, statuses=("ended",), since="2026-03-01", until="2026-03-05")
    page = await RunQueries(tables).page(wanted, NOW + timedelta(days=390))

    assert [record.status for record in page.records] == ["completed"]


async def test_all_that_is_only_for_people_is_read_back_as_it_was_written(tables: Tables) -> None:
    attempt = EarlierAttempt(
        number=1,
        job_type="glue",
        job="jr_1",
        url="https://example.com/jr_1",
        started_at=NOW - 2 * HOUR,
        ended_at=NOW - HOUR,
        outcome="failed",
        category=FailureCategory.TIMEOUT,
        reason="too long",
    )
    run = replace(
        a_run(State.FAILED_FINAL),
        attempt=2,
        attempts=(attempt, replace(attempt, number=2, started_at=None, category=None, url="")),
        started_at=NOW - HOUR,
        job_type="glue",
        origin="cron",
        pipeline_owner="commerce",
        category=FailureCategory.PERMANENT,
        outcome=Outcome.FAILED,
    )

    saved = await Runs(tables).save(run)

    assert await Runs(tables).load(run.key) == saved


async def test_damage_to_what_is_only_for_people_does_not_hide_a_run(tables: Tables) -> None:
    run = await Runs(tables).save(a_run(State.POLLING))
    row = await tables.get(TableName.CONTROL, run_key(run.key))
    assert row is not None
    damage = {"attempts": [{"attempt": "x"}, 7], "startedAt": 12, "category": "WRONG", "origin": 3}

    await tables.commit(Put(TableName.CONTROL, {**row, **damage}))

    loaded = await Runs(tables).load(run.key)
    assert isinstance(loaded, Run)
    assert (loaded.attempts, loaded.started_at, loaded.category, loaded.origin) == ((), None, None, "")


async def test_inputs_and_outputs_of_a_run_are_part_of_its_commit_and_expire(
    tables: Tables, clock: ManualClock
) -> None:
    run = await Runs(tables).save(a_run())
    deep = {"a": {"b": [1, {"c": "x" * 100}]}, "n": 0.1}
    inputs = JobInputs(attempt=1, inputs={"orders": JobInput(content_hash="h1", data=deep)}, left_out=2)
    outputs = JobOutputs(attempt=1, outputs={"result": {"rows": 3}})

    await Runs(tables).save(
        replace(run, state=State.TRIGGERING),
        run_data.inputs_write(run.key, inputs, NOW),
        run_data.outputs_write(run.key, outputs, NOW),
    )

    assert await RunData(tables).inputs([run.key]) == {run.key: inputs}
    assert await RunData(tables).outputs([run.key, run_key_of()]) == {run.key: outputs}
    clock.advance(timedelta(days=401))
    assert await RunData(tables).inputs([run.key]) == {}
    details = await RunDetails(tables).record(run.key, NOW)
    assert details is not None
    assert details.inputs is None


async def test_a_deadline_filters_runs(tables: Tables, team: str) -> None:
    for verdict in (Verdict.MET, Verdict.BREACHED, None):
        run = await Runs(tables).save(replace(a_run(State.COMPLETED), pipeline_owner=team, reason=str(verdict)))
        await SlaWatches(tables).save(replace(a_watch(run.key), verdict=verdict))

    page = await RunQueries(tables).page(RunFilter(owner=team, deadline="breached", since="1d"), NOW + HOUR)

    assert [record.deadline.verdict for record in page.records if record.deadline] == ["breached"]


async def test_a_forged_cursor_is_rejected_or_only_begins_elsewhere(tables: Tables, team: str) -> None:
    wanted = RunFilter(owner=team, since="1d")
    window = {"start": "2026-03-02T12:00:00Z", "end": "2026-03-03T12:05:00Z"}
    queries = RunQueries(tables)

    for forged in ("", "x", "!!!", "a" * 5_000, write_cursor("another filter", {"before": "0"})):
        if forged:
            with pytest.raises(BadCursor):
                await queries.page(wanted, NOW, cursor=forged)
    with pytest.raises(BadCursor):
        await queries.page(wanted, NOW, cursor=write_cursor(wanted.canonical, {"before": "0"}))
    # Who knows how a cursor is made can begin anywhere, and breaks nothing.
    made_up: list[dict[str, Json]] = [
        {"before": "zzz"},
        {"bucket": 99},
        {"bucket": -1, "from": ""},
        {"since": 3, "name": True},
    ]
    for position in made_up:
        page = await queries.page(wanted, NOW, cursor=write_cursor(wanted.canonical, {**position, **window}))
        assert page.records == []


async def test_views_of_a_range_of_days_are_read_back(tables: Tables) -> None:
    first, rollups = date(2031, 1, 30), RunRollups(tables)  # days of which no other test has views
    tally = RunTally(runs=2, deadlines=1, met=1, durations={70: 2})
    cells = [{Cell("orders", owner, 7, "completed", "succeeded"): tally} for owner in ("a", "b")]
    for number in (0, 1, 3):
        await rollups.save_views(first + timedelta(days=number), cells, NOW)

    totals = await rollups.views(View.TOTALS, first + timedelta(days=1), first + timedelta(days=4))
    owners = await rollups.views(View.OWNERS, first, first)

    both = RunTally(runs=4, deadlines=2, met=2, durations={70: 4})
    assert totals == {
        first + timedelta(days=number): {Cell("", "", NO_HOUR, "completed", "succeeded"): both} for number in (1, 3)
    }
    assert owners == {
        first: {Cell("", owner, NO_HOUR, "completed", "succeeded"): tally for owner in ("a", "b")},
    }


async def test_rollups_are_read_back_and_their_progress_has_one_writer(tables: Tables) -> None:
    day, rollups = (NOW - timedelta(days=1)).date(), RunRollups(tables)
    cell = Cell(pipeline=a_name(), owner="o", hour=23, status="failed", outcome="failed")
    tally = RunTally()
    tally.add(duration=timedelta(minutes=5), is_met=False)

    await rollups.save(day, 3, {cell: tally}, NOW)
    seen = await rollups.progress()
    first = await rollups.advance(seen, RollupProgress(day, day))
    second = await rollups.advance(seen, RollupProgress(day, day + timedelta(days=1)))
    stale = stale_write(run_key_of(), NOW - timedelta(days=1), a_name(), NOW)
    assert stale is not None
    await tables.commit(stale)

    assert {cell: tally} in (await rollups.of_day(day) or [])
    assert (first, second) == (True, False)
    assert stale.row["token"] in [each.token for each in await rollups.stale(100)]


async def test_the_index_of_active_rows_has_what_a_search_needs(tables: Tables) -> None:
    run = await Runs(tables).save(a_run(State.POLLING))
    key = run_key(run.key)

    page = await tables.query(TableName.CONTROL, keys.active_bucket_of(key.pk, key.sk), index=ACTIVE)

    [row] = [row for row in page.rows if row["PK"] == keys.pipeline_pk(run.key.pipeline)]
    assert (row["state"], row["since"]) == ("POLLING", "2026-03-03T12:00:00Z")
