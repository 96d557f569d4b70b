"""Alerts on the console: what a line says, and what becomes of successes."""

import asyncio
import errno
import os
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from consumers.alerts.console import LINE_MAX, ConsoleAlerts, alert_line
from consumers.outbox.routes import envelope
from consumers.outbox.severities import Severity, severity_of, told_to_people
from tests.support.clock.manual import NOON, ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.core.errors import RetryLater
from worker.core.model.events import Event, EventType
from worker.runtime.clock import Clock

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

    async def __call__(self, severity: Severity, line: str) -> None:
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

    await alerts.write_digest()
    await alerts.write_digest()

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
        "OPERATOR_ACTION",
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


class Disk(Console):
    """A console on a disk that is full for a while."""

    def __init__(self, clock: Clock, until: float) -> None:
        super().__init__()
        self._clock, self._until = clock, until
        self.tries = 0

    async def __call__(self, severity: Severity, line: str) -> None:
        self.tries += 1
        if self._clock.monotonic() < self._until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        await super().__call__(severity, line)


@pytest.mark.parametrize("full_for_s", [1, 20, 3_600, 8 * 3_600])
@on_virtual_time
async def test_alerts_wait_for_as_long_as_the_console_is_full_and_none_is_lost(full_for_s: float) -> None:
    clock = VirtualClock()
    disk = Disk(clock, clock.monotonic() + full_for_s)
    alerts = ConsoleAlerts(disk, clock)

    with capture_logs() as lines:
        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(alerts.deliver(replace(FAILED, id=str(number))))
            await clock.sleep(0.5)
            assert alerts.line.is_down()
            with pytest.raises(RetryLater, match="No space left"):
                await alerts.line.reach()

    assert disk.severities == [Severity.ALERT] * 5
    assert disk.tries < 40 + full_for_s / 5  # one at a time, less and less often
    assert alerts.line.failed_tries == disk.tries - 5
    assert not alerts.line.is_down()
    await alerts.line.reach()
    down, back = lines
    assert (down["event"], down["log_level"], down["reason"]) == ("console.down", "error", "No space left on device")
    assert (back["event"], back["log_level"]) == ("console.back", "info")
    assert full_for_s <= back["after_s"] + 1 <= full_for_s + 32


@on_virtual_time
async def test_an_alert_that_is_not_read_counts_as_waiting_until_it_is() -> None:
    clock, read = VirtualClock(), asyncio.Event()

    async def write(_: Severity, __: str) -> None:
        await read.wait()

    alerts = ConsoleAlerts(write, clock)
    with capture_logs() as lines:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(alerts.deliver(FAILED))
            await clock.sleep(1)
            assert not alerts.line.is_down()
            await clock.sleep(10)
            assert alerts.line.is_down()
            read.set()

    assert [line["event"] for line in lines] == ["console.down", "console.back"]
    assert not alerts.line.is_down()


@on_virtual_time
async def test_an_alert_that_was_cancelled_while_it_waited_is_told_when_it_comes_again() -> None:
    clock = VirtualClock()
    disk = Disk(clock, clock.monotonic() + 100)
    alerts = ConsoleAlerts(disk, clock)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(50):
            await alerts.deliver(FAILED)

    await clock.sleep(60)
    await alerts.deliver(FAILED)

    assert len(disk.lines) == 1


@on_virtual_time
async def test_the_last_digest_does_not_keep_a_worker_whose_console_is_full() -> None:
    clock = VirtualClock()
    alerts = ConsoleAlerts(Disk(clock, clock.monotonic() + 1e6), clock)
    running = asyncio.create_task(alerts.run())
    await alerts.deliver(COMPLETED)
    await clock.sleep(1)

    running.cancel()
    began_at = clock.monotonic()
    await asyncio.wait([running])

    assert clock.monotonic() - began_at < 5
    assert running.cancelled()
