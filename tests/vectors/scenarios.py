"""How the scenarios are put to the router and engine: given rows, one record, and what came of it.

What the reference keeps in rows of its own kind is looked for where it is kept here: a lock that was taken is a run in
EVALUATING, a marker among the sensors is a mark. Rows that only we keep are left out of the comparison, and so are
lifetimes (`docs/retention.md`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import FakeStanding
from worker.app.components import build_engine
from worker.config.load import load_text
from worker.config.render import config_hash
from worker.core.errors import WorkerError
from worker.core.model import keys
from worker.core.model.keys import RowKind, SessionId
from worker.core.model.pipeline import JobType, PipelineId
from worker.core.run.state import Run, Spent, State
from worker.engine.intake.router import Router
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.run_rows import run_from_row, run_to_row
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, ChangeKind, Key, Put, TableName

Case: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]
Seen: TypeAlias = dict[tuple[TableName, Key], Row]

ME = SessionId("w1")
_NOT_COMPARED = {"PK", "SK", "ttl", "cid"}


def play(case: Case) -> object:
    """What the program did, in the words of the vector."""
    return run(_play(case))


def wanted(case: Case) -> Row:
    """What the vector expects, in terms of what is kept here."""
    then = case["then"]
    is_start = bool(then.get("executionsStarted")) and case["source"] == "sensor stream record"
    # There the event tells of the execution; here it tells of the job, once that is started.
    events = [type_ for type_ in then["events"] if not (is_start and type_ == "JOB_TRIGGERED")]
    details = [each for each in then["eventDetails"] if not (is_start and each["type"] == "JOB_TRIGGERED")]
    rows = [_expected_row(row) for row in then["rowsPut"]]
    return {
        "events": events,
        "details": [_expected_detail(each) for each in details],
        "rows": _sorted(rows),
        "begun": sorted(_begun(inputs) for inputs in then.get("executionInputs", {}).values()),
        "deleted": sorted(row["key"]["SK"] for row in then["rowsDeleted"]),
        "failed": bool(then.get("recordFailed")),
    }


# --- playing ----------------------------------------------------------------------------------------------------------


async def _play(case: Case) -> object:
    given, now = case["given"], datetime.fromisoformat(case["given"]["now"])
    clock = VirtualClock(now)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    await put_given(tables, given, now)
    async with asyncio.TaskGroup() as tasks:
        runners = dict.fromkeys(JobType, FakeRunner())
        began_at = now - timedelta(days=30)
        parts = build_engine(tables, runners, FakeStanding(ME, {ME: True}), clock, tasks, began_at=began_at)
        timers = tasks.create_task(parts.engine.run())
        change = await _put_record(tables, case["when"]["record"], now)
        before, told = await rows_of(tables), await tables.last_position()
        failed = await _handle(parts.router, change)
        if "dryRun: true" in (given.get("configYaml") or ""):
            # A dry run is over when its rules were evaluated; of a run, only the beginning is compared.
            await clock.sleep(2)
        seen = await seen_since(case, tables, before, told)
        timers.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    return {**seen, "failed": failed}


async def _handle(router: Router, change: Change) -> bool:
    try:
        await router.handle(change)
    except WorkerError:
        return True
    return False


async def put_given(tables: SqliteTables, given: Case, now: datetime) -> None:
    if config := given.get("configYaml"):
        loaded = load_text(config, lenient=True)
        name = loaded.pipeline.id if loaded.pipeline else PipelineId("p1")
        await Pipelines(tables).put(name, config)
        if loaded.pipeline:
            await Pipelines(tables).keep_version(name, config_hash(loaded.pipeline), config)
    for table, rows in (
        (TableName.CONTROL, given["controlRows"]),
        (TableName.JOBLOG, given["joblogRows"]),
        (TableName.RERUN, given["rerunRows"]),
    ):
        for row in rows:
            await tables.commit(Put(table, _given_row(row, given, now)))


def _given_row(row: Row, given: Case, now: datetime) -> Row:
    """A lock that is held stands for a run whose job is running."""
    named = keys.run_row_of(row["PK"], row["SK"])
    if named is None or named[0] is not RowKind.TRIGGER or row["status"] != "RUNNING":
        return row
    pipeline = load_text(given["configYaml"], lenient=True).pipeline
    assert pipeline is not None
    retries = sum(each["reason"] == "job-fail-retry" for each in given["rerunRows"])
    standing = Run(
        key=named[1],
        run_id="given",
        version=1,
        state=State.POLLING,
        attempt=1 + len(given["rerunRows"]),
        # One count there, two here: a failure counts against both, since nothing says which kind it was.
        spent=Spent(transient=retries, code=retries),
        config_hash=config_hash(pipeline),
        created_at=now - timedelta(hours=1),
        since=now - timedelta(hours=1),
        window_ends_at=now + timedelta(hours=1),
        timeout_at=datetime.fromtimestamp(row["ttl"], UTC),
        job={"id": "given"},
    )
    return dict(run_to_row(standing))


async def _put_record(tables: SqliteTables, record: Case, now: datetime) -> Change:
    table, key = TableName(record["table"]), Key(record["keys"]["PK"], record["keys"]["SK"])
    image = None
    if record["newImage"] is not None:
        image = {"PK": key.pk, "SK": key.sk, **record["newImage"]}
        await tables.commit(Put(table, image))
    kind = ChangeKind(record["eventName"])
    return Change(position=1, table=table, key=key, kind=kind, image=image, at=now)


# --- looking ----------------------------------------------------------------------------------------------------------


async def rows_of(tables: SqliteTables) -> Seen:
    """Every row as it is: the last image of each."""
    rows: Seen = {}
    for table in TableName:
        for change in await tables.changes(table, 0, limit=10_000):
            if change.image is None:
                rows.pop((table, change.key), None)
            else:
                rows[table, change.key] = dict(change.image)
    return rows


async def seen_since(case: Case, tables: SqliteTables, before: Seen, position: int) -> Row:
    after = await rows_of(tables)
    changed = {name: row for name, row in after.items() if before.get(name) != row}
    told = [dict(change.image or {}) for change in await tables.changes(TableName.EVENTS, position)]
    asked = {each["type"]: each for each in case["then"]["eventDetails"]}
    rows = [_row_seen(table, row, before.get((table, key))) for (table, key), row in changed.items()]
    return {
        "events": [event["eventType"] for event in told],
        "details": [_detail_seen(event, asked.get(event["eventType"], {})) for event in told],
        "rows": _sorted(row for row in [*rows, *_arrivals(case, changed)] if row is not None),
        "begun": sorted(str(run_from_row(row).key) for row in changed.values() if _is_begun(row)),
        "deleted": sorted(key.sk for table, key in before if (table, key) not in after),
    }


def _detail_seen(event: Row, asked: Case) -> Row:
    """Of the detail, what the vector names: ours may say more."""
    detail = event.get("detail", {})
    return {
        "type": event["eventType"],
        "scheduleId": event.get("scheduleId"),
        "date": event.get("date"),
        "detail": {name: detail.get(name) for name in asked.get("detail", {})},
    }


def _expected_detail(each: Case) -> Row:
    return {
        "type": each["type"],
        "scheduleId": each.get("scheduleId"),
        "date": each.get("date"),
        "detail": dict(each.get("detail", {})),
    }


def _row_seen(table: TableName, row: Row, before: Row | None) -> Row | None:
    sk = str(row["SK"])
    match table, sk.partition("#")[0]:
        case TableName.CONTROL, "TRIGGER":
            is_begun = row["state"] == State.EVALUATING and (before or {}).get("attempt") != row["attempt"]
            is_moved = is_begun or (before or {}).get("status") != row["status"]
            return _row(sk, {"status": row["status"]}) if is_moved else None
        case TableName.CONTROL, "RERUN_REQUEST":
            return _row(sk, {name: row[name] for name in ("reason", "requestedAt")})
        case TableName.CONTROL, "DRY_RUN":
            data = row.get("data")
            return None if data == (before or {}).get("data") else _row(sk, {"data": data})
        case TableName.CONTROL, "MARK" if sk.startswith("MARK#BASELINE#"):
            return _row(sk, {"data": row["data"]})
        case TableName.JOBLOG, _:
            return _row("#".join(sk.split("#")[:3]), {"event": row["event"]})
        case TableName.RERUN, _:
            about = {name: row[name] for name in ("reason", "sourceJobEvent") if name in row}
            return _row(sk, about)
        case _:
            return None


def _arrivals(case: Case, changed: Seen) -> list[Row]:
    """When a run's first signal came: on its mark where a deadline counts from it, else the run's own beginning."""
    expected = [row["key"]["SK"] for row in case["then"]["rowsPut"] if "first-sensor-arrival" in row["key"]["SK"]]
    found: list[Row] = []
    for sk in expected:
        for (_, key), row in changed.items():
            if key.sk.startswith("TRIGGER#") and key.sk.endswith(f"#{sk.rpartition('#')[2]}"):
                found.append(_row(sk, {"data": {"arrivedAt": row["createdAt"]}}))
    return found


def _expected_row(row: Case) -> Row:
    sk, attrs = row["key"]["SK"], {name: value for name, value in row["attrs"].items() if name not in _NOT_COMPARED}
    match row["table"], sk.partition("#")[0]:
        case "control", "SENSOR" if "postrun-baseline#" in sk:
            return _row(f"MARK#BASELINE#stream#{sk.rpartition('#')[2]}", attrs)
        case "joblog", _:
            return _row("#".join(sk.split("#")[:3]), {"event": attrs["event"]})
        case "rerun", _:
            return _row(sk, {name: attrs[name] for name in ("reason", "sourceJobEvent") if name in attrs})
        case _:
            return _row(sk, attrs)


def _row(key: str, attributes: Row) -> Row:
    return {"key": key, **attributes}


def _begun(inputs: Case) -> str:
    return f"{inputs['pipelineId']}/{inputs['scheduleId']}/{inputs['date']}"


def _is_begun(row: Row) -> bool:
    return str(row["SK"]).startswith(keys.TRIGGER) and row["state"] == State.EVALUATING


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)
