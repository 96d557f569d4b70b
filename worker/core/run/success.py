"""Success: how a job's success ends its run, and reports inputs that changed since the start."""

from collections.abc import Mapping
from datetime import datetime

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.summaries import summary_of, summary_text
from worker.core.run.context import Context
from worker.core.run.decision import Decision
from worker.core.run.effects import Effect, End, EvaluateAgain, JudgeDeadline, KeepBaseline, LogJob
from worker.core.run.endings import keep_outputs, tell_unanswered, tell_unchecked
from worker.core.run.evaluation import baseline
from worker.core.run.facts import Inputs, JobReported, JobSucceeded
from worker.core.run.inputs import Comparison, report_changes
from worker.core.run.state import Outcome


def succeed(context: Context, fact: JobSucceeded) -> Decision:
    """End the run, and report in the same commit what changed under its job."""
    notices = [*tell_unchecked(context, fact.notices), *keep_outputs(context.run, fact.outputs)]
    return _succeed(context, fact.ended_at, fact.inputs, notices, summary_of(fact.outputs))


def succeed_as_reported(context: Context, fact: JobReported) -> Decision:
    """End the run on a report. It names no job: if a start got no answer, the polled job may still run."""
    notices = [*tell_unanswered(context), *keep_outputs(context.run, fact.outputs)]
    return _succeed(context, fact.at, fact.inputs, notices, summary_of(fact.outputs))


def _succeed(
    context: Context,
    ended_at: datetime | None,
    inputs: Inputs | None,
    notices: list[Effect],
    summary: Mapping[str, int] | None,
) -> Decision:
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
        *(report_changes(context, compared) if compared else []),
    )


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
