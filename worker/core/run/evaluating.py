"""EVALUATING: the rules do not hold yet."""

from collections.abc import Mapping

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.job_data import ReadInput, kept_inputs
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import (
    Effect,
    End,
    EvaluateNow,
    JudgeEvaluation,
    KeepBaseline,
    KeepInputs,
    KeepReadiness,
    LogJob,
    MoveTo,
    NoteGate,
    StartJob,
)
from worker.core.run.endings import cancel, time_out, waive
from worker.core.run.evaluation import readiness_of, required_sensors
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    RulesHeld,
    RulesNotHeld,
    RunTriggered,
    SensorChanged,
    TimerFired,
    UpstreamEnded,
    UpstreamsNotMet,
)
from worker.core.run.state import Outcome, StartStep, State


def decide_evaluating(context: Context, fact: Fact) -> Decision:
    match fact:
        case UpstreamsNotMet():
            return _hold_at_gate(context, fact)
        case TimerFired() if context.is_timed_out and context.run.is_at_gate:
            return Decision.of(EvaluateNow())  # the evaluation says what the run waited for
        case RulesHeld() | RulesNotHeld() | TimerFired() if context.is_timed_out:
            return time_out(context, "no job had been started")
        case RulesHeld():
            return _trigger(context, fact)
        case RulesNotHeld():
            return _wait(context, fact)
        case TimerFired() | SensorChanged() | UpstreamEnded():
            # Also at the end of the window: the last evaluation decides, whichever worker makes it and however late.
            return Decision.of(EvaluateNow())
        case RunTriggered(signal=signal) if signal is not None:
            return Decision.of(EvaluateNow())
        case RunTriggered():
            return ignore("the run exists already")
        case CancelRequested(reason=reason):
            return cancel(context, reason).also(*waive(fact))
        case _:
            return not_applicable(context.run, fact)


def _hold_at_gate(context: Context, fact: UpstreamsNotMet) -> Decision:
    if context.is_timed_out:
        return time_out(context, f"no job had been started: {fact.reason}")
    if context.run.is_at_gate:
        return ignore(f"waiting: {fact.reason}")
    # An upstream runs again: the window of the rules begins again once it has ended.
    return Decision.of(NoteGate(window_ends_at=None, timeout_at=context.new_timeout_at))


def _wait(context: Context, fact: RulesNotHeld) -> Decision:
    if context.run.is_at_gate:
        ends_at = context.now + context.schedule.evaluation.window
        return Decision.of(NoteGate(window_ends_at=ends_at, timeout_at=context.own_timeout_at))
    return _exhausted(context, fact) if context.is_window_over else ignore(f"waiting: {fact.reason}")


def _trigger(context: Context, fact: RulesHeld) -> Decision:
    run = context.run
    if context.pipeline.job is None:
        return _without_job(context)
    outputs = _outputs(context, fact)
    kept = {name: data for name, data in fact.baseline.items() if name not in outputs}
    baseline: list[Effect] = [KeepBaseline(kept, is_new=True)] if context.pipeline.post_run else []
    started_on = {name: content_hash for name, content_hash in fact.saw.items() if name not in outputs}
    gate = [NoteGate(window_ends_at=None, timeout_at=context.own_timeout_at)] if context.schedule.after else []
    return Decision.of(
        MoveTo(state=State.TRIGGERING, started_on=started_on, started_after=fact.upstreams, start_step=StartStep.SENT),
        *gate,
        *baseline,
        *_judged(context),
        *_readiness(context, fact),
        *_inputs(run.attempt, fact, started_on),
        EmitEvent(
            type=EventType.VALIDATION_PASSED,
            message=f"{run.key}: the rules hold; attempt {run.attempt} is started",
            detail={"attempt": run.attempt},
        ),
        StartJob(run.token, sending=0),
    )


def _readiness(context: Context, fact: RulesHeld) -> list[KeepReadiness]:
    """Replace the readiness row that is about this very run; any other is written apart from the run.

    Runs of other periods never write that row, so that their starts do not wait for each other.
    """
    if fact.readiness_version is None:
        return []
    return [KeepReadiness(readiness_of(context.run.key, fact, context.now, fact.readiness_version))]


def _judged(context: Context) -> list[JudgeEvaluation]:
    """Judge the deadline of the evaluation in the commit that starts the job: no breach can follow it."""
    sla = context.schedule.sla
    limited = sla is not None and (sla.evaluation_deadline or sla.max_evaluation)
    return [JudgeEvaluation(context.now)] if limited else []


def _inputs(attempt: int, fact: RulesHeld, started_on: Mapping[str, str]) -> list[KeepInputs]:
    read = [
        ReadInput(key=reading.key or name, content_hash=reading.content_hash, data=reading.data, size=reading.size)
        for name, reading in fact.readings.items()
        if name in started_on
    ]
    return [KeepInputs(kept_inputs(attempt, read))] if read else []


def _outputs(context: Context, fact: RulesHeld) -> set[str]:
    """Return the post-run sensors that appeared after the first start: outputs of the job, not inputs.

    The job or an audit of it wrote them. A rerun finds them, and would otherwise take its own result for a change of
    its data.
    """
    if context.run.attempt == 1:
        return set()
    return fact.saw.keys() - required_sensors(context.pipeline, context.schedule) - context.run.started_on.keys()


def _without_job(context: Context) -> Decision:
    reason = "the rules hold, but the pipeline has no job to start; add one, then rerun"
    return Decision.of(
        End(outcome=Outcome.FAILED, reason=reason),
        EmitEvent(type=EventType.INFRA_FAILURE, message=f"{context.run.key}: {reason}"),
    )


def _exhausted(context: Context, fact: RulesNotHeld) -> Decision:
    reason = f"the rules did not hold in time: {fact.reason}"
    hint = "find out why the data is late or wrong (`interlock explain`); when it is right, rerun it"
    return Decision.of(
        End(outcome=Outcome.EXHAUSTED, reason=reason, saw=fact.saw),
        LogJob(event=JobEvent.VALIDATION_EXHAUSTED, message=reason),
        EmitEvent(
            type=EventType.VALIDATION_EXHAUSTED, message=f"{context.run.key}: {reason}", detail={"actionHint": hint}
        ),
    )
