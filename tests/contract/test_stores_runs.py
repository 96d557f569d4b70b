"""Runs and SLA watches on every backend: one row, one winner, and the lists that find it."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from tests.contract.storevalues import NOW, a_period, a_run, a_watch, race, run_key_of
from tests.support.fakes.remote_store import DROP_BEFORE, FaultyTables, always
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.events import Event
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.model.pipeline import ScheduleId
from worker.core.run.state import AfterStop, ForeignRun, Run, Spent, State, Status
from worker.core.sla.state import Verdict
from worker.store.repos import events, job_log, marks, sla_watches
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.events import Events
from worker.store.repos.job_log import JobLine, JobLog
from worker.store.repos.runs import Runs, UnreadableRow, run_key, still_at
from worker.store.repos.sla_watches import SlaWatches
from worker.store.rows import BadRow
from worker.store.table import Put, Row, StaleWrite, TableName, Tables, Update, Value

DAY = NOW.date()


async def stored(tables: Tables, key: RunKey) -> Row:
    row = await tables.get(TableName.CONTROL, run_key(key))
    assert row is not None
    return row


async def active_rows(tables: Tables, key: RunKey, sk: str) -> list[ActiveRow]:
    number = keys.bucket(f"{keys.pipeline_pk(key.pipeline)}|{sk}", keys.ACTIVE_BUCKETS)
    return [row async for row in ActiveRows(tables).in_bucket(number) if row.key == key]


async def put_row(tables: Tables, key: RunKey, attributes: dict[str, Value]) -> None:
    at = run_key(key)
    await tables.commit(Put(TableName.CONTROL, {"PK": at.pk, "SK": at.sk, **attributes}))


async def test_a_run_is_read_back_as_it_was_written(tables: Tables) -> None:
    run = replace(
        a_run(state=State.STOPPING),
        attempt=3,
        spent=Spent(transient=1, code=2, drift=3, manual=4),
        window_ends_at=NOW + timedelta(microseconds=1),
        owner=SessionId("s1"),
        starter=SessionId("s2"),
        started_on={"orders-done": "ab12"},
        late_reported="cd34",
        handled=("r1", "r2"),
        job={"type": "glue", "runId": "jr_1", "tries": 2},
        after_stop=AfterStop.RETRY,
        reason="poll window over",
    )

    saved = await Runs(tables).save(run)

    assert saved == replace(run, version=1)
    assert await Runs(tables).load(run.key) == saved


async def test_there_is_no_run_before_it_is_created(tables: Tables) -> None:
    assert await Runs(tables).load(run_key_of()) is None


async def test_a_run_is_created_once(tables: Tables) -> None:
    run = a_run()
    await Runs(tables).save(run)

    with pytest.raises(StaleWrite):
        await Runs(tables).save(replace(run, run_id="another"))

    loaded = await Runs(tables).load(run.key)
    assert isinstance(loaded, Run)
    assert loaded.run_id == run.run_id


async def test_a_commit_based_on_an_old_version_is_refused_and_writes_nothing(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    polling = await Runs(tables).save(replace(run, state=State.POLLING))
    event = Event(id="e1", type="JOB_FAILED", at=NOW, pipeline=run.key.pipeline)

    with pytest.raises(StaleWrite) as refused:
        await Runs(tables).save(replace(run, state=State.FAILED_FINAL), events.event_write(event))

    assert refused.value.write.key == run_key(run.key)
    assert await Runs(tables).load(run.key) == polling
    assert await Events(tables).latest(run.key.pipeline) == []


async def test_of_ten_writers_of_one_version_exactly_one_wins_each_time(tables: Tables, backend: str) -> None:
    run = await Runs(tables).save(a_run())

    for _ in range(3):
        results = await race(backend, *(Runs(tables).save(replace(run, reason=f"writer {n}")) for n in range(10)))

        winners = [result for result in results if isinstance(result, Run)]
        assert len(winners) == 1
        assert sum(isinstance(result, StaleWrite) for result in results) == 9
        run = winners[0]
        assert await Runs(tables).load(run.key) == run
    assert run.version == 4


async def test_state_job_log_mark_watch_and_event_of_one_decision_are_one_commit(tables: Tables) -> None:
    run = await Runs(tables).save(a_run(state=State.POLLING))
    watch = await SlaWatches(tables).save(a_watch(run.key))
    event = Event(id="e1", type="JOB_COMPLETED", at=NOW, pipeline=run.key.pipeline)

    await Runs(tables).save(
        replace(run, state=State.COMPLETED),
        job_log.append_write(run.key, JobLine(id="j1", at=NOW, attempt=1, event="success")),
        events.event_write(event),
        sla_watches.save_write(replace(watch, verdict=Verdict.MET)),
        marks.once_write(run.key.pipeline, keys.baseline_mark_sk(run.key), {"count": 3}, NOW),
    )

    judged = await SlaWatches(tables).load(run.key)
    assert judged is not None
    assert judged.verdict is Verdict.MET
    assert [line.event async for line in JobLog(tables).list(run.key)] == ["success"]
    assert [told.event for told in await Events(tables).latest(run.key.pipeline)] == [event]


async def test_an_active_run_is_in_its_bucket_and_never_expires(tables: Tables) -> None:
    run = await Runs(tables).save(replace(a_run(state=State.POLLING), owner=SessionId("s1")))

    [found] = await active_rows(tables, run.key, keys.trigger_sk(run.key))

    assert (found.kind, found.owner, found.state) == (RowKind.TRIGGER, "s1", "POLLING")
    row = await stored(tables, run.key)
    assert row["status"] == "RUNNING"
    assert "ttl" not in row
    assert "listPk" not in row


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED_FINAL])
async def test_an_ended_run_is_in_the_list_of_its_day_and_expires_after_400_days(tables: Tables, state: State) -> None:
    run = await Runs(tables).save(a_run(state=State.POLLING))

    ended = await Runs(tables).save(replace(run, state=state, since=NOW))

    assert await active_rows(tables, run.key, keys.trigger_sk(run.key)) == []
    assert (await stored(tables, run.key))["ttl"] == int((NOW + timedelta(days=400)).timestamp())
    assert ended in (await Runs(tables).ended(ended.status, DAY, limit=1000)).runs
    assert ended not in (await Runs(tables).ended(ended.status, DAY - timedelta(days=1), limit=1000)).runs


async def test_the_runs_that_ended_in_a_stretch_of_time_are_found_over_midnight_and_no_others(tables: Tables) -> None:
    midnight = NOW.replace(hour=0, minute=0) + timedelta(days=1)
    ends = [midnight + timedelta(minutes=minutes) for minutes in (-11, -10, 0, 10, 11)]
    runs = [await Runs(tables).save(replace(a_run(state=State.COMPLETED), since=at)) for at in ends]

    span = (midnight - timedelta(minutes=10), midnight + timedelta(minutes=10))
    found = [run async for run in Runs(tables).ended_between(Status.COMPLETED, *span)]

    assert [run in found for run in runs] == [False, True, True, True, False]
    assert not [run async for run in Runs(tables).ended_between(Status.FAILED_FINAL, *span) if run in runs]


async def test_a_reopened_run_leaves_the_list_and_loses_its_expiry(tables: Tables) -> None:
    run = await Runs(tables).save(a_run(state=State.COMPLETED))

    again = await Runs(tables).save(replace(run, state=State.EVALUATING, attempt=2))

    row = await stored(tables, run.key)
    assert "ttl" not in row
    assert "listPk" not in row
    assert again not in (await Runs(tables).ended(Status.COMPLETED, DAY, limit=1000)).runs
    assert len(await active_rows(tables, run.key, keys.trigger_sk(run.key))) == 1


@pytest.mark.parametrize("limit", [1, 3, 5, 1000])
async def test_ended_runs_of_all_pipelines_are_listed_latest_first_and_a_cut_is_known(
    tables: Tables, limit: int
) -> None:
    day = date(2031, 5, 5)
    noon = NOW.replace(year=day.year, month=day.month, day=day.day)
    runs = [
        await Runs(tables).save(replace(a_run(state=State.FAILED_FINAL), since=noon + timedelta(seconds=number)))
        for number in range(5)
    ]

    found = await Runs(tables).ended(Status.FAILED_FINAL, day, limit=limit)

    # Backends keep their tables from test to test: only order and number are ours alone.
    ours = [run for run in found.runs if run in runs]
    assert len(found.runs) >= min(limit, 5)
    assert ours == [run for run in reversed(runs) if run in ours]
    assert not found.is_whole or len(ours) == 5


async def test_runs_of_a_schedule_are_listed_latest_period_first(tables: Tables) -> None:
    first = run_key_of(period="2026-03-03T09")
    days = [replace(first, period=period) for period in map(a_period, ["2026-03-03T10", "2026-03-04"])]
    for key in [first, *days]:
        await Runs(tables).save(replace(a_run(), key=key))
    await Runs(tables).save(replace(a_run(), key=replace(first, schedule=ScheduleId("cron2"))))

    listed = await Runs(tables).of_schedule(first.pipeline, first.schedule)

    assert [run.key for run in listed if isinstance(run, Run)] == [days[1], days[0], first]
    assert len(await Runs(tables).of_schedule(first.pipeline, first.schedule, limit=2)) == 2


async def test_an_ended_run_past_its_expiry_is_still_a_fact(tables: Tables) -> None:
    run = await Runs(tables).save(replace(a_run(state=State.COMPLETED), since=NOW - timedelta(days=500)))

    assert await Runs(tables).load(run.key) == run


async def test_only_the_last_sixteen_handled_requests_are_kept(tables: Tables) -> None:
    run = replace(a_run(), handled=tuple(f"r{number}" for number in range(20)))

    await Runs(tables).save(run)

    loaded = await Runs(tables).load(run.key)
    assert isinstance(loaded, Run)
    assert loaded.handled == tuple(f"r{number}" for number in range(4, 20))


async def test_a_commit_about_something_else_can_depend_on_the_run_being_as_it_was(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    watch = await SlaWatches(tables).save(a_watch(run.key))
    await Runs(tables).save(replace(run, state=State.COMPLETED))

    with pytest.raises(StaleWrite):
        await SlaWatches(tables).save(replace(watch, verdict=Verdict.BREACHED), still_at(run))

    assert await SlaWatches(tables).load(run.key) == watch


# --- rows of the reference --------------------------------------------------------------------------------------------


async def test_a_status_without_a_state_is_a_run_of_the_reference(tables: Tables) -> None:
    key = run_key_of()
    expires = NOW + timedelta(hours=4)
    await put_row(tables, key, {"status": "RUNNING", "ttl": int(expires.timestamp())})

    assert await Runs(tables).load(key) == ForeignRun(key=key, status="RUNNING", expires_at=expires)


async def test_a_run_of_the_reference_past_its_time_is_still_seen(tables: Tables) -> None:
    key = run_key_of()
    await put_row(tables, key, {"status": "RUNNING", "ttl": 1000})

    assert isinstance(await Runs(tables).load(key), ForeignRun)


async def test_a_new_run_does_not_overwrite_one_of_the_reference(tables: Tables) -> None:
    key = run_key_of()
    await put_row(tables, key, {"status": "COMPLETED"})

    with pytest.raises(StaleWrite):
        await Runs(tables).save(replace(a_run(), key=key))


@pytest.mark.parametrize("attributes", [{"status": "COMPLETED"}, {"status": "RUNNING", "ttl": 1000}])
async def test_a_run_of_the_reference_can_be_taken_over(tables: Tables, attributes: dict[str, Value]) -> None:
    key = run_key_of()
    await put_row(tables, key, attributes)
    foreign = await Runs(tables).load(key)
    assert isinstance(foreign, ForeignRun)

    ours = await Runs(tables).take_over(foreign, replace(a_run(), key=key))

    assert await Runs(tables).load(key) == ours
    assert "ttl" not in await stored(tables, key)


@pytest.mark.parametrize("change", [{"status": "COMPLETED"}, {"ttl": 5000}, {"state": "EVALUATING"}])
async def test_a_run_of_the_reference_that_changed_meanwhile_is_not_taken_over(
    tables: Tables, change: dict[str, Value]
) -> None:
    key = run_key_of()
    await put_row(tables, key, {"status": "RUNNING", "ttl": 1000})
    foreign = await Runs(tables).load(key)
    assert isinstance(foreign, ForeignRun)
    await tables.commit(Update(table=TableName.CONTROL, key=run_key(key), set=change))

    with pytest.raises(StaleWrite):
        await Runs(tables).take_over(foreign, replace(a_run(), key=key))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"state": "DANCING"}, "'state' must be one of EVALUATING.*not 'DANCING'"),
        ({"spent": {"transient": "many"}}, "'spent' must hold the four budget counters"),
        ({"attempt": "two"}, "'attempt' must be a whole number"),
        ({"timeoutAt": "soon"}, "'timeoutAt' must be a time"),
        ({"handled": [1]}, "'handled' must be a list of texts"),
        ({"startedOn": {"orders": 1}}, "'startedOn' must be a map of texts"),
        ({"runId": 7}, "'runId' must be text"),
    ],
)
async def test_a_damaged_run_is_named_when_loaded_and_hides_no_other_in_a_list(
    sqlite: Tables, damage: dict[str, Value], complaint: str
) -> None:
    run = await Runs(sqlite).save(a_run())
    broken = await Runs(sqlite).save(replace(a_run(), key=replace(run.key, period=a_period("2026-03-09"))))
    await sqlite.commit(Update(table=TableName.CONTROL, key=run_key(broken.key), set=damage))

    with pytest.raises(BadRow, match=f"2026-03-09.*{complaint}.*repair"):
        await Runs(sqlite).load(broken.key)

    damaged, intact = await Runs(sqlite).of_schedule(run.key.pipeline, run.key.schedule)
    assert isinstance(damaged, UnreadableRow)
    assert intact == run


# --- SLA watches ------------------------------------------------------------------------------------------------------


async def test_a_watch_is_read_back_as_it_was_armed(tables: Tables) -> None:
    watch = replace(a_watch(run_key_of()), warned_at=NOW, owner=SessionId("s1"), reason="late")

    armed = await SlaWatches(tables).save(watch)

    assert armed == replace(watch, version=1)
    assert await SlaWatches(tables).load(watch.key) == armed


async def test_a_watch_is_armed_once(tables: Tables) -> None:
    watch = a_watch(run_key_of())
    armed = await SlaWatches(tables).save(watch)

    with pytest.raises(StaleWrite):
        await SlaWatches(tables).save(replace(watch, breach_at=NOW))

    assert await SlaWatches(tables).load(watch.key) == armed


async def test_success_and_breach_at_once_give_one_verdict(tables: Tables, backend: str) -> None:
    watch = await SlaWatches(tables).save(a_watch(run_key_of()))

    results = await race(backend, *(SlaWatches(tables).save(replace(watch, verdict=verdict)) for verdict in Verdict))

    assert sum(isinstance(result, StaleWrite) for result in results) == len(Verdict) - 1


async def test_an_armed_watch_is_in_its_bucket_until_it_is_judged(tables: Tables) -> None:
    watch = await SlaWatches(tables).save(a_watch(run_key_of()))
    [found] = await active_rows(tables, watch.key, keys.sla_sk(watch.key))

    await SlaWatches(tables).save(replace(watch, verdict=Verdict.BREACHED))

    assert (found.kind, found.state) == (RowKind.SLA, "ARMED")
    assert await active_rows(tables, watch.key, keys.sla_sk(watch.key)) == []


async def test_the_watch_of_an_evaluation_is_due_at_its_time_until_all_of_it_is_judged(tables: Tables) -> None:
    at = NOW + timedelta(minutes=20)
    watch = await SlaWatches(tables).save(replace(a_watch(run_key_of()), evaluation_at=at, breach_at=None))
    [found] = await active_rows(tables, watch.key, keys.sla_sk(watch.key))
    read = await SlaWatches(tables).load(watch.key)
    judged = replace(
        watch, evaluation_verdict=Verdict.BREACHED, evaluation_judged_at=at, evaluation_reason="count is missing"
    )
    saved = await SlaWatches(tables).save(judged)

    assert read == watch
    assert found.due_at == at
    assert await SlaWatches(tables).load(watch.key) == saved
    assert await active_rows(tables, watch.key, keys.sla_sk(watch.key)) == []


async def test_a_store_that_does_not_answer_is_told_plainly_although_many_reads_failed_at_once(tables: Tables) -> None:
    unanswered = FaultyTables(tables, always(DROP_BEFORE), patience_s=0.01)

    with pytest.raises(RetryLater):
        await Runs(unanswered).ended(Status.COMPLETED, DAY)
