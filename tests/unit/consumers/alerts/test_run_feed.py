"""The feed of lines on a terminal: each change once, and never more memory than its bounds."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from consumers.alerts.console import ConsoleAlerts
from consumers.alerts.run_feed import PENDING_MAX, RUNS_REMEMBERED_MAX, RunFeed, schedules_of
from consumers.outbox.severities import Severity
from tests.support.clock.manual import NOON, ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.config.versions import PipelineVersions
from worker.core.model.events import Event
from worker.core.model.keys import config_mark_sk, pipeline_pk
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Put, TableName

RUN = "orders/stream/2026-03-03"
NAME = "12:00:00  orders 2026-03-03"
STARTED = Event(
    id="1",
    type="JOB_TRIGGERED",
    at=NOON,
    pipeline="orders",
    schedule="stream",
    period="2026-03-03",
    message=f"{RUN}: the job of attempt 1 was started",
    detail={"attempt": 1},
)


def unchanged(at: datetime) -> datetime:
    return at


class Terminal:
    """The lines of a terminal, and the feed that writes them."""

    def __init__(self, clock: Clock | None = None, *, schedules: int = 1) -> None:
        self.lines: list[str] = []
        self.severities: list[Severity] = []
        self.schedules = schedules
        self.feed = RunFeed(self.show, clock or ManualClock(), self.has_schedules, unchanged)
        self.log: Log = self.feed.listening(to_nobody)

    def show(self, severity: Severity, line: str) -> None:
        self.severities.append(severity)
        self.lines.append(line)

    async def write(self, severity: Severity, line: str) -> None:
        self.show(severity, line)

    async def has_schedules(self, _: str) -> bool:
        return self.schedules > 1

    def waits(self, reason: str, run: str = RUN) -> None:
        self.log("fact.ignored", {"run": run, "fact": "RulesNotHeld", "reason": f"waiting: {reason}"})

    def rejects(self, reason: str, state: str = "TRIGGERING") -> None:
        facts: dict[str, object] = {"run": RUN, "fact": "JobRefused", "state": state, "reason": reason}
        self.log("fact.handled", {**facts, "effects": ["NoteStart", "LogJob"]})

    def resends(self) -> None:
        facts: dict[str, object] = {"run": RUN, "fact": "TimerFired", "state": "TRIGGERING", "reason": ""}
        self.log("fact.handled", {**facts, "effects": ["NoteStart", "StartJob"]})

    def moves(self, *effects: str, run: str = RUN) -> None:
        self.log("fact.handled", {"run": run, "fact": "RulesHeld", "effects": list(effects)})


async def test_a_reason_is_said_once_and_again_when_it_changes() -> None:
    terminal = Terminal()

    for reason in ("a is 1", "a is 1", "a is 2", "a is 2", "a is 1"):
        terminal.waits(reason)
        await terminal.feed.write_waiting()

    assert terminal.lines == [f"{NAME}  waiting: a is 1", f"{NAME}  waiting: a is 2", f"{NAME}  waiting: a is 1"]


async def test_an_age_that_grows_is_no_news() -> None:
    terminal = Terminal()

    for age in ("25h", "25h5m", "25h10m"):
        terminal.waits(f'snapshot.at is "2026-03-02" ({age} ago), which is not younger than 24h')
        await terminal.feed.write_waiting()

    assert len(terminal.lines) == 1


async def test_a_start_that_the_target_rejects_is_said_once_for_each_reason() -> None:
    terminal = Terminal()

    for reason in ("no such program", "no such program", "the disk is full"):
        terminal.rejects(reason)
        await terminal.feed.write_waiting()
        terminal.resends()

    assert terminal.lines == [
        f"{NAME}  start rejected: no such program; retrying",
        f"{NAME}  start rejected: the disk is full; retrying",
    ]
    assert set(terminal.severities) == {Severity.WARNING}


async def test_a_rejection_that_ends_the_run_is_left_to_its_event() -> None:
    terminal = Terminal()

    terminal.rejects("no such program", state="FAILED_FINAL")
    await terminal.feed.write_waiting()

    assert terminal.lines == []


async def test_a_run_that_starts_before_its_line_is_written_gets_none() -> None:
    terminal = Terminal()

    terminal.waits("a is 1")
    terminal.moves("MoveTo", "EmitEvent", "StartJob")
    await terminal.feed.write_waiting()

    assert terminal.lines == []


async def test_a_rerun_that_waits_for_the_same_says_it_again() -> None:
    terminal = Terminal()
    terminal.waits("a is 1")
    await terminal.feed.write_waiting()

    terminal.moves("EvaluateNow")  # a sensor came, and nothing else
    terminal.waits("a is 1")
    await terminal.feed.write_waiting()
    assert len(terminal.lines) == 1

    terminal.moves("Reopen", "EvaluateNow")
    terminal.waits("a is 1")
    await terminal.feed.write_waiting()
    assert len(terminal.lines) == 2


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ("fact.ignored", {"run": RUN, "fact": "RunTriggered", "reason": "the run exists already"}),
        ("fact.ignored", {"run": RUN, "fact": "RulesNotHeld", "reason": "RulesNotHeld does not apply"}),
        ("time.came", {"run": RUN}),
        ("target.closed", {"target": "glue"}),
    ],
)
async def test_other_log_lines_are_not_on_the_terminal(event: str, facts: dict[str, object]) -> None:
    terminal = Terminal()

    terminal.log(event, facts)
    await terminal.feed.write_waiting()

    assert terminal.lines == []


def test_the_log_itself_gets_everything() -> None:
    logged: list[str] = []
    feed = Terminal().feed

    feed.listening(lambda event, _: logged.append(event))("fact.ignored", {"run": RUN})

    assert logged == ["fact.ignored"]


async def test_a_crowd_of_waiting_runs_is_cut_and_says_so() -> None:
    terminal = Terminal()

    for number in range(PENDING_MAX + 7):
        terminal.waits("a is 1", run=f"p{number}/stream/2026-03-03")
    await terminal.feed.write_waiting()

    assert len(terminal.lines) == PENDING_MAX + 1
    assert terminal.lines[-1].endswith("more runs wait (7 lines left out): `interlock status`")


async def test_what_is_remembered_of_runs_is_bounded() -> None:
    terminal = Terminal()

    for number in range(RUNS_REMEMBERED_MAX + 1):
        terminal.waits("a is 1", run=f"p{number}/stream/2026-03-03")
        await terminal.feed.write_waiting()
    terminal.lines.clear()
    terminal.waits("a is 1", run=f"p{RUNS_REMEMBERED_MAX}/stream/2026-03-03")
    terminal.waits("a is 1", run="p0/stream/2026-03-03")  # forgotten, so it is said again
    await terminal.feed.write_waiting()

    assert [line.split()[1] for line in terminal.lines] == ["p0"]


@on_virtual_time
async def test_reasons_are_written_in_the_background_a_moment_later() -> None:
    clock = VirtualClock()
    terminal = Terminal(clock)
    writing = asyncio.create_task(terminal.feed.run())

    terminal.waits("a is 1")
    terminal.waits("a is 2")
    await clock.sleep(0.1)
    assert terminal.lines == []
    await clock.sleep(1)

    assert [line.split("  ")[-1] for line in terminal.lines] == ["waiting: a is 2"]
    writing.cancel()


async def test_a_success_says_how_long_its_job_took_if_its_start_was_seen() -> None:
    terminal = Terminal()
    completed = replace(STARTED, id="2", type="JOB_COMPLETED", at=NOON + timedelta(minutes=12), message="")

    await terminal.feed.deliver(STARTED)
    await terminal.feed.deliver(completed)
    await terminal.feed.deliver(replace(completed, period="2026-03-02"))

    assert [line.split("  ")[-1] for line in terminal.lines] == [
        "job started (attempt 1)",
        "completed in 12m",
        "completed",
    ]
    assert terminal.severities == [Severity.NOTE, Severity.SUCCESS, Severity.SUCCESS]


async def test_a_schedule_is_named_if_the_pipeline_has_several() -> None:
    terminal = Terminal(schedules=2)

    terminal.waits("a is 1")
    await terminal.feed.write_waiting()
    await terminal.feed.deliver(STARTED)

    assert all("orders/stream 2026-03-03" in line for line in terminal.lines)


async def test_a_final_failure_is_one_line_of_the_console() -> None:
    terminal = Terminal()
    alerts = ConsoleAlerts(terminal.write, ManualClock(), None, terminal.feed.line_of)
    failed = replace(
        STARTED,
        type="JOB_FAILED",
        message=f"{RUN}: the job of attempt 1 failed: exit code 3",
        detail={"willRetry": False},
    )
    ended = replace(
        STARTED, id="2", type="RETRY_EXHAUSTED", message=f"{RUN} failed in attempt 1: exit code 3", detail={}
    )

    for event in (failed, ended, ended):
        await alerts.deliver(event)

    assert terminal.lines == [f"{NAME}  failed: exit code 3"]
    assert terminal.severities == [Severity.ALERT]


async def test_a_probe_of_the_alert_path_is_not_shown() -> None:
    terminal = Terminal()

    await terminal.feed.deliver(replace(STARTED, type="ALERT_PATH_CHECK"))

    assert terminal.lines == []


ONE = """
pipeline: {id: orders}
schedule: {trigger: {key: loaded}}
validation: {rules: [{key: loaded, check: exists}]}
job: {type: command, config: {command: "true"}}
"""
TWO = """
pipeline: {id: orders}
schedules: [{id: day, cron: "0 6 * * *"}, {id: night, cron: "0 18 * * *"}]
job: {type: command, config: {command: "true"}}
"""


@pytest.mark.parametrize(("text", "several"), [(ONE, False), (TWO, True)])
async def test_the_store_knows_how_many_schedules_a_pipeline_has(text: str, several: bool) -> None:
    tables = SqliteTables.in_memory(ManualClock())
    await Pipelines(tables).put(PipelineId("orders"), text)

    assert await schedules_of(PipelineVersions(tables))("orders") is several


async def test_a_pipeline_that_cannot_be_read_has_a_full_name() -> None:
    tables = SqliteTables.in_memory(ManualClock())
    await Pipelines(tables).put(PipelineId("orders"), "pipeline: [")
    damaged = {"PK": pipeline_pk("orders"), "SK": config_mark_sk(), "data": "nonsense"}
    await tables.commit(Put(TableName.CONTROL, damaged))

    assert await schedules_of(PipelineVersions(tables))("orders")
    assert await schedules_of(PipelineVersions(tables))("unknown")
