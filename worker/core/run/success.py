"""Success: how a job's success ends its run, and reports inputs that changed since the start."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from worker.core.errors import Rejected
from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.summaries import SUMMARY_KEY, merged_summary, summary_text
from worker.core.model.values import Json
from worker.core.run.context import Context
from worker.core.run.decision import Decision
from worker.core.run.effects import Effect, End, EvaluateAgain, JudgeDeadline, KeepBaseline, LogJob, NotePostRun
from worker.core.run.endings import final_summary, keep_outputs, note_summary, tell_unanswered, tell_unchecked
from worker.core.run.evaluation import baseline, post_run_sensors
from worker.core.run.facts import Inputs, JobReported, JobSucceeded
from worker.core.run.inputs import Comparison, report_changes
from worker.core.run.post_run import tell_post_run
from worker.core.run.state import Outcome, Run, State


def succeed(context: Context, fact: JobSucceeded) -> Decision:
    """End the run, and report in the same commit what changed under its job."""
    notices = tell_unchecked(context, fact.notices)
    return _succeed(context, fact.ended_at, fact.inputs, notices, fact.outputs)


def succeed_as_reported(context: Context, fact: JobReported) -> Decision:
    """End the run on a report. It names no job: if a start got no answer, the polled job may still run."""
    return _succeed(context, fact.at, fact.inputs, tell_unanswered(context), fact.outputs)


def _succeed(
    context: Context,
    ended_at: datetime | None,
    inputs: Inputs | None,
    notices: list[Effect],
    outputs: Mapping[str, Json] | None,
) -> Decision:
    summary = final_summary(context.run, outputs)
    compared = Comparison(context, inputs) if inputs else None
    if compared and (unnoted := compared.unnoted()):
        return Decision.of(*unnoted, EvaluateAgain())
    # A target whose clock is ahead must not date a success into the future.
    succeeded_at = min(ended_at or context.now, context.now)
    judged: list[Effect] = [JudgeDeadline(succeeded_at)] if context.schedule.sla else []
    monitor = context.pipeline.post_run.monitor if context.pipeline.post_run else None
    return Decision.of(
        End(outcome=Outcome.SUCCEEDED, monitored_until=context.now + monitor.lasts if monitor else None),
        LogJob(event=JobEvent.SUCCESS),
        EmitEvent(
            type=EventType.JOB_COMPLETED,
            message=f"{context.run.key} completed in attempt {context.run.attempt}{_in_words(summary)}",
            detail={"attempt": context.run.attempt, **({"summary": dict(summary)} if summary else {})},
        ),
        *judged,
        *(_complete_baseline(context, inputs) if inputs else []),
        *notices,
        *keep_outputs(context.run, outputs),
        *note_summary(context.run, outputs),
        *_judge_summary(context, inputs, summary),
        *(report_changes(context, compared, judged=bool(inputs and inputs.post_run_on_summary)) if compared else []),
    )


def _judge_summary(context: Context, inputs: Inputs | None, summary: Mapping[str, int] | None) -> list[Effect]:
    """Report the post-run rules if the summary decides them, and note that it arrived."""
    if summary is None or SUMMARY_KEY not in post_run_sensors(context.pipeline):
        return []
    noted = NotePostRun(SUMMARY_KEY, content_hash(dict(summary)))
    result = inputs.post_run_on_summary if inputs else None
    return [noted] if result is None else [noted, tell_post_run(context, result.reason, held=result.passed)]


def with_put_summary(run: Run, attempt: int | None, put: Mapping[str, int]) -> Run:
    """Return a run whose job puts counts; those it put before stay. Raises `Rejected` if no such job runs."""
    if attempt is not None and attempt != run.attempt:
        raise Rejected(f"attempt {attempt} of {run.key} is over: attempt {run.attempt} is the current one")
    summary = merged_summary(run.summary, put)
    if run.summary == summary:
        return run
    if run.is_ended:
        ended = f"attempt {run.attempt} of {run.key} has ended"
        raise Rejected(f"{ended}; a job must put its summary before its end, or report it together with it")
    if run.state is State.EVALUATING:
        raise Rejected(f"{run.key} is waiting: attempt {run.attempt} has started no job yet")
    return replace(run, summary=summary)


def _in_words(summary: Mapping[str, int] | None) -> str:
    return f": {summary_text(summary)}" if summary else ""


def _complete_baseline(context: Context, inputs: Inputs) -> list[Effect]:
    """Complete the baseline: inputs count as they were at the start, outputs as they are now."""
    now = baseline(context.pipeline, inputs.readings)
    written = {key: data for key, data in now.items() if key not in context.run.started_on}
    if not written:
        return []
    message = f"{context.run.key}: drift is measured from now on against {', '.join(sorted(written))}"
    return [
        KeepBaseline(written, is_new=False),
        EmitEvent(type=EventType.POST_RUN_BASELINE_CAPTURED, message=message),
    ]
