"""How the watchdog's vectors are put to the real checks: given rows, one pass, and what came of it.

A scenario gets a whole watchdog. A case of `schedule.json` gets the one check it is about and a ledger that begins
where the reference would look. Patience is none in both, because the reference has none.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scheduler.watchdog.alerts import Alerts
from scheduler.watchdog.check import Look
from scheduler.watchdog.checks.deadlines import DeadlineChecks
from scheduler.watchdog.checks.missed_starts import BeginChecks
from scheduler.watchdog.checks.table import Watched, make_watchdog
from scheduler.watchdog.due import DueWork
from scheduler.watchdog.expectations import Expectations
from scheduler.watchdog.expectations_loader import OURSELVES
from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import FakeStanding
from tests.vectors.scenarios import ME, Case, put_given, rows_of, seen_since, wanted
from worker.app.components import EngineComponents, build_engine
from worker.cli.commands.watchdog import LeftToWorkers
from worker.config.load import load_text
from worker.config.render import config_hash
from worker.core.model import keys
from worker.core.model.events import JobEvent
from worker.core.model.keys import RowKind
from worker.core.model.pipeline import JobType, PipelineId, ScheduleId
from worker.core.run.state import Run, State
from worker.core.schedule.checkpoints import GracePeriods, Since
from worker.core.time.timestamps import format_rfc3339
from worker.engine.root_causes import RootCauses
from worker.engine.upstreams import UpstreamReader
from worker.jobs.runner import Running
from worker.store.repos.marks import Marks
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Put, TableName

AT_ONCE = GracePeriods(begin=timedelta(), signal=timedelta())
_SETTLED_S = 2.0  # time for a job to be stopped, and too short for any interval
_STATES = {"RUNNING": State.POLLING, "COMPLETED": State.COMPLETED, "FAILED_FINAL": State.FAILED_FINAL}


@dataclass
class Stage:
    tables: SqliteTables
    parts: EngineComponents
    clock: VirtualClock


@asynccontextmanager
async def a_stage(now: datetime, *, goes_on: bool = False) -> AsyncGenerator[Stage]:
    """`goes_on`: what is decided is acted on; else only the decisions are looked at."""
    clock = VirtualClock(now)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    async with asyncio.TaskGroup() as tasks:
        runner = FakeRunner(hangs=None, jobs={"given": Running()})
        standing, acting = FakeStanding(ME, {ME: True}), tasks if goes_on else LeftToWorkers()
        began_at = now - timedelta(days=30)
        parts = build_engine(tables, dict.fromkeys(JobType, runner), standing, clock, acting, began_at=began_at)
        yield Stage(tables, parts, clock)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


# --- scenarios.json ---------------------------------------------------------------------------------------------------


def play_watchdog(case: Case) -> object:
    return run(_play(case))


def wanted_of_watchdog(case: Case) -> object:
    """What the reference remembers among the sensors is a mark here, and a timer is a watch."""
    then = case["then"]
    rows = [row for row in then["rowsPut"] if "-check#" not in row["key"]["SK"]]
    accepted = wanted({**case, "then": {**then, "rowsPut": rows}})
    del accepted["failed"]
    return {**accepted, "timers": sorted(_timer(each) for each in then.get("schedulesCreated", ()))}


def _timer(timer: Case) -> tuple[str, str]:
    return timer["name"], timer["at"]


async def _play(case: Case) -> object:
    given, now = case["given"], datetime.fromisoformat(case["given"]["now"])
    name = case["when"]["watchdogCheck"]
    async with a_stage(now, goes_on=name == "stale-triggers") as stage:
        await _put_given(stage.tables, given, now)
        since = _since(given, now, name)
        ledger = keys.watchdog_mark_sk("ledger")
        await Marks(stage.tables).put_once(OURSELVES, ledger, {"upTo": format_rfc3339(since)}, now)
        before, position = await rows_of(stage.tables), await stage.tables.last_position()
        watched = Watched(patience=AT_ONCE, late=timedelta())
        watchdog = make_watchdog(
            stage.tables,
            stage.parts.engine,
            stage.clock,
            watched,
            configs=stage.parts.configs,
            watches=stage.parts.watches,
            resync=stage.parts.resync,
            may_act=lambda: True,
        )
        only = () if name == "all" else ("expected-runs", name)
        # Twice, because that must make no difference: that is what the reference's marks are for.
        for _ in range(2):
            reports = await watchdog.pass_over(now, only=only)
            assert [report.problems for report in reports if report.problems] == []
            if name == "stale-triggers":
                await stage.clock.sleep(_SETTLED_S)
        seen = await seen_since(case, stage.tables, before, position)
        seen["rows"] = [row for row in seen["rows"] if row.get("event") != JobEvent.RUN_TIMEOUT]  # only we log it
        return {**seen, "timers": await _timers(stage.tables)}


def _since(given: Case, now: datetime, check: str) -> datetime:
    """From when on the reference looks: the last dates, this hour, or today."""
    if check == "missed-inclusion-schedules":
        return now - timedelta(days=3)
    if check == "sla-scheduling":
        return now - timedelta(hours=1)
    started = given.get("startedAt")
    today = now.replace(hour=0, minute=0) - timedelta.resolution
    return max(datetime.fromisoformat(started), today) if started else today


async def _timers(tables: SqliteTables) -> list[tuple[str, str]]:
    """The watches that wait, as the pairs of timers they stand for."""
    rows = [row for (_, key), row in (await rows_of(tables)).items() if key.sk.startswith(keys.SLA)]
    found: list[tuple[str, str]] = []
    for row in rows:
        named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
        watch = await SlaWatches(tables).load(named[1]) if named else None
        if watch is None or watch.verdict is not None or watch.arrived_at is not None:
            continue
        if watch.warning_at is None or watch.breach_at is None:
            continue
        name = f"{watch.key.pipeline}-{watch.key.schedule}-{watch.key.period}"
        found.append((f"{name}-sla-warning", format_rfc3339(watch.warning_at)))
        found.append((f"{name}-sla-breach", format_rfc3339(watch.breach_at)))
    return sorted(found)


async def _put_given(tables: SqliteTables, given: Case, now: datetime) -> None:
    """As for the other scenarios, but every row of a run becomes one of ours, also those that have ended.

    A pipeline in dry run never makes such a row, so one that it has is another system's, and stays as it is.
    """
    is_dry = "dryRun: true" in given["configYaml"]
    runs = [row for row in given["controlRows"] if row["SK"].startswith(keys.TRIGGER) and not is_dry]
    others = [row for row in given["controlRows"] if row not in runs and not row["SK"].startswith(keys.TRIGGER)]
    await put_given(tables, {**given, "controlRows": others}, now)
    for row in given["controlRows"]:
        if row in runs:
            await _put_run(tables, row, given, now)
        elif row not in others:
            await tables.commit(Put(TableName.CONTROL, row))


async def _put_run(tables: SqliteTables, row: Case, given: Case, now: datetime) -> None:
    named = keys.run_row_of(row["PK"], row["SK"])
    assert named is not None
    assert named[0] is RowKind.TRIGGER
    text = given["configYaml"].replace("id: p1", f"id: {named[1].pipeline}")
    pipeline = load_text(text, lenient=True).pipeline
    assert pipeline is not None
    await Pipelines(tables).keep_version(pipeline.id, config_hash(pipeline), text)
    ended_at = max((_stamp(log) for log in given["joblogRows"] if log["event"] == "success"), default=None)
    began_at = ended_at or now - timedelta(hours=1)
    standing = Run(
        key=named[1],
        run_id="given",
        version=1,
        state=_STATES[row["status"]],
        config_hash=config_hash(pipeline),
        created_at=began_at,
        since=began_at,
        window_ends_at=now + timedelta(hours=1),
        timeout_at=datetime.fromtimestamp(row["ttl"], UTC) if "ttl" in row else now + timedelta(hours=1),
        job={"id": "given"},
    )
    await tables.commit(Put(TableName.CONTROL, run_to_row(standing)))


def _stamp(log: Case) -> datetime:
    return keys.instant(int(log["SK"].split("#")[3]))


# --- schedule.json ----------------------------------------------------------------------------------------------------


def play_check(case: Case) -> object:
    return run(_play_check(case))


def wanted_of_check(case: Case) -> object:
    expect = case["expect"]
    row = expect.get("rowCreated")
    dates = expect.get("dates") or [expect[name] for name in ("date",) if expect.get("event") and expect.get(name)]
    told = [(expect["event"], day) for day in dates] if expect.get("event") else []
    return {"told": sorted(told), "row": row and (row["SK"], row["status"])}


async def _play_check(case: Case) -> object:
    now = datetime.fromisoformat(case["now"])
    async with a_stage(now) as stage:
        for row in case["controlRows"]:
            await stage.tables.commit(Put(TableName.CONTROL, row))
        pipeline = load_text(json.dumps(case["config"]), lenient=True, today=now.date()).pipeline
        if pipeline is None:
            return {"told": [], "row": None}  # refused when it is deployed, so nothing is ever expected of it
        await Pipelines(stage.tables).put(pipeline.id, json.dumps(case["config"]))
        version = await stage.parts.configs.current(pipeline.id)
        assert version is not None
        ledger = Expectations(AT_ONCE)
        ledger.put(version, {schedule.id: Since(_window(case, now)) for schedule in pipeline.schedules})
        position = await stage.tables.last_position()
        for finding in await _look(case, stage, ledger)(now):
            await finding.act()
        told = [dict(change.image or {}) for change in await stage.tables.changes(TableName.EVENTS, position)]
        return {
            "told": sorted((event["eventType"], event["date"]) for event in told),
            "row": await _closed(stage.tables, pipeline.id, case),
        }


def _look(case: Case, stage: Stage, ledger: Expectations) -> Look:
    work, alerts = DueWork(stage.tables, ledger, stage.parts.resync), Alerts(stage.tables, stage.clock)
    configs = stage.parts.configs
    causes = RootCauses(stage.tables, configs, UpstreamReader(stage.tables, configs))
    begin = BeginChecks(work, alerts, Pauses(stage.tables), causes)
    parts = stage.parts
    deadlines = DeadlineChecks(stage.tables, parts.engine, parts.configs, parts.watches, work=work, alerts=alerts)
    return {
        "missedSchedule": begin.missed_schedules,
        "missedInclusion": begin.missed_inclusion_dates,
        "triggerDeadline": deadlines.trigger_deadlines,
    }[case["kind"]]


def _window(case: Case, now: datetime) -> datetime:
    """From when on the reference looks: since it started, or this day, or this hour; or for its last three dates."""
    if case["kind"] == "missedInclusion":
        return now - timedelta(days=100)
    started = case.get("startedAt")
    deadline = str(case["config"]["schedule"].get("trigger", {}).get("deadline", ""))
    start = now.replace(minute=0) if deadline.startswith(":") else now.replace(hour=0, minute=0)
    return (datetime.fromisoformat(started) if started else start) - timedelta.resolution


async def _closed(tables: SqliteTables, pipeline: PipelineId, case: Case) -> tuple[str, str] | None:
    """The row that was made, if one was."""
    given = {row["SK"] for row in case["controlRows"]}
    for schedule in ("stream", "cron"):
        for each in await Runs(tables).of_schedule(pipeline, ScheduleId(schedule)):
            if isinstance(each, Run) and keys.trigger_sk(each.key) not in given:
                return keys.trigger_sk(each.key), each.status.value
    return None
