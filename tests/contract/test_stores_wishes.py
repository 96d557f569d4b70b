"""Pauses and rehearsals as rows, on every backend."""

from dataclasses import replace
from datetime import UTC, date, timedelta

import pytest

from tests.contract.storevalues import NOW, a_pipeline, a_watch, run_key_of
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.pipeline import ScheduleId
from worker.core.run.state import DryRun, DryState, Pause
from worker.store.repos.dry_runs import DryRuns, save_write, saved
from worker.store.repos.marks import once_write
from worker.store.repos.pauses import Pauses, not_paused
from worker.store.repos.sensors import Sensors
from worker.store.repos.sla_watches import SlaWatches
from worker.store.rows import BadRow
from worker.store.shadow import ShadowTables
from worker.store.table import Put, Row, StaleWrite, TableName, Tables


async def test_a_pause_is_read_back_with_its_reason_and_its_end(tables: Tables) -> None:
    pauses, pipeline = Pauses(tables), a_pipeline()

    await pauses.put(pipeline, Pause("migration", NOW + timedelta(hours=1)))

    assert await pauses.load(pipeline) == Pause("migration", NOW + timedelta(hours=1))


async def test_a_pause_that_is_taken_back_is_gone(tables: Tables) -> None:
    pauses, pipeline = Pauses(tables), a_pipeline()
    await pauses.put(pipeline, Pause("migration"))

    await pauses.remove(pipeline)

    assert await pauses.load(pipeline) is None


@pytest.mark.parametrize("until", [None, NOW + timedelta(milliseconds=1)])
async def test_nothing_that_begins_is_committed_during_a_pause(tables: Tables, until: object) -> None:
    pipeline = a_pipeline()
    end = NOW + timedelta(milliseconds=1) if until else None
    await Pauses(tables).put(pipeline, Pause("migration", end))

    with pytest.raises(StaleWrite):
        await tables.commit(once_write(pipeline, "MARK#x", {}, NOW), not_paused(pipeline, NOW))


async def test_what_begins_is_committed_without_a_pause_and_after_one(tables: Tables) -> None:
    free, paused_before = a_pipeline(), a_pipeline()
    await Pauses(tables).put(paused_before, Pause("migration", NOW))

    for pipeline in (free, paused_before):
        await tables.commit(once_write(pipeline, "MARK#x", {}, NOW), not_paused(pipeline, NOW))


def a_rehearsal() -> DryRun:
    return DryRun(key=run_key_of(), config_hash="c1", since=NOW, window_ends_at=NOW + timedelta(hours=1))


async def test_a_rehearsal_is_read_back_as_it_was_saved(tables: Tables) -> None:
    run = replace(
        a_rehearsal(),
        state=DryState.WOULD_TRIGGER,
        started_on={"orders": "h1"},
        late_reported="h1",
        changed_inputs={"orders-eu": "h3", "orders-us": "h1"},
        post_run_seen={"out": "h2"},
        told_at={"out": NOW},
        handled=("r1",),
        reason="because",
    )

    await tables.commit(save_write(run))

    assert await DryRuns(tables).load(run.key) == saved(run)


async def test_a_rehearsal_changed_by_another_is_not_written_over(tables: Tables) -> None:
    run = a_rehearsal()
    await tables.commit(save_write(run))

    with pytest.raises(StaleWrite):
        await tables.commit(save_write(run))
    with pytest.raises(StaleWrite):
        await tables.commit(save_write(replace(run, version=7)))


@pytest.mark.parametrize("state", [DryState.WOULD_TRIGGER, DryState.EXHAUSTED])
@pytest.mark.parametrize(("period", "days"), [("2026-03-03", 7), ("2026-02-01", 7), ("2026-03-08T06", 12)])
async def test_a_rehearsal_that_is_over_is_kept_for_a_week_after_it_and_its_period(
    tables: Tables, state: DryState, period: str, days: int
) -> None:
    run = replace(a_rehearsal(), key=run_key_of(period=period), state=state)
    await tables.commit(save_write(run))

    [row] = (await tables.query(TableName.CONTROL, keys.pipeline_pk(run.key.pipeline))).rows

    last = max(NOW + timedelta(days=7), run.key.period.begins.replace(tzinfo=UTC) + timedelta(days=7))
    assert row["ttl"] == int(last.timestamp())
    assert (last - NOW).days <= days
    assert "ttl" not in await waiting_row(tables)


async def waiting_row(tables: Tables) -> Row:
    run = a_rehearsal()
    await tables.commit(save_write(run))
    [row] = (await tables.query(TableName.CONTROL, keys.pipeline_pk(run.key.pipeline))).rows
    return row


async def test_a_period_is_rehearsed_again_once_its_row_is_over_although_the_table_still_has_it(tables: Tables) -> None:
    old = replace(a_rehearsal(), state=DryState.WOULD_TRIGGER, since=NOW - timedelta(days=8))
    old = replace(old, key=run_key_of(period="2026-02-01"))
    await tables.commit(save_write(old))
    assert await DryRuns(tables).load(old.key) is None

    again = replace(old, state=DryState.EVALUATING, since=NOW)
    await tables.commit(save_write(again))

    assert await DryRuns(tables).load(old.key) == saved(again)
    with pytest.raises(StaleWrite):
        await tables.commit(save_write(again))


async def test_what_a_shadow_rehearsed_is_kept_as_long_as_it_can_be_compared(tables: Tables) -> None:
    shadow, run = ShadowTables(tables, ManualClock(NOW)), replace(a_rehearsal(), state=DryState.WOULD_TRIGGER)
    await shadow.commit(save_write(run))

    [row] = (await tables.query(TableName.CONTROL, keys.pipeline_pk(run.key.pipeline))).rows

    assert row["ttl"] == int((NOW + timedelta(days=90)).timestamp())


async def test_a_marker_of_the_reference_is_a_rehearsal_that_would_have_triggered(tables: Tables) -> None:
    key = run_key_of()
    row = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": keys.dry_run_sk(key),
        "data": {"triggeredAt": "2026-03-03T11:00:00Z"},
    }
    await tables.commit(Put(TableName.CONTROL, row))

    run = await DryRuns(tables).load(key)

    assert run is not None
    assert (run.state, run.since) == (DryState.WOULD_TRIGGER, NOW - timedelta(hours=1))
    await tables.commit(save_write(replace(run, late_reported="h1")))


async def test_a_marker_without_its_time_is_named_as_damaged(tables: Tables) -> None:
    key = run_key_of()
    row = {"PK": keys.pipeline_pk(key.pipeline), "SK": keys.dry_run_sk(key), "data": {"triggeredAt": "yesterday"}}
    await tables.commit(Put(TableName.CONTROL, row))

    with pytest.raises(BadRow, match="triggeredAt"):
        await DryRuns(tables).load(key)


async def test_only_rehearsals_that_wait_are_listed_as_waiting(tables: Tables) -> None:
    waiting = a_rehearsal()
    done = replace(waiting, key=run_key_of(waiting.key.pipeline, "2026-03-02"), state=DryState.WOULD_TRIGGER)
    for run in (waiting, done):
        await tables.commit(save_write(run))

    assert await DryRuns(tables).waiting(waiting.key.pipeline, ScheduleId("cron")) == [waiting.key]


async def test_watches_of_a_schedule_are_listed_latest_first_without_a_damaged_one(tables: Tables) -> None:
    watches, pipeline = SlaWatches(tables), a_pipeline()
    for day in ("2026-03-01", "2026-03-03"):
        await watches.save(a_watch(run_key_of(pipeline, day)))
    damaged = run_key_of(pipeline, "2026-03-02")
    await tables.commit(Put(TableName.CONTROL, {"PK": keys.pipeline_pk(pipeline), "SK": keys.sla_sk(damaged)}))

    found = await watches.of_schedule(pipeline, ScheduleId("cron"))

    assert [str(watch.key.period) for watch in found] == ["2026-03-03", "2026-03-01"]


async def test_sensors_of_some_days_are_found_in_both_spellings_and_no_others(tables: Tables) -> None:
    sensors, pipeline = Sensors(tables), a_pipeline()
    inside = ["orders#2026-03-02", "orders#2026-03-03T23", "orders#20260303"]
    for key in [*inside, "orders#2026-03-01", "orders#2026-03-04", "orders#20260304", "orders", "orders-x#2026-03-02"]:
        await sensors.put(pipeline, key, {"rows": 1})

    found = [sensor.key async for sensor in sensors.of_days(pipeline, "orders", date(2026, 3, 2), date(2026, 3, 3))]

    assert sorted(found) == sorted(inside)
