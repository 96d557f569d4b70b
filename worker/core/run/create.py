"""Run creation: decides whether a run may be created; an existing run rejects a trigger request."""

from datetime import datetime

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.run_names import rerun_command
from worker.core.model.sla_times import times_for_run
from worker.core.model.values import Json
from worker.core.run.context import Context, exclusion_of, timeout_of, window_of
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import Create, EvaluateNow, LogJob, NoteHandled, RecordRerun, WatchDeadline
from worker.core.run.endings import waive_only
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobReport,
    JobReported,
    NewRun,
    Origin,
    RerunRequested,
    RunTriggered,
    SignalOverdue,
    TriggerRequested,
)
from worker.core.run.post_run import noted
from worker.core.run.reruns import REPLAY, is_automatic
from worker.core.run.state import PATH_MAX, STATE_WORDS, Deletion, Outcome, Run, State, altered
from worker.core.time.periods import sensor_keys
from worker.core.time.timestamps import format_rfc3339, format_utc

RERUN = "rerun"
TRIGGER = "trigger"
TRIGGER_DEADLINE = "trigger-deadline"


def decide_create(
    pipeline: Pipeline, schedule: Schedule, fact: Fact, now: datetime, deletion: Deletion | None = None
) -> Decision:
    """Decide whether a fact creates a run. After a deletion, only a person's new request does."""
    if deletion is not None and not _is_new_request(fact, deletion):
        deleted = f"{deletion.by} deleted the run at {format_utc(deletion.at)} ({deletion.reason})"
        return ignore(f"{deleted}; only a request starts it again: `interlock trigger` or `rerun`")
    match fact:
        case RunTriggered() | RerunRequested() | TriggerRequested() | SignalOverdue() if pipeline.dry_run:
            return ignore(f"{pipeline.id} is in dry run, so no job starts")
        case RunTriggered():
            return _refuse_cascade(pipeline, fact) or _wanted(pipeline, schedule, fact, now)
        case RerunRequested():
            return _requested(pipeline, schedule, fact, now)
        case TriggerRequested():
            return _started_by_hand(pipeline, schedule, fact, now)
        case SignalOverdue():
            return _give_up(pipeline, schedule, fact, now)
        case JobReported(report=JobReport.SUCCESS):
            # As in the Lambda edition, a success that another system reports is passed on, even for an unknown run.
            return Decision.of(
                EmitEvent(
                    type=EventType.JOB_COMPLETED, message=f"{fact.key}: the job was reported successful", once=True
                )
            )
        case CancelRequested():
            return waive_only(fact, "there is no run to cancel")
        case _:
            return ignore(f"{type(fact).__name__}: there is no such run")


def _is_new_request(fact: Fact, deletion: Deletion) -> bool:
    """Return whether a person asks for the run since its deletion; Interlock's own requests are older."""
    match fact:
        case RerunRequested(reason=reason) if is_automatic(reason):
            return False
        case RerunRequested(identity=identity) | TriggerRequested(identity=identity):
            return identity not in deletion.handled
        case _:
            return False


def _refuse_cascade(pipeline: Pipeline, fact: RunTriggered) -> Decision | None:
    if pipeline.id in fact.path:
        came = " -> ".join(fact.path)
        return ignore(f"the cascade has already come through {pipeline.id} ({came}); it would go round for ever")
    if len(fact.path) > PATH_MAX:
        return ignore(f"the cascade is longer than {PATH_MAX} pipelines; it goes no further")
    return None


def _wanted(pipeline: Pipeline, schedule: Schedule, fact: RunTriggered, now: datetime) -> Decision:
    if reason := exclusion_of(schedule, fact.key.period):
        return Decision.of(_tell_excluded(fact.key, reason))
    recovered = [_tell_recovered(fact.key)] if fact.origin is Origin.RECONCILIATION else []
    signal = fact.signal.content_hash if fact.signal else None
    run = _new_run(pipeline, schedule, fact.key, fact.birth, now, origin=fact.origin.value, signal=signal)
    run = altered(run, path=fact.path, is_followed=fact.is_followed, told_at=_first_told_at(fact))
    return Decision.of(Create(run), *_watch(schedule, fact, now, fact.arrived_at), *recovered, EvaluateNow())


def _first_told_at(fact: RunTriggered) -> dict[str, datetime]:
    """Return when the first sensor was written, if no evaluation reads it."""
    signal = fact.signal
    if signal is None or signal.said_by in {"", *sensor_keys(signal.sensor_key, fact.key.period)}:
        return {}
    return noted({}, signal.said_by, signal.written_at)


def _requested(pipeline: Pipeline, schedule: Schedule, fact: RerunRequested, now: datetime) -> Decision:
    """Create the row that a rerun needs, so that a lost or never started run can always be repeated."""
    if reason := exclusion_of(schedule, fact.key.period):
        return Decision.of(LogJob(event=JobEvent.RERUN_REJECTED, message=reason), _tell_excluded(fact.key, reason))
    # A replay covers past periods, whose deadlines were judged when they were due.
    watch = [] if fact.reason == REPLAY else _watch(schedule, fact, now, None)
    origin = REPLAY if fact.reason == REPLAY else RERUN
    run = _new_run(pipeline, schedule, fact.key, fact.birth, now, origin=origin, handled=(fact.identity,))
    return Decision.of(
        Create(altered(run, is_followed=fact.is_followed)),
        *watch,
        RecordRerun(reason=fact.reason),
        LogJob(event=JobEvent.RERUN_ACCEPTED, message=fact.reason),
        EmitEvent(
            type=EventType.RERUN_ACCEPTED, message=f"{fact.key} begins: {fact.reason}", detail={"reason": fact.reason}
        ),
        EvaluateNow(),
    )


def _started_by_hand(pipeline: Pipeline, schedule: Schedule, fact: TriggerRequested, now: datetime) -> Decision:
    """Create the run as though its trigger had held.

    Only the trigger is replaced: the run's rules are evaluated.
    """
    if reason := exclusion_of(schedule, fact.key.period):
        return Decision.of(_tell_excluded(fact.key, reason))
    return Decision.of(
        Create(_new_run(pipeline, schedule, fact.key, fact.birth, now, origin=TRIGGER, handled=(fact.identity,))),
        *_watch(schedule, fact, now, fact.arrived_at),
        tell_begun_by_hand(fact),
        EvaluateNow(),
    )


def tell_begun_by_hand(fact: TriggerRequested) -> EmitEvent:
    return EmitEvent(
        type=EventType.TRIGGER_ACCEPTED,
        message=f"{fact.key} begins: {fact.reason} (requested by {fact.by})",
        detail={"reason": fact.reason, "requestedBy": fact.by},
    )


def decide_trigger_of_existing(context: Context, fact: TriggerRequested) -> Decision:
    """Reject a trigger request, once: the run exists, and only a rerun repeats it."""
    run = context.run
    if fact.identity in run.handled:
        return ignore(f"request {fact.identity} was answered already")
    why = f"the run exists and is {STATE_WORDS[run.state]}"
    again = rerun_command(run.key, context.pipeline)
    hint = f"to run it again: `{again}`" if run.is_ended else f"to stop it and start again: `{again} --supersede`"
    return Decision.of(
        NoteHandled(fact.identity),
        EmitEvent(
            type=EventType.TRIGGER_REJECTED,
            message=f"{run.key}: trigger rejected ({fact.reason}, requested by {fact.by}): {why}",
            detail={"reason": why, "requestedBy": fact.by, "actionHint": hint},
        ),
    )


def _give_up(pipeline: Pipeline, schedule: Schedule, fact: SignalOverdue, now: datetime) -> Decision:
    """Create the run as failed, so that no later sensor can start it. A rerun request still can."""
    if excluded := exclusion_of(schedule, fact.key.period):
        return ignore(f"no trigger sensor was due: {excluded}")
    reason = f"no trigger sensor arrived by {format_utc(fact.deadline_at)}"
    closed = Run(
        key=fact.key,
        run_id=fact.birth.run_id,
        state=State.FAILED_FINAL,
        config_hash=fact.birth.config_hash,
        created_at=now,
        since=now,
        timeout_at=now,
        outcome=Outcome.EXHAUSTED,
        reason=reason,
        origin=TRIGGER_DEADLINE,
        pipeline_owner=pipeline.owner,
    )
    hint = "find out why the data is late; when it has arrived, request a rerun"
    # The run has failed, and its own deadline applies as after any failure: a person may rerun it before then. A
    # deadline that has passed was reported when it was due, perhaps in one alert with others.
    watch = [each for each in _watch(schedule, fact, None, None) if not each.times.is_over(now)]
    return Decision.of(
        Create(closed),
        *watch,
        EmitEvent(
            type=EventType.SENSOR_DEADLINE_EXPIRED,
            message=f"{fact.key} does not start: {reason}",
            detail={"source": "watchdog", **deadline_detail(schedule, fact.deadline_at), "actionHint": hint},
        ),
    )


def deadline_detail(schedule: Schedule, deadline_at: datetime) -> dict[str, Json]:
    """Return a trigger deadline as event detail: as configured, for existing consumers, and as an instant."""
    at = format_rfc3339(deadline_at)
    configured = schedule.trigger.deadline if schedule.trigger else None
    return {"triggerDeadline": str(configured) if configured else at, "deadlineAt": at}


def _new_run(
    pipeline: Pipeline,
    schedule: Schedule,
    key: RunKey,
    birth: NewRun,
    now: datetime,
    *,
    origin: str,
    signal: str | None = None,
    handled: tuple[str, ...] = (),
) -> Run:
    return Run(
        key=key,
        run_id=birth.run_id,
        config_hash=birth.config_hash,
        created_at=now,
        attempt_at=now,
        since=now,
        window_ends_at=window_of(schedule, now),
        timeout_at=timeout_of(pipeline, schedule, now),
        # The run's own first trigger sensor, delivered again after the end, must not count as late data.
        late_reported=signal,
        handled=handled,
        origin=origin,
        pipeline_owner=pipeline.owner,
    )


def _watch(
    schedule: Schedule,
    fact: RunTriggered | RerunRequested | TriggerRequested | SignalOverdue,
    begun_at: datetime | None,
    arrived_at: datetime | None,
) -> list[WatchDeadline]:
    sla = schedule.sla
    if sla is None:
        return []
    times = times_for_run(sla, schedule, fact.key.period, arrived_at, begun_at=begun_at)
    if times is None:
        return []
    counted_from = arrived_at if sla.max_duration else None
    return [WatchDeadline(times=times, arrived_at=counted_from, config_hash=fact.birth.config_hash)]


def _tell_excluded(key: RunKey, reason: str) -> EmitEvent:
    return EmitEvent(type=EventType.PIPELINE_EXCLUDED, message=f"{key} does not run: {reason}", once=True)


def _tell_recovered(key: RunKey) -> EmitEvent:
    hint = "its trigger sensor had no run; check whether changes were lost on the way"
    return EmitEvent(
        type=EventType.TRIGGER_RECOVERED,
        message=f"{key} starts late: its trigger sensor had been missed",
        detail={"source": "reconciliation", "actionHint": hint},
    )
