"""How much an event asks of people, and which ones reach them at all."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from consumers.outbox.incidents import is_over_alarm
from consumers.outbox.patterns import EventPattern, parse_pattern
from consumers.outbox.routes import SOURCE
from worker.core.model.events import EventType
from worker.core.model.values import Json


class Severity(StrEnum):
    ALERT = "ALERT"  # a person must act
    WARNING = "WARNING"  # a person may have to
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
        EventType.JOB_POLL_EXHAUSTED,  # the job is stopped: what follows, a retry or the end, is told by itself
        EventType.SENSOR_DEADLINE_EXPIRED,
        EventType.POST_RUN_SENSOR_MISSING,
        EventType.POST_RUN_FAILED,
        EventType.POST_RUN_DRIFT,
        EventType.POST_RUN_DRIFT_INFLIGHT,
        EventType.BASELINE_CAPTURE_FAILED,
        EventType.JOB_SUCCESS_UNCHECKED,
        EventType.LATE_DATA_ARRIVAL,
        EventType.RERUN_REJECTED,
        EventType.TRIGGER_REJECTED,
        EventType.GRAIN_MISMATCH,
        EventType.DRY_RUN_VALIDATION_EXHAUSTED,
        EventType.DRY_RUN_RETRY_EXHAUSTED,
    }
)
_SUCCESSES: Final = frozenset({EventType.JOB_COMPLETED, EventType.SLA_MET})
# Steps on the way, for machines: people hear how it ended.
_UNTOLD: Final = frozenset(
    {
        EventType.JOB_TRIGGERED,
        EventType.VALIDATION_PASSED,
        EventType.POST_RUN_BASELINE_CAPTURED,
        EventType.POST_RUN_PASSED,
        EventType.WATCHDOG_HEARTBEAT,
    }
)


_GRAVITY: Final[Mapping[str, int]] = {
    Severity.NOTE: 0,
    Severity.SUCCESS: 0,
    Severity.WARNING: 1,
    Severity.ALERT: 2,
}
_NO_DETAIL: Final[Mapping[str, Json]] = {}


def severity_of(event_type: str, detail: Mapping[str, Json] = _NO_DETAIL) -> Severity:
    """Say how much an event asks of people: of all that is told of a final failure, one event is an alert.

    A failed attempt that is retried asks nothing of anybody. One that is not ends the run, and that is an event of its
    own. Where nothing says whether it will be retried, as in events of others, it alerts.
    """
    if event_type == EventType.JOB_FAILED and "willRetry" in detail:
        return Severity.NOTE
    if event_type == EventType.SFN_TIMEOUT and detail.get("orphaned") is True:
        return Severity.NOTE  # beside JOB_ORPHANED
    if event_type == EventType.PIPELINE_EXCLUDED and detail.get("final") is True:
        return Severity.ALERT  # the run has failed, and the calendar does not let it be retried
    if event_type == EventType.INFRA_ALARM and is_over_alarm(detail):
        return Severity.NOTE
    if event_type in _ALERTS:
        return Severity.ALERT
    if event_type in _WARNINGS:
        return Severity.WARNING
    return Severity.SUCCESS if event_type in _SUCCESSES else Severity.NOTE


def is_graver(severity: Severity, than: str) -> bool:
    """Say whether a severity calls people who were not called by the other; not if that one is not known."""
    return than in _GRAVITY and _GRAVITY[severity] > _GRAVITY[Severity(than)]


def graver_of(severity: Severity, other: str) -> Severity:
    return Severity(other) if other in _GRAVITY and _GRAVITY[Severity(other)] > _GRAVITY[severity] else severity


def gravest(severities: Iterable[str]) -> Severity:
    found = Severity.NOTE
    for each in severities:
        found = graver_of(found, each)
    return found


def is_told_by_its_end(event_type: str, detail: Mapping[str, Json]) -> bool:
    """Say whether the event that ends the run says all that this one does: a chat would tell it twice."""
    return event_type == EventType.JOB_FAILED and detail.get("willRetry") is False


def told_to_people() -> EventPattern:
    return parse_pattern(told_pattern())


def told_pattern() -> dict[str, Json]:
    """All events but the steps on the way: what is unknown here is rather told than kept back."""
    return {"source": [SOURCE], "detail-type": [{"anything-but": [*sorted(_UNTOLD)]}]}
