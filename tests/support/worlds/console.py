"""A store with something to look at: a month of runs, a failure, a breach, a waiting run and a stuck one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from tests.support.builders.cli_runs import key_of
from tests.support.clock.manual import ManualClock
from tests.support.fakes.counting_tables import CountingTables
from tests.support.worlds.web import BASE, bearer
from tests.support.worlds.web import rules as access_rules
from worker.app.web import NoWorker
from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import EarlierAttempt, FailureCategory, Outcome, Run, StartStep, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sessions import Sessions
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables
from worker.telemetry.meters import Meters
from worker.web.access import AccessRules
from worker.web.api.application import make_api
from worker.web.api.context import ApiContext
from worker.web.console.console import Console
from worker.web.console.links import Links
from worker.web.console.pages.application import make_console, with_console
from worker.web.console.problem_pages import ProblemPages
from worker.web.guard import Guard
from worker.web.health import HealthPages
from worker.web.identity.browser_sessions import BrowserSessions
from worker.web.live.updates import LiveUpdates

MORNING = datetime(2027, 3, 23, 6, 10, tzinfo=UTC)  # 07:10 in Berlin
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
YESTERDAY = "2027-03-22"

ORDERS_DAILY = """\
pipeline: {id: orders-daily, owner: commerce-data, description: Load yesterday's orders into the warehouse}
schedule:
  timezone: Europe/Berlin
  trigger: {key: orders-export, check: equals, field: status, value: complete, deadline: "05:00"}
  evaluation: {window: 2h, interval: 5m}
sla: {deadline: "06:00", expectedDuration: 45m}
validation:
  rules:
    - {key: orders-export, check: gte, field: rows, value: 1000}
    - {key: customer-snapshot, check: age_lt, field: updatedAt, value: 24h}
job: {type: glue, config: {jobName: orders-daily}, maxRetries: 2}
"""
NAMES = {
    "customer-snapshot": ("crm", "Copy the customers of the shop"),
    "fraud.scores": ("risk", "Score yesterday's payments"),
    "ledger-close": ("finance", "Close the books of a day"),
    "web-sessions": ("growth", "Join the sessions of the shop"),
    "stock-levels": ("logistics", "Sum up the stock of every warehouse"),
}
SIMPLE = """\
pipeline: {{id: {name}, owner: {owner}, description: {about}}}
schedule:
  timezone: Europe/Berlin
  trigger: {{key: ready, check: equals, field: status, value: done}}
sla: {{deadline: "09:00", expectedDuration: 30m}}
validation: {{rules: [{{key: ready, check: exists}}]}}
job: {{type: command, config: {{command: load}}, maxRetries: 2}}
"""


async def fill_store(tables: Tables, now: datetime = MORNING, *, days: int = 30) -> None:
    """Write pipelines, runs, deadlines, sensors and events as a worker would have by `now`."""
    hashes = {"orders-daily": await _push(tables, "orders-daily", ORDERS_DAILY)}
    for name, (owner, about) in NAMES.items():
        hashes[name] = await _push(tables, name, SIMPLE.format(name=name, owner=owner, about=about))
    await Sessions(tables, GROUP).register(SessionId("worker-1"), "0.1.0", at=now)
    for number, name in enumerate(hashes):
        await _history(tables, name, hashes[name], seed=number, now=now, days_max=days)
    await _waiting(tables, hashes["orders-daily"], now)
    await _failed(tables, hashes["ledger-close"], now)
    await _running(tables, hashes["stock-levels"], now)
    await _starting(tables, hashes["customer-snapshot"], now)
    await tables.commit(
        event_write(
            Event(
                id="missed",
                type=EventType.SENSOR_DEADLINE_EXPIRED,
                at=now - 50 * MINUTE,
                pipeline="fraud.scores",
                schedule="stream",
                period=YESTERDAY,
                message="the sensor ready did not arrive by 05:20 CET",
            )
        )
    )


AFTER = """\
pipeline: {{id: {name}, owner: analytics}}
schedule:
  timezone: Europe/Berlin
  grain: day
  after: [{after}]
job: {{type: command, config: {{command: load}}}}
"""
# Who runs after whom: a diamond below the orders and the stock, and what follows it.
LINEAGE = {
    "order-facts": ("orders-daily", "customer-snapshot"),
    "stock-facts": ("stock-levels",),
    "margin-report": ("order-facts", "stock-facts"),
    "board-pack": ("margin-report", "ledger-close"),
}


async def fill_lineage(tables: Tables, now: datetime = MORNING) -> None:
    """Write pipelines that run after those of `fill_store`, and some of their runs of yesterday."""
    for name, upstreams in LINEAGE.items():
        after = ", ".join(f"{{pipeline: {upstream}}}" for upstream in upstreams)
        config_hash = await _push(tables, name, AFTER.format(name=name, after=after))
        await _history(tables, name, config_hash, seed=len(name), now=now, days_max=3)


async def _push(tables: Tables, name: str, text: str) -> str:
    await Pipelines(tables).put(PipelineId(name), text)
    versions = PipelineVersions(tables)
    version = await versions.current(PipelineId(name))
    assert version is not None, text
    await versions.persist(version)
    return version.config_hash


async def _history(tables: Tables, name: str, config_hash: str, *, seed: int, now: datetime, days_max: int) -> None:
    for days in range(1 if name == "web-sessions" else 2, days_max + 1):
        ended = now - timedelta(days=days - 1) - 80 * MINUTE + ((days * 7 + seed * 3) % 23) * MINUTE
        has_failed, is_late = (days + seed * 5) % 17 == 3, (days + seed * 3) % 13 == 5
        key = key_of(f"{(now - timedelta(days=days)).date()}", name)
        run = Run(
            key=key,
            run_id=f"run-{name}-{days}",
            state=State.FAILED_FINAL if has_failed else State.COMPLETED,
            outcome=Outcome.FAILED if has_failed else Outcome.SUCCEEDED,
            reason="exit code 1: KeyError 'fx'" if has_failed else "",
            config_hash=config_hash,
            created_at=ended - 50 * MINUTE,
            started_at=ended - 22 * MINUTE,
            since=ended,
            timeout_at=ended + 4 * HOUR,
        )
        await Runs(tables).save(run)
        verdict = Verdict.BREACHED if has_failed or is_late else Verdict.MET
        await SlaWatches(tables).save(
            SlaWatch(key=key, config_hash=config_hash, since=ended, breach_at=ended + 30 * MINUTE, verdict=verdict)
        )


async def _waiting(tables: Tables, config_hash: str, now: datetime) -> None:
    key, orders = key_of(YESTERDAY, "orders-daily"), PipelineId("orders-daily")
    created = now - 72 * MINUTE
    export = {"status": "complete", "rows": 950, "updatedAt": f"{created:%Y-%m-%dT%H:%M:%SZ}"}
    await Sensors(tables).put(orders, f"orders-export#{YESTERDAY}", export)
    await Runs(tables).save(
        Run(
            key=key,
            run_id="run-waiting",
            config_hash=config_hash,
            created_at=created,
            since=created,
            window_ends_at=created + 2 * HOUR,
            timeout_at=created + 6 * HOUR,
            pipeline_owner="commerce-data",
        )
    )
    breach = datetime(2027, 3, 23, 5, 0, tzinfo=UTC)
    await SlaWatches(tables).save(
        SlaWatch(
            key=key,
            config_hash=config_hash,
            since=created,
            warning_at=breach - 45 * MINUTE,
            breach_at=breach,
            warned_at=breach - 45 * MINUTE,
        )
    )
    for at, event_type, message in (
        (breach - 45 * MINUTE, EventType.SLA_WARNING, "may breach its deadline at 06:00 CET"),
        (breach, EventType.SLA_BREACH, "breached its deadline at 06:00 CET"),
    ):
        await tables.commit(event_write(_event(key, at, event_type, message)))


async def _failed(tables: Tables, config_hash: str, now: datetime) -> None:
    key = key_of(YESTERDAY, "ledger-close")
    begin = now - 130 * MINUTE
    ready = {"status": "done", "updatedAt": f"{begin:%Y-%m-%dT%H:%M:%SZ}"}
    await Sensors(tables).put(PipelineId("ledger-close"), f"ready#{YESTERDAY}", ready)
    earlier = tuple(
        EarlierAttempt(
            number=number,
            job_type="command",
            job=f"il-{number}f3c9a",
            started_at=begin + (5 + 40 * (number - 1)) * MINUTE,
            ended_at=begin + (34 + 40 * (number - 1)) * MINUTE,
            outcome="failed",
            category=FailureCategory.TRANSIENT,
            reason="exit code 75: the exchange rates cannot be had at the moment",
        )
        for number in (1, 2)
    )
    ended = now - 8 * MINUTE
    await Runs(tables).save(
        Run(
            key=key,
            run_id="run-failed",
            state=State.FAILED_FINAL,
            outcome=Outcome.FAILED,
            attempt=3,
            attempts=earlier,
            attempt_at=begin + 74 * MINUTE,
            config_hash=config_hash,
            created_at=begin,
            started_at=begin + 90 * MINUTE,
            since=ended,
            timeout_at=begin + 4 * HOUR,
            job_type="command",
            job={"id": "il-3f3c9a"},
            category=FailureCategory.PERMANENT,
            reason="exit code 1: KeyError 'fx'",
            pipeline_owner="finance",
        )
    )
    await SlaWatches(tables).save(
        SlaWatch(key=key, config_hash=config_hash, since=begin, breach_at=datetime(2027, 3, 23, 8, tzinfo=UTC))
    )
    for number, attempt in enumerate((*earlier, None), start=1):
        reason = attempt.reason if attempt else "exit code 1: KeyError 'fx'"
        started = attempt.started_at if attempt else begin + 90 * MINUTE
        assert started is not None
        detail = {"attempt": number}
        triggered = _event(key, started, EventType.JOB_TRIGGERED, f"the job of attempt {number} was started", detail)
        at = attempt.ended_at if attempt else ended
        failed = _event(key, at, EventType.JOB_FAILED, f"the job of attempt {number} failed: {reason}", detail)
        await tables.commit(event_write(triggered), event_write(failed))
    await tables.commit(event_write(_event(key, ended, EventType.RETRY_EXHAUSTED, "no retry is left")))


async def _running(tables: Tables, config_hash: str, now: datetime) -> None:
    key = key_of(YESTERDAY, "stock-levels")
    await Runs(tables).save(
        Run(
            key=key,
            run_id="run-running",
            state=State.POLLING,
            config_hash=config_hash,
            created_at=now - 40 * MINUTE,
            started_at=now - 12 * MINUTE,
            since=now - 12 * MINUTE,
            window_ends_at=now + HOUR,
            timeout_at=now + 3 * HOUR,
            job_type="command",
            job={"id": "il-77aa01"},
        )
    )
    await SlaWatches(tables).save(
        SlaWatch(
            key=key,
            config_hash=config_hash,
            since=now - 40 * MINUTE,
            warning_at=now + 80 * MINUTE,
            breach_at=datetime(2027, 3, 23, 8, tzinfo=UTC),
        )
    )


async def _starting(tables: Tables, config_hash: str, now: datetime) -> None:
    await Runs(tables).save(
        Run(
            key=key_of(YESTERDAY, "customer-snapshot"),
            run_id="run-starting",
            state=State.TRIGGERING,
            start_step=StartStep.UNANSWERED,
            config_hash=config_hash,
            created_at=now - 20 * MINUTE,
            since=now - 11 * MINUTE,
            timeout_at=now + 3 * HOUR,
        )
    )


def _event(
    key: RunKey, at: datetime, event_type: EventType, message: str, detail: dict[str, int] | None = None
) -> Event:
    return Event(
        id=f"{event_type}-{at:%H%M}",
        type=event_type,
        at=at,
        pipeline=key.pipeline,
        schedule=key.schedule,
        period=str(key.period),
        message=message,
        detail=dict(detail or {}),
    )


# --- the console on such a store --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConsoleWorld:
    """A served console, with every read of the store counted."""

    tables: CountingTables
    clock: ManualClock
    guard: Guard
    live: LiveUpdates
    console: Console

    def browser(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        known = {"Accept": "text/html", **(bearer(token) if token else {}), **headers}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.guard), base_url=BASE, headers=known)

    async def get(self, path: str, token: str | None = None) -> httpx.Response:
        async with self.browser(token) as client:
            return await client.get(path)


@asynccontextmanager
async def a_console_world(
    *, base: str = "", access: AccessRules | None = None, job_folder: Path | None = None, installation: str = ""
) -> AsyncGenerator[ConsoleWorld]:
    clock, rules = ManualClock(MORNING), access or access_rules()
    tables = CountingTables(SqliteTables.in_memory(clock))
    await tables.start()
    try:
        context = ApiContext(tables=tables, clock=clock, job_folder=job_folder)
        sessions = BrowserSessions(rules.tokens, clock, b"the key of the tests") if rules.tokens else None
        if sessions is not None:
            rules = replace(rules, session=sessions.caller)
        console = Console(
            context=context,
            links=Links(base),
            sessions=sessions,
            is_read_only=rules.is_read_only,
            installation=installation,
        )
        app = with_console(make_api(context), make_console(console))
        health = HealthPages(NoWorker(), Meters())
        guard = Guard(app, rules, health, problem_page=ProblemPages(console))
        yield ConsoleWorld(tables=tables, clock=clock, guard=guard, live=context.live, console=console)
    finally:
        await tables.stop()
