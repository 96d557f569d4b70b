"""Events: the closed list of their types, and one event as a value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.run_names import short_name
from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Event: something that happened. It may come from another system, so its names are not checked.

    `order` is its place among the events of its decision, which all have the same time.
    """

    id: str
    type: str
    at: datetime
    pipeline: str = ""
    schedule: str = ""
    period: str = ""
    message: str = ""
    detail: Mapping[str, Json] = field(default_factory=dict[str, Json])
    order: int = 0

    @property
    def about(self) -> str:
        """Return the name that messages about the run contain; "" if the event is about no pipeline."""
        return "/".join(part for part in (self.pipeline, self.schedule, self.period) if part)

    @property
    def sentence(self) -> str:
        """Return the message without the run in front, for places that name the run themselves."""
        rest = self.message.removeprefix(self.about)
        # The name of a day is also the beginning of the names of its hours.
        is_named = bool(self.about) and rest != self.message and rest[:1] in {" ", ":"}
        return rest.lstrip(": ") if is_named else self.message

    @property
    def named_sentence(self) -> str:
        """Return the message with the run in front, named as people see it."""
        name = short_name(self.pipeline, self.schedule, self.period)
        if self.about and self.about in self.message:
            return self.message.replace(self.about, name)
        return f"{name}: {self.message}" if name and self.message else self.message or name


class EventType(StrEnum):
    """Lists Interlock's event types. Consumers match on these names, so none is ever renamed."""

    # the run
    JOB_TRIGGERED = "JOB_TRIGGERED"
    VALIDATION_PASSED = "VALIDATION_PASSED"
    VALIDATION_EXHAUSTED = "VALIDATION_EXHAUSTED"
    JOB_COMPLETED = "JOB_COMPLETED"
    JOB_FAILED = "JOB_FAILED"
    JOB_POLL_EXHAUSTED = "JOB_POLL_EXHAUSTED"
    RETRY_EXHAUSTED = "RETRY_EXHAUSTED"
    INFRA_FAILURE = "INFRA_FAILURE"
    SFN_TIMEOUT = "SFN_TIMEOUT"
    LATE_DATA_ARRIVAL = "LATE_DATA_ARRIVAL"
    ARCHIVE_FAILED = "ARCHIVE_FAILED"
    RERUN_ACCEPTED = "RERUN_ACCEPTED"
    RERUN_REJECTED = "RERUN_REJECTED"
    PIPELINE_EXCLUDED = "PIPELINE_EXCLUDED"

    # the watchdog
    SCHEDULE_MISSED = "SCHEDULE_MISSED"
    IRREGULAR_SCHEDULE_MISSED = "IRREGULAR_SCHEDULE_MISSED"
    TRIGGER_RECOVERED = "TRIGGER_RECOVERED"
    SENSOR_DEADLINE_EXPIRED = "SENSOR_DEADLINE_EXPIRED"
    POST_RUN_SENSOR_MISSING = "POST_RUN_SENSOR_MISSING"
    WATCHDOG_DEGRADED = "WATCHDOG_DEGRADED"

    # the deadline
    SLA_WARNING = "SLA_WARNING"
    SLA_BREACH = "SLA_BREACH"
    SLA_MET = "SLA_MET"
    RELATIVE_SLA_WARNING = "RELATIVE_SLA_WARNING"
    RELATIVE_SLA_BREACH = "RELATIVE_SLA_BREACH"
    EVALUATION_SLA_BREACH = "EVALUATION_SLA_BREACH"

    # after the run
    POST_RUN_BASELINE_CAPTURED = "POST_RUN_BASELINE_CAPTURED"
    BASELINE_CAPTURE_FAILED = "BASELINE_CAPTURE_FAILED"
    POST_RUN_PASSED = "POST_RUN_PASSED"
    POST_RUN_FAILED = "POST_RUN_FAILED"
    POST_RUN_DRIFT = "POST_RUN_DRIFT"
    POST_RUN_DRIFT_INFLIGHT = "POST_RUN_DRIFT_INFLIGHT"
    DATA_DRIFT = "DATA_DRIFT"

    # the dry run
    DRY_RUN_WOULD_TRIGGER = "DRY_RUN_WOULD_TRIGGER"
    DRY_RUN_LATE_DATA = "DRY_RUN_LATE_DATA"
    DRY_RUN_SLA_PROJECTION = "DRY_RUN_SLA_PROJECTION"
    DRY_RUN_DRIFT = "DRY_RUN_DRIFT"
    DRY_RUN_COMPLETED = "DRY_RUN_COMPLETED"
    DRY_RUN_WOULD_RERUN = "DRY_RUN_WOULD_RERUN"
    DRY_RUN_RERUN_REJECTED = "DRY_RUN_RERUN_REJECTED"
    DRY_RUN_WOULD_RETRY = "DRY_RUN_WOULD_RETRY"
    DRY_RUN_RETRY_EXHAUSTED = "DRY_RUN_RETRY_EXHAUSTED"

    INFRA_ALARM = "INFRA_ALARM"

    # types that the Lambda edition does not have
    JOB_START_UNKNOWN = "JOB_START_UNKNOWN"
    JOB_ORPHANED = "JOB_ORPHANED"
    RUN_CANCELLED = "RUN_CANCELLED"
    DRY_RUN_VALIDATION_EXHAUSTED = "DRY_RUN_VALIDATION_EXHAUSTED"
    SLA_WAIVED = "SLA_WAIVED"
    CONFIG_REJECTED = "CONFIG_REJECTED"
    TRIGGER_REJECTED = "TRIGGER_REJECTED"  # a sensor, a cascade or a person asks for a run that may not begin
    TRIGGER_ACCEPTED = "TRIGGER_ACCEPTED"  # a person starts a run; its rules are evaluated as ever
    UPSTREAM_FAILED = "UPSTREAM_FAILED"  # a run cannot start because a run that it depends on failed
    PROBE_FAILED = "PROBE_FAILED"  # a probe that runs wait for has no valid result, and its requests fail
    GRAIN_MISMATCH = "GRAIN_MISMATCH"  # a sensor names a day where the schedule expects hours, or the reverse
    CONFIG_ACCEPTED = "CONFIG_ACCEPTED"  # only after CONFIG_REJECTED
    DATA_LOSS_SUSPECTED = "DATA_LOSS_SUSPECTED"
    DATA_RESYNCED = "DATA_RESYNCED"  # after DATA_LOSS_SUSPECTED: every row was read again
    RESYNC_INCOMPLETE = "RESYNC_INCOMPLETE"  # a trigger with `match: prefix` has more sensors than a resync handles
    JOB_SUCCESS_UNCHECKED = "JOB_SUCCESS_UNCHECKED"  # with JOB_COMPLETED: its confirmation is unreadable
    JOB_ORPHAN_ENDED = "JOB_ORPHAN_ENDED"
    WATCHDOG_RECOVERED = "WATCHDOG_RECOVERED"
    WATCHDOG_HEARTBEAT = "WATCHDOG_HEARTBEAT"
    OPERATOR_ACTION = "OPERATOR_ACTION"  # a person or program asked for a change, and who it was
    ALERT_PATH_CHECK = "ALERT_PATH_CHECK"  # sent to Interlock itself, to check that an alert would arrive


class JobEvent(StrEnum):
    """Lists the events of the job log. Other systems also write the first three, which are then facts."""

    SUCCESS = "success"
    FAIL = "fail"
    TIMEOUT = "timeout"
    VALIDATION_EXHAUSTED = "validation-exhausted"
    JOB_POLL_EXHAUSTED = "job-poll-exhausted"
    INFRA_TRIGGER_FAILURE = "infra-trigger-failure"
    INFRA_TRIGGER_EXHAUSTED = "infra-trigger-exhausted"
    LATE_DATA_ARRIVAL = "late-data-arrival"
    RERUN_ACCEPTED = "rerun-accepted"
    RERUN_REJECTED = "rerun-rejected"
    START_UNKNOWN = "start-unknown"
    ORPHANED = "orphaned"
    CANCELLED = "cancelled"
    RUN_TIMEOUT = "run-timeout"  # not `timeout`, which means that the job itself timed out


# Events of one decision that were stored without their order: the types are declared in the order of a run's states.
_DECLARED: Final = {event_type.value: number for number, event_type in enumerate(EventType)}


def in_order(events: Iterable[Event]) -> list[Event]:
    """Sort oldest first; events of one time in the order in which the run caused them."""
    return sorted(events, key=causal_order)


def causal_order(event: Event) -> tuple[datetime, str, int, int, int, str]:
    """Return the place of an event in a list: by time, then as its run caused it."""
    version, declared = event.detail.get("version"), _DECLARED.get(event.type, 0)
    return event.at, event.pipeline, version if isinstance(version, int) else 0, event.order, declared, event.id


def shown_type(event_type: str) -> str:
    """Return what people see: the type itself, unless it names another system's parts."""
    return "run timed out" if event_type == EventType.SFN_TIMEOUT else event_type
