"""Define the severity of events, and which events Interlock sends to people."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from consumers.outbox.incidents import is_over_alarm
from consumers.outbox.patterns import EventPattern, parse_pattern
from consumers.outbox.routes import SOURCE
from worker.core.model.events import EventType
from worker.core.model.values import Json


class Severity(StrEnum):
    ALERT = "ALERT"  # a person must act
    WARNING = "WARNING"  # a person may have to act
    SUCCESS = "OK"
    NOTE = "NOTE"


_ALERTS: Final = frozenset(
    {
        EventType.VALIDATION_EXHAUSTED,
        EventType.JOB_FAILED,
        EventType.JOB_START_UNKNOWN,
        EventType.JOB_ORPHANED,
        EventType.RETRY_EXHAUSTED,
        EventType.INFRA_FAILURE,
        EventType.INFRA_ALARM,
        EventType.SFN_TIMEOUT,
        EventType.SCHEDULE_MISSED,
        EventType.SLA_BREACH,
        EventType.RELATIVE_SLA_BREACH,
        EventType.EVALUATION_SLA_BREACH,
        EventType.DATA_DRIFT,
        EventType.CONFIG_REJECTED,
        EventType.DATA_LOSS_SUSPECTED,
        EventType.WATCHDOG_DEGRADED,
    }
)
_WARNINGS: Final = frozenset(
    {
        EventType.SLA_WARNING,
        EventType.RELATIVE_SLA_WARNING,
        EventType.IRREGULAR_SCHEDULE_MISSED,
        EventType.JOB_POLL_EXHAUSTED,  # the job is stopped; the end of the run has an event of its own
        EventType.SENSOR_DEADLINE_EXPIRED,
        EventType.POST_RUN_SENSOR_MISSING,
        EventType.POST_RUN_FAILED,
        EventType.POST_RUN_DRIFT,
        EventType.POST_RUN_DRIFT_INFLIGHT,
        EventType.BASELINE_CAPTURE_FAILED,
        EventType.JOB_SUCCESS_UNCHECKED,
        EventType.LATE_DATA_ARRIVAL,
        EventType.ARCHIVE_FAILED,
        EventType.RERUN_REJECTED,
        EventType.TRIGGER_REJECTED,
        EventType.GRAIN_MISMATCH,
        EventType.RESYNC_INCOMPLETE,
        EventType.PROBE_FAILED,
        EventType.DRY_RUN_VALIDATION_EXHAUSTED,
        EventType.DRY_RUN_RETRY_EXHAUSTED,
    }
)
_SUCCESSES: Final = frozenset({EventType.JOB_COMPLETED, EventType.SLA_MET})
# Intermediate steps, for machines: Interlock alerts people about the outcome.
_UNTOLD: Final = frozenset(
    {
        EventType.JOB_TRIGGERED,
        EventType.VALIDATION_PASSED,
        EventType.POST_RUN_BASELINE_CAPTURED,
        EventType.POST_RUN_PASSED,
        EventType.WATCHDOG_HEARTBEAT,
        EventType.OPERATOR_ACTION,  # a record of who asked for what; its effect has events of its own
    }
)


# The other severities that an event can have, by its detail: see `severity_of`.
_DEPENDING: Final[Mapping[str, Collection[Severity]]] = {
    EventType.JOB_FAILED: {Severity.NOTE},
    EventType.JOB_POLL_EXHAUSTED: {Severity.NOTE},
    EventType.SFN_TIMEOUT: {Severity.NOTE},
    EventType.PIPELINE_EXCLUDED: {Severity.ALERT},
    EventType.INFRA_ALARM: {Severity.NOTE},
}
_GRAVITY: Final[Mapping[str, int]] = {
    Severity.NOTE: 0,
    Severity.SUCCESS: 0,
    Severity.WARNING: 1,
    Severity.ALERT: 2,
}
_NO_DETAIL: Final[Mapping[str, Json]] = {}


def severity_of(event_type: str, detail: Mapping[str, Json] = _NO_DETAIL) -> Severity:
    """Return the severity of an event. A final failure has several events, and one of them is an alert.

    A failed attempt with a retry needs no action. One without a retry ends the run, and that is a separate event. If
    the detail does not say whether a retry follows, as in events of other publishers, the event is an alert.
    """
    if event_type == EventType.JOB_FAILED and "willRetry" in detail:
        return Severity.NOTE
    if event_type == EventType.JOB_POLL_EXHAUSTED and detail.get("willRetry") is True:
        return Severity.NOTE
    if event_type == EventType.SFN_TIMEOUT and detail.get("orphaned") is True:
        return Severity.NOTE  # JOB_ORPHANED is emitted as well
    if event_type == EventType.PIPELINE_EXCLUDED and detail.get("final") is True:
        return Severity.ALERT  # the run has failed, and the calendar forbids a retry
    if event_type == EventType.INFRA_ALARM and is_over_alarm(detail):
        return Severity.NOTE
    if event_type in _ALERTS:
        return Severity.ALERT
    if event_type in _WARNINGS:
        return Severity.WARNING
    return Severity.SUCCESS if event_type in _SUCCESSES else Severity.NOTE


def types_with(severities: Collection[Severity]) -> list[EventType]:
    """Return the types of alerts that can have one of these severities."""
    return [each for each in EventType if each not in _UNTOLD and any(_may_have(each, one) for one in severities)]


def _may_have(event_type: EventType, severity: Severity) -> bool:
    return severity_of(event_type) is severity or severity in _DEPENDING.get(event_type, ())


def is_graver(severity: Severity, than: str) -> bool:
    """Return whether a severity is higher than another one. Return False if the other one is unknown."""
    return than in _GRAVITY and _GRAVITY[severity] > _GRAVITY[Severity(than)]


def graver_of(severity: Severity, other: str) -> Severity:
    return Severity(other) if other in _GRAVITY and _GRAVITY[Severity(other)] > _GRAVITY[severity] else severity


def gravest(severities: Iterable[str]) -> Severity:
    found = Severity.NOTE
    for each in severities:
        found = graver_of(found, each)
    return found


def is_told_by_its_end(event_type: str, detail: Mapping[str, Json]) -> bool:
    """Return whether the event that ends the run contains this one, so that a chat would show it twice."""
    return event_type == EventType.JOB_FAILED and detail.get("willRetry") is False


def told_to_people() -> EventPattern:
    return parse_pattern(told_pattern())


def told_pattern() -> dict[str, Json]:
    """Return the pattern of all events except intermediate steps. Unknown events match, so none is hidden."""
    return {"source": [SOURCE], "detail-type": [{"anything-but": [*sorted(_UNTOLD)]}]}
