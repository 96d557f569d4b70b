"""Daily rollups: written once a day is closed, again when a run of it changes, and equal to the runs themselves."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from scheduler.watchdog.checks.rollups import RollupCheck
from tests.support.clock.manual import NOON, ManualClock
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Outcome, Run, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.statistics.views import View
from worker.core.time.periods import Period
from worker.operations.runs.run_filter import BadFilter, RunFilter
from worker.operations.runs.statistics import GROUPS_MAX, Dimension, RunStatistics, StatisticsPage
from worker.store.repos.run_rollups import RunRollups, stale_write
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Delete, Key, Page, Put, TableName, Write

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ALL = (Dimension.PIPELINE, Dimension.OWNER, Dimension.OUTCOME, Dimension.DAY, Dimension.HOUR)


def a_run(name: str, ended: datetime, *, failed: bool = False, took: timedelta = 10 * MINUTE) -> Run:
    period = Period.parse("2026-02-01")
    assert period is not None
    return Run(
        key=RunKey(PipelineId(name), ScheduleId("cron"), period),
        run_id=name,
        state=State.FAILED_FINAL if failed else State.COMPLETED,
        outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED,
        config_hash="c1",
        created_at=ended - took,
        started_at=ended - took,
        since=ended,
        timeout_at=ended,
        pipeline_owner="commerce" if name < "m" else "finance",
    )


async def a_store() -> tuple[SqliteTables, ManualClock]:
    clock = ManualClock()
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    return tables, clock


async def look(tables: SqliteTables, clock: ManualClock, check: RollupCheck | None = None) -> int:
    findings = await (check or RollupCheck(tables)).due(clock.now())
    for finding in findings:
        await finding.act()
    return len(findings)


async def look_until_done(tables: SqliteTables, clock: ManualClock) -> None:
    """Look once an hour, for as long as it takes to reach the earliest run of the history."""
    check = RollupCheck(tables)
    for hours in range(9):
        for finding in await check.due(clock.now() + hours * HOUR):
            await finding.act()


async def stats(tables: SqliteTables, clock: ManualClock, since: str = "30d") -> StatisticsPage:
    return await RunStatistics(tables).of(RunFilter(since=since), clock.now(), ALL)


async def history(tables: SqliteTables) -> list[Run]:
    runs = [
        a_run(f"{letter}{number}", NOON - number * 5 * HOUR, failed=number % 3 == 0, took=number * MINUTE)
        for letter in ("a", "z")
        for number in range(1, 30)
    ]
    for run in runs:
        await Runs(tables).save(run)
        verdict = Verdict.MET if run.outcome is Outcome.SUCCEEDED else Verdict.BREACHED
        watch = SlaWatch(
            key=run.key, config_hash="c1", since=run.since, warning_at=None, breach_at=run.since, verdict=verdict
        )
        await SlaWatches(tables).save(watch)
    return runs


async def test_statistics_from_rollups_equal_those_from_the_lists() -> None:
    tables, clock = await a_store()
    runs = await history(tables)
    from_lists = await stats(tables, clock)

    await look_until_done(tables, clock)
    from_rollups = await stats(tables, clock)

    assert from_lists.is_complete
    assert from_rollups.is_complete
    assert list(from_rollups.records) == list(from_lists.records)
    assert from_rollups.total == from_lists.total
    assert from_lists.total.runs == len(runs)
    assert from_lists.total.failed == sum(run.outcome is Outcome.FAILED for run in runs)
    assert from_lists.total.deadlines_met == from_lists.total.completed
    assert from_rollups.rollup_rows <= 16 * 30
    assert from_rollups.listed_rows < from_lists.listed_rows


async def test_percentiles_are_exact_to_ten_percent() -> None:
    tables, clock = await a_store()
    for number in range(1, 101):
        await Runs(tables).save(a_run(f"p{number:03d}", NOON - HOUR, took=timedelta(seconds=number * 10)))

    total = (await stats(tables, clock)).total

    assert total.duration_p50 is not None
    assert total.duration_p90 is not None
    assert 450 <= _seconds(total.duration_p50) <= 550
    assert 810 <= _seconds(total.duration_p90) <= 990


def _seconds(text: str) -> float:
    from worker.core.time.durations import parse_duration

    found = parse_duration(text)
    assert found is not None
    return found.total_seconds()


async def test_a_day_is_rolled_up_once_and_only_after_it_is_closed() -> None:
    tables, clock = await a_store()
    clock.advance(11 * HOUR + 30 * MINUTE)  # 23:30
    check = RollupCheck(tables)
    await Runs(tables).save(a_run("late", clock.now() + 29 * MINUTE))
    await look(tables, clock, check)
    before = await RunRollups(tables).progress()

    clock.advance(40 * MINUTE)  # 00:10
    await look(tables, clock, RollupCheck(tables))
    too_early = await RunRollups(tables).progress()
    clock.advance(6 * MINUTE)
    await look(tables, clock, RollupCheck(tables))
    after = await RunRollups(tables).progress()

    assert before is not None
    assert too_early is not None
    assert after is not None
    assert (before.last, too_early.last, after.last) == (date(2026, 3, 2), date(2026, 3, 2), date(2026, 3, 3))
    [cells] = await RunRollups(tables).of_day(date(2026, 3, 3)) or []
    assert [(cell.pipeline, cell.hour, tally.runs) for cell, tally in cells.items()] == [("late", 23, 1)]


async def test_a_run_that_leaves_its_day_is_counted_no_more() -> None:
    tables, clock = await a_store()
    runs = await history(tables)
    await look_until_done(tables, clock)
    moved = next(run for run in runs if run.since.date() == (NOON - 2 * DAY).date())
    loaded = await Runs(tables).load(moved.key)
    assert isinstance(loaded, Run)

    stale = stale_write(moved.key, moved.since, "t1", clock.now())
    assert stale is not None
    await tables.commit(Delete(TableName.CONTROL, run_key(moved.key)), stale)
    clock.advance(16 * MINUTE)
    await look(tables, clock)

    assert (await stats(tables, clock)).total.runs == len(runs) - 1
    assert await RunRollups(tables).stale(10) == []


async def test_a_change_while_a_rollup_is_written_again_is_not_lost() -> None:
    tables, clock = await a_store()
    await history(tables)
    await look_until_done(tables, clock)
    key, ended = a_run("a9", NOON).key, NOON - 9 * 5 * HOUR
    first, second = (stale_write(key, ended, token, clock.now()) for token in ("t1", "t2"))
    assert first is not None
    assert second is not None
    await tables.commit(first)
    [seen] = await RunRollups(tables).stale(10)
    await tables.commit(second)

    await RunRollups(tables).settle(seen)

    assert [each.token for each in await RunRollups(tables).stale(10)] == ["t2"]


class FailingTables(SqliteTables):
    """Fails the commit with this number, as a crash at that point would."""

    commits_left: int | None = None

    async def commit(self, *writes: Write) -> None:
        if self.commits_left is not None:
            self.commits_left -= 1
            if self.commits_left < 0:
                raise RetryLater("killed")
        await super().commit(*writes)


async def test_a_crash_at_any_point_of_a_rollup_leaves_a_next_look_that_completes_it() -> None:
    for point in range(10):
        clock = ManualClock()
        tables = FailingTables.in_memory(clock)
        assert isinstance(tables, FailingTables)
        await tables.start()
        await history(tables)
        expected = (await stats(tables, clock)).total
        tables.commits_left = point
        with pytest.raises(RetryLater):
            await look_until_done(tables, clock)
        tables.commits_left = None

        await look_until_done(tables, clock)

        assert (await stats(tables, clock)).total == expected


async def test_statistics_say_when_a_day_has_too_many_runs_to_list() -> None:
    tables, clock = await a_store()
    await history(tables)

    page = await RunStatistics(tables, listed_rows_max=20).of(RunFilter(since="30d"), clock.now())

    assert not page.is_complete


async def test_statistics_reject_what_rollups_do_not_know() -> None:
    tables, clock = await a_store()

    with pytest.raises(BadFilter, match="error or deadline"):
        await RunStatistics(tables).of(RunFilter(error="timeout"), clock.now())


async def save_all(tables: SqliteTables, runs: list[Run]) -> None:
    for run in runs:
        await Runs(tables).save(run)


class CountedTables(SqliteTables):
    """Counts the rows that queries return."""

    rows = 0

    async def query(self, *args: object, **kwargs: object) -> Page:
        page = await super().query(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        self.rows += len(page.rows)
        return page


@pytest.mark.parametrize("runs_a_day", [2, 60])
async def test_closed_days_cost_a_row_each_however_many_runs_they_had(runs_a_day: int) -> None:
    clock = ManualClock()
    tables = CountedTables.in_memory(clock)
    assert isinstance(tables, CountedTables)
    await tables.start()
    days = range(1, 9)
    await save_all(
        tables,
        [a_run(f"p{day}-{number}", NOON - day * DAY) for day in days for number in range(runs_a_day)],
    )
    await look_until_done(tables, clock)
    tables.rows = 0

    page = await RunStatistics(tables).of(RunFilter(since="8d"), clock.now())

    assert page.total.runs == len(days) * runs_a_day
    assert (page.rollup_rows, tables.rows) == (8, 8)


BY = [(), (Dimension.HOUR,), (Dimension.OWNER,), (Dimension.OWNER, Dimension.HOUR), (Dimension.PIPELINE,), ALL]


@pytest.mark.parametrize("by", BY, ids=str)
@pytest.mark.parametrize("owner", ["", "finance"])
@pytest.mark.parametrize("pipeline", ["", "a*"])
async def test_every_view_gives_what_the_lists_give(by: tuple[Dimension, ...], owner: str, pipeline: str) -> None:
    tables, clock = await a_store()
    await history(tables)
    wanted = RunFilter(since="5d", until="7h", owner=owner, pipeline=pipeline)
    from_lists = await RunStatistics(tables).of(wanted, clock.now(), by)

    await look_until_done(tables, clock)
    found = await RunStatistics(tables).of(wanted, clock.now(), by)

    assert found.rollup_rows > 0
    assert (list(found.records), found.total) == (list(from_lists.records), from_lists.total)


@pytest.mark.parametrize("damage", ["lost views", "damaged views", "damaged rollup"])
async def test_statistics_survive_lost_and_damaged_sums(damage: str) -> None:
    tables, clock = await a_store()
    await history(tables)
    await look_until_done(tables, clock)
    expected = await stats(tables, clock)
    for number in range(8):
        day = (NOON - number * DAY).date()
        for view in View:
            row = {"PK": keys.rollup_view_pk(view), "SK": day.isoformat(), "cells": b"no cells"}
            key = Key(keys.rollup_view_pk(view), day.isoformat())
            await tables.commit(
                Delete(TableName.CONTROL, key) if damage == "lost views" else Put(TableName.CONTROL, row)
            )
        if damage == "damaged rollup":
            row = {"PK": keys.rollup_pk(day), "SK": keys.rollup_sk(0), "cells": b"no cells"}
            await tables.commit(Put(TableName.CONTROL, row))

    page = await stats(tables, clock)

    assert (list(page.records), page.total) == (list(expected.records), expected.total)


async def test_groups_beyond_the_bound_are_summed_up_as_one() -> None:
    tables, clock = await a_store()
    names = [f"p{number:04d}" for number in range(GROUPS_MAX + 5)]
    rows = [run_to_row(a_run(name, NOON - HOUR)) for name in names]
    for some in range(0, len(rows), 100):
        await tables.commit(*(Put(TableName.CONTROL, row) for row in rows[some : some + 100]))
    second = replace(a_run(names[-1], NOON - HOUR), key=replace(a_run(names[-1], NOON).key, schedule=ScheduleId("b")))
    await Runs(tables).save(second)

    page = await RunStatistics(tables).of(RunFilter(), clock.now(), (Dimension.PIPELINE,))

    assert len(page.records) == GROUPS_MAX
    assert page.records[-1].group == {"pipeline": "*"}
    assert (page.records[-1].runs, page.others) == (6, 6)
    assert names[-1] in {record.group["pipeline"] for record in page.records}  # it has the most runs
    assert sum(record.runs for record in page.records) == page.total.runs == len(names) + 1
    assert page.is_counted
    assert not page.is_complete


async def test_a_process_that_keeps_statistics_lists_the_current_day_once_in_a_while() -> None:
    tables, clock = await a_store()
    kept = RunStatistics(tables, kept=timedelta(seconds=5))
    await Runs(tables).save(a_run("a", NOON))
    first = await kept.of(RunFilter(since="1h"), clock.now())
    await Runs(tables).save(a_run("b", NOON))

    clock.advance(timedelta(seconds=4))
    second = await kept.of(RunFilter(since="1h"), clock.now())
    clock.advance(timedelta(seconds=1))
    third = await kept.of(RunFilter(since="1h"), clock.now())

    assert (first.total.runs, second.total.runs, third.total.runs) == (1, 1, 2)
    assert second.listed_rows == 0


async def test_hours_of_utc_bound_the_window() -> None:
    tables, clock = await a_store()
    await history(tables)

    page = await stats(tables, clock, since="24h")

    assert (page.start, page.end.tzinfo) == (NOON - DAY, UTC)
    assert page.total.runs == 2 * len([number for number in range(1, 30) if number * 5 <= 24])
