"""Alerts on the console: what a line says, and what becomes of successes."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from consumers.console import LINE_MAX, ConsoleAlerts, alert_line
from consumers.routes import envelope
from consumers.severities import Severity, severity_of, told_to_people
from tests.manualclock import NOON, ManualClock
from tests.virtualtime import VirtualClock, on_virtual_time
from worker.core.events import Event
from worker.core.eventtypes import EventType

FAILED = Event(
    id="1",
    type=EventType.JOB_FAILED,
    at=NOON,
    pipeline="orders-daily",
    schedule="daily",
    period="2026-03-03",
    message="orders-daily/daily/2026-03-03: exit code 3",
    detail={"actionHint": "look at the job's log"},
)
COMPLETED = replace(FAILED, type=EventType.JOB_COMPLETED)


class Console:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.severities: list[Severity] = []

    def __call__(self, severity: Severity, line: str) -> None:
        self.severities.append(severity)
        self.lines.append(line)


def test_a_line_says_when_how_bad_about_which_run_what_and_what_to_do() -> None:
    assert alert_line(FAILED) == (
        "2026-03-03T12:00:00Z  ALERT    orders-daily/daily/2026-03-03  JOB_FAILED  exit code 3"
        "  -> look at the job's log"
    )


def test_an_event_about_no_run_is_about_interlock_itself() -> None:
    event = Event(id="1", type="WATCHDOG_DEGRADED", at=NOON, message="a check failed")

    assert alert_line(event) == "2026-03-03T12:00:00Z  ALERT    interlock  WATCHDOG_DEGRADED  a check failed"


def test_a_message_from_outside_stays_on_its_line_and_is_cut() -> None:
    line = alert_line(replace(FAILED, message="first\nsecond\x1b[31m" + "x" * 10_000))

    assert line.isprintable()
    assert len(line) == LINE_MAX


async def test_an_event_that_comes_again_is_told_once() -> None:
    console = Console()
    alerts = ConsoleAlerts(console, ManualClock())

    await alerts.deliver(FAILED)
    await alerts.deliver(FAILED)
    await alerts.deliver(replace(FAILED, id="2"))

    assert console.severities == [Severity.ALERT] * 2


async def test_successes_are_gathered_into_one_line() -> None:
    console, clock = Console(), ManualClock()
    alerts = ConsoleAlerts(console, clock)
    for number in range(7):
        await alerts.deliver(replace(COMPLETED, id=str(number), pipeline=f"p{number}"))
    await alerts.deliver(replace(COMPLETED, id="m", type=EventType.SLA_MET, pipeline="p0"))
    assert console.lines == []

    alerts.write_digest()
    alerts.write_digest()

    assert console.lines == [
        "2026-03-03T12:00:00Z  OK       digest  7 JOB_COMPLETED, 1 SLA_MET  (p0 2, p1 1, p2 1, p3 1, p4 1 and 2 more)"
    ]


async def test_successes_get_their_own_lines_if_that_is_wanted() -> None:
    console = Console()

    await ConsoleAlerts(console, ManualClock(), digest_every=None).deliver(COMPLETED)

    assert console.severities == [Severity.SUCCESS]


@on_virtual_time
async def test_a_digest_comes_at_its_interval_and_a_last_one_at_the_end() -> None:
    console, clock = Console(), VirtualClock()
    alerts = ConsoleAlerts(console, clock, digest_every=timedelta(minutes=15))
    running = asyncio.create_task(alerts.run())
    await alerts.deliver(COMPLETED)
    await clock.sleep(16 * 60)
    assert len(console.lines) == 1

    await alerts.deliver(replace(COMPLETED, id="2"))
    running.cancel()
    await asyncio.wait([running])
    assert len(console.lines) == 2


@pytest.mark.parametrize("event_type", EventType)
def test_people_are_told_everything_but_steps_on_the_way(event_type: EventType) -> None:
    steps = {
        "JOB_TRIGGERED",
        "VALIDATION_PASSED",
        "POST_RUN_BASELINE_CAPTURED",
        "POST_RUN_PASSED",
        "WATCHDOG_HEARTBEAT",
    }

    assert told_to_people().matches(envelope(replace(FAILED, type=event_type))) == (event_type not in steps)


@pytest.mark.parametrize(
    ("event_type", "severity"),
    [
        ("SLA_BREACH", Severity.ALERT),
        ("WATCHDOG_DEGRADED", Severity.ALERT),
        ("SLA_WARNING", Severity.WARNING),
        ("SLA_MET", Severity.SUCCESS),
        ("RERUN_ACCEPTED", Severity.NOTE),
        ("SOMETHING_NEW", Severity.NOTE),
    ],
)
def test_each_event_has_a_severity(event_type: str, severity: Severity) -> None:
    assert severity_of(event_type) is severity


async def test_a_line_that_could_not_be_written_is_written_with_the_next_try() -> None:
    console, troubles = Console(), [OSError("broken pipe")]

    def write(severity: Severity, line: str) -> None:
        if troubles:
            raise troubles.pop()
        console(severity, line)

    alerts = ConsoleAlerts(write, ManualClock())
    with pytest.raises(OSError, match="broken pipe"):
        await alerts.deliver(FAILED)

    await alerts.deliver(FAILED)

    assert len(console.lines) == 1
