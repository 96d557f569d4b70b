"""Say what happened to a run in one short line, for people who watch a worker on a terminal."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from consumers.outbox.patterns import EventPattern, parse_pattern
from consumers.outbox.routes import SOURCE
from consumers.outbox.severities import Severity, is_told_by_its_end, severity_of
from worker.core.model.events import Event, EventType, shown_type
from worker.core.model.values import Json
from worker.core.time.durations import shown_duration
from worker.runtime.shown_text import one_line

TEXT_MAX: Final = 400
HINT_MAX: Final = 200
NAME_MAX: Final = 120

# Returns an instant as people near this machine see it.
LocalTime: TypeAlias = Callable[[datetime], datetime]

# Another line says the same, or only machines need them.
_UNSHOWN: Final = frozenset(
    {
        EventType.VALIDATION_PASSED,  # JOB_TRIGGERED follows
        EventType.POST_RUN_BASELINE_CAPTURED,
        EventType.POST_RUN_PASSED,
        EventType.WATCHDOG_HEARTBEAT,
    }
)
_DRY_RUN: Final = "DRY_RUN_"
_FAILED: Final = re.compile(r"^(?:the job of attempt \d+ failed|failed in attempt \d+): ")
_ONE_CONDITION: Final = re.compile(r"^0 of 1 conditions hold, [a-z0-9 ]+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunName:
    """RunName is what a line is about. An empty `schedule` is not shown."""

    pipeline: str
    schedule: str = ""
    period: str = ""

    def __str__(self) -> str:
        name = "/".join(part for part in (self.pipeline, self.schedule) if part) or "interlock"
        return one_line(f"{name} {self.period}".rstrip(), NAME_MAX)


def shown_on_terminal() -> EventPattern:
    """Return the pattern of all events that get a line. Unknown events match, so none is hidden."""
    return parse_pattern({"source": [SOURCE], "detail-type": [{"anything-but": [*sorted(_UNSHOWN)]}]})


def is_shown(event: Event) -> bool:
    """Return whether an event gets a line; one that another event of the same commit repeats gets none."""
    if event.type == EventType.SFN_TIMEOUT and event.detail.get("orphaned") is True:
        return False  # JOB_ORPHANED is emitted as well
    return event.type not in _UNSHOWN and not is_told_by_its_end(event.type, event.detail)


def line_severity(event: Event) -> Severity:
    """Return the severity whose colour a line has: a failed attempt stands out although a retry follows."""
    severity = severity_of(event.type, event.detail)
    return Severity.WARNING if event.type == EventType.JOB_FAILED and severity is Severity.NOTE else severity


def event_line(event: Event, name: RunName, *, took: timedelta | None, now: datetime, local: LocalTime) -> str:
    """Return the line of an event: the local time, the run, what happened, and what to do if anything."""
    said = _said(event, took)
    hint = event.detail.get("actionHint")
    is_urgent = severity_of(event.type, event.detail) in {Severity.ALERT, Severity.WARNING}
    do = f"  -> {one_line(hint, HINT_MAX)}" if is_urgent and isinstance(hint, str) and hint else ""
    return f"{shown_at(event.at, now, local)}  {name}  {one_line(said, TEXT_MAX)}{do}"


def waiting_line(name: RunName, reason: str, *, now: datetime, local: LocalTime) -> str:
    said = f"waiting: {_ONE_CONDITION.sub('', reason, count=1)}"
    return f"{shown_at(now, now, local)}  {name}  {one_line(said, TEXT_MAX)}"


def rejected_line(name: RunName, reason: str, *, now: datetime, local: LocalTime) -> str:
    return f"{shown_at(now, now, local)}  {name}  start rejected: {one_line(reason, TEXT_MAX)}; retrying"


def shown_at(at: datetime, now: datetime, local: LocalTime) -> str:
    """Return the local time of day, with the date if that is not today's."""
    seen, today = local(at), local(now)
    return seen.strftime("%H:%M:%S" if seen.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def _said(event: Event, took: timedelta | None) -> str:
    detail, message = event.detail, _without_run(event)
    match event.type:
        case EventType.JOB_TRIGGERED:
            return f"job started{_attempt(detail)}"
        case EventType.JOB_COMPLETED:
            return "completed" + (f" in {shown_duration(took)}" if took is not None else "") + _later_attempt(detail)
        case EventType.JOB_FAILED if detail.get("willRetry") is True:
            return f"attempt {detail.get('attempt', '?')} failed: {_why_failed(message)}; retrying"
        case EventType.JOB_FAILED | EventType.RETRY_EXHAUSTED:
            return f"failed: {_why_failed(message)}"
        case EventType.VALIDATION_EXHAUSTED:
            return f"failed: {message}"
        case EventType.RERUN_ACCEPTED:
            return _rerun(detail, message)
        case EventType.OPERATOR_ACTION if event.period:
            # Its message names the run, as the line does already.
            return f"{detail.get('action')} requested by {detail.get('requestedBy')}: {detail.get('reason')}"
        case EventType.LATE_DATA_ARRIVAL:
            return f"late data: {message}"
        case _ if event.type.startswith(_DRY_RUN):
            return f"dry run: {message or event.type}"
        case _ if event.type in set(EventType):
            return message or shown_type(event.type)
        case _:
            return f"{event.type}: {message}" if message else event.type


def _without_run(event: Event) -> str:
    """Remove the run from the start of a message, because the line names it already."""
    run = "/".join(part for part in (event.pipeline, event.schedule, event.period) if part)
    message = event.message
    if run and message.startswith((f"{run}:", f"{run} ")):
        message = message[len(run) :].lstrip(": ")
    return message.removeprefix("was ")


def _why_failed(message: str) -> str:
    return _FAILED.sub("", message, count=1)


def _rerun(detail: Mapping[str, Json], message: str) -> str:
    by, reason = detail.get("by"), detail.get("reason")
    accepted = f"rerun accepted, requested by {by}" if isinstance(by, str) and by else "rerun accepted"
    return f"{accepted}: {reason if isinstance(reason, str) and reason else message.removeprefix('begins: ')}"


def _attempt(detail: Mapping[str, Json]) -> str:
    attempt = detail.get("attempt")
    return f" (attempt {attempt})" if isinstance(attempt, int) else ""


def _later_attempt(detail: Mapping[str, Json]) -> str:
    return "" if detail.get("attempt") == 1 else _attempt(detail)
