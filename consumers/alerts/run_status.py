"""Compute the status of a run that the first message of its thread shows, from event to event."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from consumers.outbox.incidents import incident_of
from consumers.outbox.severities import Severity
from worker.core.model.events import Event, EventType


class RunStatus(StrEnum):
    NOTED = "noted"  # nothing is known about a run
    RUNNING = "running"
    RETRYING = "running again"
    BREACHED = "breached"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RECOVERED = "recovered"
    ONGOING = "ongoing"  # an incident, which is not about a run
    DONE = "done"


_BY_NAME: Final = {standing.value: standing for standing in RunStatus}
_TROUBLED: Final = frozenset({RunStatus.BREACHED, RunStatus.FAILED, RunStatus.RETRYING, RunStatus.RECOVERED})
_ENDED_WELL: Final = frozenset({RunStatus.DONE, RunStatus.RECOVERED})

_BREACHES: Final = frozenset(
    {
        EventType.SLA_BREACH,
        EventType.RELATIVE_SLA_BREACH,
        EventType.EVALUATION_SLA_BREACH,
        EventType.SCHEDULE_MISSED,
        EventType.IRREGULAR_SCHEDULE_MISSED,
        EventType.SENSOR_DEADLINE_EXPIRED,
    }
)
_FAILURES: Final = frozenset(
    {
        EventType.VALIDATION_EXHAUSTED,
        EventType.JOB_START_UNKNOWN,
        EventType.JOB_ORPHANED,
        EventType.RETRY_EXHAUSTED,
        EventType.INFRA_FAILURE,
        EventType.SFN_TIMEOUT,
    }
)
_GOING_ON: Final = frozenset({EventType.SLA_WARNING, EventType.RELATIVE_SLA_WARNING, EventType.TRIGGER_RECOVERED})
_BEGINNING_AGAIN: Final = frozenset({EventType.RERUN_ACCEPTED, EventType.JOB_FAILED, EventType.JOB_POLL_EXHAUSTED})
_SUCCESSES: Final = frozenset({EventType.JOB_COMPLETED, EventType.SLA_MET})

SEVERITIES: Final[Mapping[RunStatus, Severity]] = {
    RunStatus.NOTED: Severity.NOTE,
    RunStatus.RUNNING: Severity.WARNING,
    RunStatus.RETRYING: Severity.WARNING,
    RunStatus.BREACHED: Severity.ALERT,
    RunStatus.FAILED: Severity.ALERT,
    RunStatus.CANCELLED: Severity.NOTE,
    RunStatus.RECOVERED: Severity.SUCCESS,
    RunStatus.ONGOING: Severity.ALERT,
    RunStatus.DONE: Severity.SUCCESS,
}


def standing_of(text: str) -> RunStatus:
    """Return the status in a row. An absent or outdated value is NOTED."""
    return _BY_NAME.get(text, RunStatus.NOTED)


def standing_after(before: str, event: Event) -> RunStatus:
    """Return the status after an event; `before` is the status that the first message shows, or ""."""
    was, event_type = standing_of(before), event.type
    if (incident := incident_of(event)) is not None and incident.has_recovery:
        return RunStatus.RECOVERED if incident.is_over else RunStatus.ONGOING
    if event_type in _BREACHES:
        # The verdict of a run that ended too late comes together with its end, in either order.
        return RunStatus.RECOVERED if was in _ENDED_WELL else RunStatus.BREACHED
    if event_type in _FAILURES or (event_type == EventType.PIPELINE_EXCLUDED and event.detail.get("final") is True):
        return RunStatus.FAILED
    if event_type == EventType.RUN_CANCELLED:
        return RunStatus.CANCELLED
    if event_type in _SUCCESSES:
        return RunStatus.RECOVERED if was in _TROUBLED else RunStatus.DONE
    if event_type in _BEGINNING_AGAIN:
        return was if was is RunStatus.BREACHED else RunStatus.RETRYING
    if event_type in _GOING_ON:
        return was if was is not RunStatus.NOTED else RunStatus.RUNNING
    return was
