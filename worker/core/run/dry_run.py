"""Dry run: decides up to the point where the job would be started, and keeps watching from there.

Its effects are a type of their own (`DryEffect`), which contains no job, no lock and no rerun.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.rules import leaves
from worker.core.model.sla_times import absolute_times
from worker.core.model.values import Json
from worker.core.run.clock_shift import decide_step, realign
from worker.core.run.context import UPSTREAM_PATIENCE, exclusion_of, limits
from worker.core.run.create import tell_begun_by_hand
from worker.core.run.drift import measure
from worker.core.run.effects import (
    BeginDryRun,
    DryEffect,
    EndDryRun,
    EvaluateNow,
    KeepBaseline,
    NoteHandled,
    NotePostRun,
    NoteSignal,
    ShiftTimes,
    WouldTrigger,
)
from worker.core.run.endings import budget_of
from worker.core.run.evaluation import post_run_sensors
from worker.core.run.facts import (
    ClockStepped,
    Fact,
    JobReport,
    JobReported,
    NewRun,
    Origin,
    PostRunSeen,
    RerunRequested,
    RulesHeld,
    RulesNotHeld,
    RunTriggered,
    SensorChanged,
    SensorReading,
    SensorSignal,
    TimerFired,
    TriggerRequested,
)
from worker.core.run.post_run import is_old_image, is_since_start, noted, with_newest
from worker.core.run.reruns import REPLAY, budget_for
from worker.core.run.sensor_match import SensorContent, period_said, triggered
from worker.core.run.state import (
    CHANGED_INPUTS_MAX,
    HANDLED_MAX,
    POST_RUN_SEEN_MAX,
    Budget,
    DryRun,
    DryState,
    Spent,
)
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339

NOTHING_SPENT = Spent()


def decide(
    run: DryRun | None,
    pipeline: Pipeline,
    schedule: Schedule,
    fact: Fact,
    now: datetime,
    *,
    spent: Spent = NOTHING_SPENT,
) -> list[DryEffect]:
    """Decide what happens next. The result is never empty: a fact that changes nothing is an `Ignore`.

    `spent` comes from the record of reruns. A dry run adds nothing to it, but the system that runs the real job does.
    """
    match fact:
        case RunTriggered() if run is None:
            return _begin(schedule, fact, now, signal=fact.signal)
        case TriggerRequested() if run is None:
            return _begin(schedule, fact, now, told=tell_begun_by_hand(fact))
        case TriggerRequested():
            return [Ignore(f"there is a dry run of {fact.key.period} already")]
        case RerunRequested():
            return _rerun(run, pipeline, schedule, fact, spent)
        case JobReported():
            return _reported(run, pipeline, schedule, fact, spent)
        case _ if run is None:
            return [Ignore(f"{type(fact).__name__}: there is no dry run for it")]
        case ClockStepped() if run.state is DryState.EVALUATING:
            return [decide_step(run.since, fact)]
        case TimerFired() if run.state is DryState.EVALUATING and (shift := realign(run.since, now)):
            return [shift]
        case _ if run.state is DryState.EVALUATING:
            return _evaluating(run, pipeline, schedule, fact, now)
        case RunTriggered(signal=signal) if signal is not None and run.state is DryState.WOULD_TRIGGER:
            return _late(run, signal, now)
        case PostRunSeen() if run.state is DryState.WOULD_TRIGGER:
            return _post_run(run, fact)
        case _:
            return [Ignore(f"{type(fact).__name__} does not apply to a dry run that is {run.state}")]


def _begin(
    schedule: Schedule,
    fact: RunTriggered | TriggerRequested,
    now: datetime,
    *,
    signal: SensorSignal | None = None,
    told: EmitEvent | None = None,
) -> list[DryEffect]:
    if reason := exclusion_of(schedule, fact.key.period):
        return [EmitEvent(type=EventType.PIPELINE_EXCLUDED, message=f"{fact.key} does not run: {reason}", once=True)]
    begun = BeginDryRun(
        key=fact.key,
        config_hash=fact.birth.config_hash,
        window_ends_at=now + schedule.evaluation.window + (UPSTREAM_PATIENCE if schedule.after else timedelta(0)),
        signal=signal.content_hash if signal else None,
        signal_key=signal.said_by if signal else "",
    )
    return [begun, *([told] if told else []), EvaluateNow()]


def _evaluating(run: DryRun, pipeline: Pipeline, schedule: Schedule, fact: Fact, now: datetime) -> list[DryEffect]:
    match fact:
        case RulesHeld():
            return _would_trigger(run, pipeline, schedule, fact, now)
        case RulesNotHeld(saw=saw, reason=reason) if now >= run.window_ends_at:
            told = EmitEvent(
                type=EventType.DRY_RUN_VALIDATION_EXHAUSTED, message=f"{run.key}: the rules did not hold: {reason}"
            )
            return [EndDryRun(saw, reason), told]
        case RulesNotHeld(reason=reason):
            return [Ignore(f"waiting: {reason}")]
        case TimerFired() | SensorChanged() | RunTriggered():
            return [EvaluateNow()]
        case _:
            return [Ignore(f"{type(fact).__name__} does not apply to a dry run that is {run.state}")]


def _would_trigger(
    run: DryRun, pipeline: Pipeline, schedule: Schedule, fact: RulesHeld, now: datetime
) -> list[DryEffect]:
    triggered: dict[str, Json] = {"triggeredAt": format_rfc3339(now)}
    baseline: list[DryEffect] = []
    if fact.baseline:
        message = f"{run.key}: drift is measured from now on against {', '.join(sorted(fact.baseline))}"
        told = EmitEvent(type=EventType.POST_RUN_BASELINE_CAPTURED, message=message)
        baseline = [KeepBaseline(fact.baseline, is_new=True), told]
    projection = _projection(run.key, schedule, now)
    return [
        WouldTrigger(fact.saw),
        *baseline,
        EmitEvent(
            type=EventType.DRY_RUN_WOULD_TRIGGER,
            message=f"{run.key}: the rules hold; the job would be started now",
            detail={**triggered, "rulesEvaluated": sum(1 for _ in leaves(pipeline.rules))},
        ),
        *_tell_projection(run.key, projection),
        EmitEvent(
            type=EventType.DRY_RUN_COMPLETED,
            message=f"{run.key}: the dry run is complete",
            detail={
                **triggered,
                "slaStatus": projection.get("status", "n/a"),
                **{name: projection[name] for name in ("estimatedCompletion", "deadline") if name in projection},
            },
        ),
    ]


def _projection(key: RunKey, schedule: Schedule, now: datetime) -> dict[str, Json]:
    """Project whether the deadline would be met if the job took its expected duration.

    Returns an empty result if no expected duration is configured.
    """
    sla = schedule.sla
    if sla is None or sla.expected_duration is None:
        return {}
    done_at = (now + sla.expected_duration).replace(microsecond=0)  # an estimate for people
    projection: dict[str, Json] = {
        "triggeredAt": format_rfc3339(now),
        "estimatedCompletion": format_rfc3339(done_at),
        "expectedDuration": format_duration(sla.expected_duration),
        "status": "met",
    }
    times = absolute_times(sla, schedule, key.period)
    if times is not None and times.breach_at is not None:
        projection["deadline"] = format_rfc3339(times.breach_at)
        projection["marginSeconds"] = (times.breach_at - done_at) // timedelta(seconds=1)
        projection["status"] = "breach" if done_at > times.breach_at else "met"
    return projection


def _tell_projection(key: RunKey, projection: dict[str, Json]) -> list[DryEffect]:
    if not projection:
        return []
    message = f"{key}: the job would be done at {projection['estimatedCompletion']}"
    if deadline := projection.get("deadline"):
        message += (
            f", {'too late for' if projection['status'] == 'breach' else 'in time for'} its deadline of {deadline}"
        )
    return [EmitEvent(type=EventType.DRY_RUN_SLA_PROJECTION, message=message, detail=projection)]


def _late(run: DryRun, signal: SensorSignal, now: datetime) -> list[DryEffect]:
    known = {run.late_reported, run.started_on.get(signal.sensor_key), run.changed_inputs.get(signal.said_by)}
    if signal.content_hash in known or not is_since_start(run, signal):
        return [Ignore(f"{signal.sensor_key} has not changed for the dry run")]
    if _is_from_before(run, signal.said_by, signal.image_at):
        return [Ignore(f"{signal.sensor_key} says what it said before")]
    late_by = _elapsed_text(now - run.since)
    return [
        NoteSignal(signal.content_hash, signal.said_by, signal.written_at),
        EmitEvent(
            type=EventType.DRY_RUN_LATE_DATA,
            message=f"{run.key}: {signal.sensor_key} changed {late_by} after the job would have been started",
            detail={"triggeredAt": format_rfc3339(run.since), "lateBy": late_by},
        ),
    ]


def _elapsed_text(elapsed: timedelta) -> str:
    """Format a duration as `45m0s`: consumers expect all smaller units, unlike durations in files."""
    minutes, seconds = divmod(elapsed // timedelta(seconds=1), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _post_run(run: DryRun, fact: PostRunSeen) -> list[DryEffect]:
    drift = fact.drift
    if drift is None or not drift.is_beyond:
        return [Ignore(f"{fact.sensor_key} has not drifted")]
    if run.post_run_seen.get(fact.sensor_key) == fact.content_hash:
        return [Ignore(f"{fact.sensor_key} was judged with this content already")]
    if _is_from_before(run, fact.sensor_key, fact.image_at):
        return [Ignore(f"{fact.sensor_key} says what it said before")]
    message = f"{run.key}: {drift.field} of {drift.sensor_key} moved by {drift.delta}"
    return [
        NotePostRun(fact.sensor_key, fact.content_hash, fact.written_at),
        EmitEvent(type=EventType.DRY_RUN_DRIFT, message=message, detail=drift.detail()),
    ]


def _is_from_before(run: DryRun, sensor_key: str, image_at: datetime | None) -> bool:
    """Return whether an image is older than what the dry run knows of its sensor.

    As for a run, except that a dry run records when its rules held, which is when the sensors were last read.
    """
    read_at = run.since if run.started_on else None
    return is_old_image(image_at, read_at=read_at, told_at=run.told_at.get(sensor_key))


def _rerun(
    run: DryRun | None, pipeline: Pipeline, schedule: Schedule, fact: RerunRequested, spent: Spent
) -> list[DryEffect]:
    if run is not None and fact.identity in run.handled:
        return [Ignore(f"request {fact.identity} was answered already")]
    handled: list[DryEffect] = [NoteHandled(fact.identity)] if run else []
    if reason := exclusion_of(schedule, fact.key.period):
        return [*handled, _tell_rejected(fact, f"excluded by calendar: {reason}", {}, once=run is None)]
    job = limits(pipeline)
    budget = budget_for(fact.reason)
    limit = job.max_drift_reruns if budget is Budget.DRIFT else job.max_manual_reruns
    used = 0 if budget is None else spent.of(budget)
    counts: dict[str, Json] = {"rerunCount": used, "budget": limit}
    if budget is not None and used >= limit:
        why = f"limit exceeded: {used} of {limit} {budget} reruns are used"
        return [*handled, _tell_rejected(fact, why, {"reason": "limit exceeded", **counts}, once=run is None)]
    if not fact.is_fresh and fact.reason != REPLAY:
        why = "circuit breaker: no sensor is newer than the success"
        return [*handled, _tell_rejected(fact, why, counts, once=run is None)]
    told = EmitEvent(
        type=EventType.DRY_RUN_WOULD_RERUN,
        message=f"{fact.key}: a rerun would be accepted: {fact.reason}",
        # The circuit breaker protects successes, and a dry run has none of its own.
        detail={"reason": fact.reason, "circuitBreaker": "skipped (no job history)", **counts},
        once=run is None,
    )
    return [*handled, told]


def _tell_rejected(fact: RerunRequested, why: str, counts: Mapping[str, Json], *, once: bool) -> EmitEvent:
    return EmitEvent(
        type=EventType.DRY_RUN_RERUN_REJECTED,
        message=f"{fact.key}: a rerun would be rejected ({fact.reason}): {why}",
        detail={"reason": why, **counts},
        once=once,
    )


def _reported(
    run: DryRun | None, pipeline: Pipeline, schedule: Schedule, fact: JobReported, spent: Spent
) -> list[DryEffect]:
    """Report what Interlock would have done about a failure of the real job.

    Another system may run that job alongside the dry run.
    """
    if fact.report is JobReport.SUCCESS or (run is not None and fact.identity in run.handled):
        return [Ignore("a dry run adds nothing to that report")]
    job = limits(pipeline)
    budget = budget_of(fact.category)
    limit, used = job.max_code_retries if budget is Budget.CODE else job.max_retries, spent.of(budget)
    excluded = exclusion_of(schedule, fact.key.period)
    would = used < limit and excluded is None
    why = excluded or f"{used} of {limit} retries are used"
    told = EmitEvent(
        type=EventType.DRY_RUN_WOULD_RETRY if would else EventType.DRY_RUN_RETRY_EXHAUSTED,
        message=f"{fact.key} would {'' if would else 'not '}be retried: {why}",
        detail={"retries": used, "maxRetries": limit},
        once=run is None,
    )
    return [*([NoteHandled(fact.identity)] if run else []), told]


def changes_since_start(
    run: DryRun,
    pipeline: Pipeline,
    schedule: Schedule,
    readings: Mapping[str, SensorReading],
    *,
    baseline: Mapping[str, Json],
    now: datetime,
) -> list[RunTriggered | PostRunSeen]:
    """Return which sensors differ from what the rules held on, if they are read after that was committed.

    The record of a change before the commit found a dry run that waited, and no end of a job compares the inputs.
    """
    found: list[RunTriggered | PostRunSeen] = []
    for name, reading in readings.items():
        said, content = SensorContent(reading.key or name, reading.data), reading.content_hash
        if content == run.started_on.get(name) or period_said(said, schedule, now)[0] != run.key.period:
            continue
        if schedule.trigger and name == schedule.trigger.rule.key and triggered(schedule, said, now):
            signal = SensorSignal(name, content, said_by=said.key)
            birth = NewRun("", run.config_hash)  # a dry run has no id
            found.append(RunTriggered(key=run.key, birth=birth, origin=Origin.SENSOR, signal=signal))
        before = baseline.get(name)
        if pipeline.post_run and name in post_run_sensors(pipeline) and isinstance(before, Mapping):
            drift = measure(pipeline.post_run, said.key, before, said.data)
            # whether the post-run rules hold makes no difference to a dry run
            found.append(PostRunSeen(sensor_key=said.key, content_hash=content, drift=drift, rules_held=True))
    return found


# --- evolve -----------------------------------------------------------------------------------------------------------


def evolve(run: DryRun | None, effects: Sequence[DryEffect], now: datetime, by: SessionId) -> DryRun | None:
    """Return the dry run after the effects; the same one if no effect changes its row."""
    before = run
    for effect in effects:
        run = _begun(effect, now) if isinstance(effect, BeginDryRun) else _applied(run, effect, now)
    if run is None or run == before:
        return run
    return replace(run, owner=by if run.state is DryState.EVALUATING else None)


def _begun(effect: BeginDryRun, now: datetime) -> DryRun:
    return DryRun(
        key=effect.key,
        config_hash=effect.config_hash,
        since=now,
        window_ends_at=effect.window_ends_at,
        late_reported=effect.signal,
        changed_inputs={effect.signal_key: effect.signal} if effect.signal_key and effect.signal else {},
    )


def _applied(run: DryRun | None, effect: DryEffect, now: datetime) -> DryRun | None:
    if run is None:
        return None
    match effect:
        case WouldTrigger(saw=saw):
            return replace(run, state=DryState.WOULD_TRIGGER, since=now, started_on=saw)
        case EndDryRun(saw=saw, reason=reason):
            return replace(run, state=DryState.EXHAUSTED, since=now, started_on=saw, reason=reason)
        case NoteSignal(content_hash=content_hash, sensor_key=key, written_at=at):
            known = run.changed_inputs
            changed = with_newest(known, key, content_hash, CHANGED_INPUTS_MAX) if key else known
            told_at = noted(run.told_at, key, at)
            return replace(run, late_reported=content_hash, changed_inputs=changed, told_at=told_at)
        case NotePostRun(sensor_key=key, content_hash=content_hash, written_at=at):
            newest = with_newest(run.post_run_seen, key, content_hash, POST_RUN_SEEN_MAX)
            return replace(run, post_run_seen=newest, told_at=noted(run.told_at, key, at))
        case ShiftTimes(by=by):
            return replace(run, since=run.since + by, window_ends_at=run.window_ends_at + by)
        case NoteHandled(identity=identity):
            return replace(run, handled=(*run.handled, identity)[-HANDLED_MAX:])
        case _:
            return run
