"""Endings: how attempts and runs end, from any state. Every end emits an event."""

from collections.abc import Mapping
from dataclasses import replace

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.job_data import JobOutputs
from worker.core.model.summaries import SUMMARY_KEY, merged_summary, summary_of
from worker.core.model.values import Json
from worker.core.run.context import STOP_PATIENCE, Context
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import (
    Effect,
    End,
    EvaluateNow,
    KeepOutputs,
    LogJob,
    MoveTo,
    NoteSummary,
    RecordRerun,
    Retry,
    WaiveDeadline,
)
from worker.core.run.facts import CancelRequested
from worker.core.run.state import AfterStop, Budget, FailureCategory, Outcome, Run, State
from worker.core.time.timestamps import format_rfc3339, format_utc

JOB_FAIL_RETRY = "job-fail-retry"
_FIX = "fix the job or its data, then rerun it; `interlock history` shows the job of each attempt"
NOBODY_KNOWS = "it is unknown whether it was started"


def tell_unchecked(context: Context, notices: tuple[str, ...]) -> list[Effect]:
    """Emit an event for a success whose check failed: it stands, because nothing disproves it."""
    if not notices:
        return []
    message = f"{context.run.key}: attempt {context.run.attempt} is taken for a success unchecked: {'; '.join(notices)}"
    return [
        EmitEvent(
            type=EventType.JOB_SUCCESS_UNCHECKED,
            message=message,
            detail={"attempt": context.run.attempt, "notices": list(notices)},
        )
    ]


def keep_outputs(run: Run, outputs: Mapping[str, Json] | None) -> list[Effect]:
    """Store what the job of the current attempt returned, if anything is known, and what it put before."""
    if outputs is None:
        return []
    put = {SUMMARY_KEY: dict(summary)} if run.summary and (summary := final_summary(run, outputs)) else {}
    return [KeepOutputs(JobOutputs(attempt=run.attempt, outputs={**outputs, **put}))]


def final_summary(run: Run, outputs: Mapping[str, Json] | None) -> Mapping[str, int] | None:
    """Return the summary of the current attempt; None if its job gave none."""
    return merged_summary(summary_of(outputs), run.summary)


def note_summary(run: Run, outputs: Mapping[str, Json] | None) -> list[Effect]:
    """Record the summary of the current attempt on the run, if it is new."""
    summary = final_summary(run, outputs)
    return [] if summary is None or summary == run.summary else [NoteSummary(summary)]


def budget_of(category: FailureCategory | None) -> Budget:
    return Budget.CODE if category is FailureCategory.PERMANENT else Budget.TRANSIENT


def after_failure(context: Context, category: FailureCategory | None, message: str, source: JobEvent) -> Decision:
    """Retry if the budget, the calendar and the run timeout allow it; otherwise the failure is final."""
    run, budget = context.run, budget_of(category)
    spent = run.spent.of(budget)
    limit = context.job.max_code_retries if budget is Budget.CODE else context.job.max_retries
    if spent >= limit:
        return _exhausted(context, f"{message} ({_used_up(budget, limit)})", category)
    if reason := context.excluded:
        return Decision.of(
            End(outcome=Outcome.FAILED, reason=f"{message}; not retried: {reason}", category=category),
            EmitEvent(
                type=EventType.PIPELINE_EXCLUDED,
                message=f"{run.key} is not retried: {reason}; attempt {run.attempt} failed: {message}",
                detail={"attempt": run.attempt, "final": True, "actionHint": _FIX},
            ),
        )
    if context.is_timed_out:
        return time_out(context, message)
    return Decision.of(
        Retry(budget=budget, reason=message, window_ends_at=context.evaluation_ends_at, category=category),
        RecordRerun(reason=JOB_FAIL_RETRY, source=source),
        EvaluateNow(),
    )


def _used_up(budget: Budget, limit: int) -> str:
    kind, setting = ("code retries", "job.maxCodeRetries") if budget is Budget.CODE else ("retries", "job.maxRetries")
    return f"{limit} of {limit} {kind} used" if limit else f"no {kind}: {setting} is 0"


def is_retry(decision: Decision) -> bool:
    """Return whether another attempt follows a failure."""
    return isinstance(decision.main, Retry)


def _exhausted(context: Context, reason: str, category: FailureCategory | None) -> Decision:
    return Decision.of(
        End(outcome=Outcome.FAILED, reason=reason, category=category),
        EmitEvent(
            type=EventType.RETRY_EXHAUSTED,
            message=f"{context.run.key} failed in attempt {context.run.attempt}: {reason}",
            detail={"attempt": context.run.attempt, "actionHint": _FIX},
        ),
    )


def time_out(context: Context, so_far: str) -> Decision:
    run = context.run
    reason = f"not done by {format_utc(run.timeout_at)}, when its patience ended; {so_far}"
    unanswered = tell_unanswered(context)
    return Decision.of(
        End(outcome=Outcome.TIMED_OUT, reason=reason),
        LogJob(event=JobEvent.RUN_TIMEOUT, message=reason),
        tell_timeout(context, reason, is_orphaned=bool(unanswered)),
        *unanswered,
    )


def tell_timeout(context: Context, reason: str, *, is_orphaned: bool = False) -> EmitEvent:
    hint = "find out what it waited for, then rerun it; raise job.runTimeoutSeconds if it needs longer"
    return EmitEvent(
        type=EventType.SFN_TIMEOUT,
        message=f"{context.run.key} timed out: {reason}",
        detail={
            "source": "watchdog",
            "ttlExpired": format_rfc3339(context.run.timeout_at),
            **({"orphaned": True} if is_orphaned else {}),  # alongside JOB_ORPHANED, which sends the alert
            "actionHint": hint,
        },
    )


def begin_stop(context: Context, after: AfterStop, reason: str, *, rerun_reason: str = "") -> Decision:
    """Stop a job that may be running; nothing else begins before it has stopped."""
    if context.run.is_out_of_reach:
        return orphan(replace(context, run=replace(context.run, after_stop=after, reason=reason)), NOBODY_KNOWS)
    ends_at = context.now + STOP_PATIENCE
    return Decision.of(
        MoveTo(
            state=State.STOPPING, after_stop=after, reason=reason, rerun_reason=rerun_reason, window_ends_at=ends_at
        ),
        *context.reach_for_job(),
    )


def cancel(context: Context, reason: str) -> Decision:
    return Decision.of(
        End(outcome=Outcome.CANCELLED, reason=reason),
        LogJob(event=JobEvent.CANCELLED, message=reason),
        EmitEvent(type=EventType.RUN_CANCELLED, message=f"{context.run.key} was cancelled: {reason}"),
        *tell_unanswered(context),
    )


def waive(fact: CancelRequested) -> list[Effect]:
    return [WaiveDeadline(fact.reason)] if fact.waive_sla else []


def waive_only(fact: CancelRequested, otherwise: str) -> Decision:
    """Waive the deadline even if a cancellation finds nothing to cancel."""
    return Decision.of(WaiveDeadline(fact.reason)) if fact.waive_sla else ignore(otherwise)


def orphan(context: Context, why: str) -> Decision:
    """Give up on a job that may still run; start nothing new, and emit an event that says what to check."""
    run = context.run
    reason = f"{run.reason}; {why}" if run.reason else why
    timed_out: list[Effect] = (
        [tell_timeout(context, reason, is_orphaned=True)] if run.after_stop is AfterStop.END else []
    )
    return Decision.of(
        End(outcome=Outcome.ORPHANED, reason=reason),
        LogJob(event=JobEvent.ORPHANED, message=reason),
        tell_orphan(context, why),
        *timed_out,
    )


def tell_unanswered(context: Context) -> list[Effect]:
    """Emit an event if a repeated start that got no answer may have left another job.

    The known job has ended. While the run continues, the answer to the repeat counts for both starts. But an end that
    states that nothing runs must report the other start.
    """
    run = context.run
    if not run.starts_unanswered:
        return []
    starts = "a start that was repeated" if run.starts_unanswered == 1 else "starts that were repeated"
    why = f"{starts} got no answer, so another job of it may exist"
    hint = "look for a second job with this token at its target, and stop it if it runs"
    return [
        EmitEvent(
            type=EventType.JOB_ORPHANED,
            message=f"{run.key}: a job of attempt {run.attempt} may still be running: {why}",
            detail={"job": None, "token": run.token, "attempt": run.attempt, "actionHint": hint},
        )
    ]


def tell_orphan(context: Context, why: str, job: Mapping[str, Json] | None = None) -> EmitEvent:
    run = context.run
    hint = "look for the job at its target by this id or token, stop it if it runs, then rerun"
    return EmitEvent(
        type=EventType.JOB_ORPHANED,
        message=f"{run.key}: the job of attempt {run.attempt} may still be running: {why}",
        detail={"job": job or run.job, "token": run.token, "attempt": run.attempt, "actionHint": hint},
    )
