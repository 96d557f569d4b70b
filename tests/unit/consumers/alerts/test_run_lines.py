"""What people read on a terminal about a run."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from consumers.alerts.run_lines import (
    RunName,
    event_line,
    is_shown,
    line_severity,
    shown_on_terminal,
    waiting_line,
)
from consumers.outbox.routes import envelope
from consumers.outbox.severities import Severity
from tests.support.clock.manual import NOON
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json

KEY = "orders-daily/stream/2026-03-03"
NAME = RunName(pipeline="orders-daily", period="2026-03-03")


def berlin(at: datetime) -> datetime:
    return at.astimezone(timezone(timedelta(hours=1)))


def an_event(event_type: str, message: str = "", **detail: Json) -> Event:
    return Event(
        id="1",
        type=event_type,
        at=NOON,
        pipeline="orders-daily",
        schedule="stream",
        period="2026-03-03",
        message=f"{KEY}{message}" if message else "",
        detail=detail,
    )


def said(event: Event, took: timedelta | None = None) -> str:
    line = event_line(event, NAME, took=took, now=NOON, local=berlin)
    assert line.startswith("13:00:00  orders-daily 2026-03-03  ")
    return line.removeprefix("13:00:00  orders-daily 2026-03-03  ")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (an_event("JOB_TRIGGERED", ": the job of attempt 1 was started", attempt=1), "job started (attempt 1)"),
        (an_event("JOB_COMPLETED", " completed in attempt 1", attempt=1), "completed"),
        (an_event("JOB_COMPLETED", " completed in attempt 2", attempt=2), "completed (attempt 2)"),
        (
            an_event("JOB_FAILED", ": the job of attempt 1 failed: exit code 75: no rates", attempt=1, willRetry=True),
            "attempt 1 failed: exit code 75: no rates; retrying",
        ),
        (an_event("JOB_FAILED", ": the job of attempt 1 failed: exit code 3"), "failed: exit code 3"),
        (
            an_event(
                "RETRY_EXHAUSTED",
                " failed in attempt 2: exit code 3: no disk (1 of 1 retries used)",
                attempt=2,
                actionHint="fix the job",
            ),
            "failed: exit code 3: no disk (1 of 1 retries used)  -> fix the job",
        ),
        (
            an_event("VALIDATION_EXHAUSTED", ": the rules did not hold in time: a is 1", actionHint="see why"),
            "failed: the rules did not hold in time: a is 1  -> see why",
        ),
        (an_event("RERUN_ACCEPTED", ": rerun accepted: fixed", reason="fixed"), "rerun accepted: fixed"),
        (
            an_event("RERUN_ACCEPTED", ": rerun accepted: fixed", reason="fixed", by="ana"),
            "rerun accepted, requested by ana: fixed",
        ),
        (
            an_event("OPERATOR_ACTION", "", action="rerun", requestedBy="ana", reason="fixed"),
            "rerun requested by ana: fixed",
        ),
        (an_event("RERUN_ACCEPTED", " begins: replay"), "rerun accepted: replay"),
        (
            an_event("RERUN_REJECTED", ": rerun rejected (once more): limit reached", actionHint="to override: x"),
            "rerun rejected (once more): limit reached  -> to override: x",
        ),
        (
            an_event("SLA_BREACH", " breached its deadline of 2026-03-03T05:00:00Z: too late", actionHint="tell them"),
            "breached its deadline of 2026-03-03T05:00:00Z: too late  -> tell them",
        ),
        (
            an_event("SLA_WARNING", " may breach its deadline of 2026-03-03T05:00:00Z"),
            "may breach its deadline of 2026-03-03T05:00:00Z",
        ),
        (an_event("SLA_MET", " was done in time"), "done in time"),
        (
            an_event("LATE_DATA_ARRIVAL", ": landing changed after the run had ended"),
            "late data: landing changed after the run had ended",
        ),
        (
            an_event("DRY_RUN_WOULD_TRIGGER", ": the rules hold; the job would be started now"),
            "dry run: the rules hold; the job would be started now",
        ),
        (an_event("RUN_CANCELLED", " was cancelled: wrong file"), "cancelled: wrong file"),
        (an_event("SFN_TIMEOUT", " timed out: not done by noon"), "timed out: not done by noon"),
        (an_event("SLA_WAIVED"), "SLA_WAIVED"),
        (an_event("SOMETHING_NEW", ": a message"), "SOMETHING_NEW: a message"),
    ],
    ids=lambda given: given.type if isinstance(given, Event) else "",
)
def test_a_line_says_what_happened(event: Event, line: str) -> None:
    assert is_shown(event)
    assert said(event) == line


def test_a_success_says_how_long_its_job_took() -> None:
    completed = an_event("JOB_COMPLETED", " completed in attempt 1", attempt=1)

    assert said(completed, timedelta(minutes=12)) == "completed in 12m"


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            "0 of 1 conditions hold, all are needed: export.rows is 950, which is not at least 1000",
            "waiting: export.rows is 950, which is not at least 1000",
        ),
        ("1 of 2 conditions hold, all are needed: a is 1", "waiting: 1 of 2 conditions hold, all are needed: a is 1"),
    ],
)
def test_a_waiting_run_says_what_it_waits_for(reason: str, line: str) -> None:
    assert waiting_line(NAME, reason, now=NOON, local=berlin) == f"13:00:00  orders-daily 2026-03-03  {line}"


def test_an_event_of_another_day_has_its_date() -> None:
    line = event_line(an_event("SLA_MET"), NAME, took=None, now=NOON + timedelta(days=1), local=berlin)

    assert line.startswith("2026-03-03 13:00:00  ")


def test_the_schedule_is_named_where_it_is_needed() -> None:
    assert str(replace(NAME, schedule="hourly")) == "orders-daily/hourly 2026-03-03"


def test_an_event_about_no_run_is_about_interlock() -> None:
    assert str(RunName(pipeline="")) == "interlock"


@pytest.mark.parametrize(
    "event",
    [
        an_event("JOB_FAILED", ": failed", willRetry=False),  # RETRY_EXHAUSTED says it
        an_event("SFN_TIMEOUT", " timed out", orphaned=True),  # JOB_ORPHANED says it
        an_event("VALIDATION_PASSED"),
        an_event("WATCHDOG_HEARTBEAT"),
    ],
    ids=lambda event: event.type,
)
def test_nothing_is_said_twice_and_steps_are_not_said(event: Event) -> None:
    assert not is_shown(event)


@pytest.mark.parametrize("event_type", EventType)
def test_the_terminal_gets_every_event_but_those_without_a_line(event_type: EventType) -> None:
    event = an_event(event_type)

    assert shown_on_terminal().matches(envelope(event)) == is_shown(event)


def test_a_failed_attempt_stands_out_although_a_retry_follows() -> None:
    assert line_severity(an_event("JOB_FAILED", willRetry=True)) is Severity.WARNING
    assert line_severity(an_event("JOB_COMPLETED")) is Severity.SUCCESS


HOSTILE = "x\x1b[2J\x1b]0;owned\x07\r\n13:00:00  other 2026-03-03  completed\u202e" + "y" * 10_000


def test_hostile_text_stays_on_its_line_is_harmless_and_is_cut_with_a_note() -> None:
    lines = [
        event_line(
            replace(an_event("SLA_BREACH", f": {HOSTILE}", actionHint=HOSTILE), period=HOSTILE),
            RunName(pipeline=HOSTILE, schedule=HOSTILE, period=HOSTILE),
            took=None,
            now=NOON,
            local=berlin,
        ),
        event_line(an_event(HOSTILE), NAME, took=None, now=NOON, local=berlin),
        event_line(an_event("RERUN_ACCEPTED", reason=HOSTILE, by=HOSTILE), NAME, took=None, now=NOON, local=berlin),
        waiting_line(NAME, f"sensor is {HOSTILE}", now=NOON, local=berlin),
    ]

    for line in lines:
        assert line.isprintable()
        assert len(line) < 800
        assert "\\x1b[2J" in line
        assert "characters)" in line
