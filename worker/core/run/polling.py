"""POLLING: the job's id is known."""

from collections.abc import Mapping

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.values import Json
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import Effect, LogJob, NoteHandled, PollNow
from worker.core.run.endings import after_failure, begin_stop, is_retry, keep_outputs, note_summary, waive
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobFailed,
    JobReport,
    JobReported,
    JobRunning,
    JobStatusUnknown,
    JobSucceeded,
    PostRunSeen,
    RunTriggered,
    SensorChanged,
    TimerFired,
)
from worker.core.run.inputs import note_input
from worker.core.run.post_run import drift_in_flight
from worker.core.run.state import AfterStop
from worker.core.run.success import succeed, succeed_as_reported
from worker.core.time.durations import format_duration


def decide_polling(context: Context, fact: Fact) -> Decision:
    match fact:
        case JobSucceeded():
            return succeed(context, fact)
        case JobFailed():
            return _failed(context, fact)
        case JobRunning() | JobStatusUnknown() if context.is_window_over:
            return _poll_exhausted(context)
        case JobRunning() | JobStatusUnknown():
            return ignore("the job is not known to have ended")
        case JobReported():
            return old_report(context, fact) or _reported(context, fact)
        case TimerFired() if context.is_timed_out:
            return begin_stop(context, AfterStop.END, "its job was running")
        case TimerFired():
            # Also at the end of the window: the job is polled one last time before it is stopped.
            return Decision.of(PollNow(context.run.job or {}))
        case CancelRequested(reason=reason):
            return begin_stop(context, AfterStop.CANCEL, reason).also(*waive(fact))
        case PostRunSeen():
            return drift_in_flight(context, fact)
        case RunTriggered() | SensorChanged():
            return note_input(context, fact)
        case _:
            return not_applicable(context.run, fact)


def old_report(context: Context, fact: JobReported) -> Decision | None:
    """Ignore a report that was handled, or is about an earlier attempt; None for any other report.

    A report of another system names no attempt, so one from before the attempt began is about an earlier one.
    """
    if fact.identity in context.run.handled:
        return ignore(f"report {fact.identity} was taken in already")
    if fact.attempt is not None and fact.attempt != context.run.attempt:
        return ignore(f"the report is about attempt {fact.attempt}, which is over")
    if fact.at < context.run.attempt_began_at:
        return ignore("the report is older than the attempt and speaks of an earlier one")
    return None


def report_event(report: JobReport) -> JobEvent:
    return JobEvent.FAIL if report is JobReport.FAIL else JobEvent.TIMEOUT


def _reported(context: Context, fact: JobReported) -> Decision:
    ended = succeed_as_reported(context, fact) if fact.report is JobReport.SUCCESS else _reported_failure(context, fact)
    return with_report_noted(fact, ended)


def with_report_noted(fact: JobReported, decision: Decision) -> Decision:
    """Record the report, unless it must be decided again: then it is not handled yet."""
    return decision if decision.is_provisional else decision.noting(NoteHandled(fact.identity))


def _reported_failure(context: Context, fact: JobReported) -> Decision:
    message = fact.message or f"the job was reported as {fact.report}"
    if context.run.starts_unanswered:
        # The report names no job. It may be about the job of an unanswered start, so the known job must end first.
        return begin_stop(context, AfterStop.RETRY, message)
    after = after_failure(context, fact.category, message, report_event(fact.report))
    return after.also(*keep_outputs(context.run, fact.outputs), *_last_summary(context, after, fact.outputs))


def _failed(context: Context, fact: JobFailed) -> Decision:
    run = context.run
    after = after_failure(context, fact.category, fact.message, JobEvent.FAIL)
    return after.noting(
        LogJob(event=JobEvent.FAIL, message=fact.message, category=fact.category),
        EmitEvent(
            type=EventType.JOB_FAILED,
            message=f"{run.key}: the job of attempt {run.attempt} failed: {fact.message}",
            # The end of the run is an event of its own in the same commit, and that event sends the alert.
            detail={"attempt": run.attempt, "category": fact.category.value, "willRetry": is_retry(after)},
        ),
        *keep_outputs(run, fact.outputs),
        *_last_summary(context, after, fact.outputs),
    )


def _last_summary(context: Context, after: Decision, outputs: Mapping[str, Json] | None) -> list[Effect]:
    """Record the summary of a failed attempt, unless another one follows: the row is then about that one."""
    return [] if is_retry(after) else note_summary(context.run, outputs)


def _poll_exhausted(context: Context) -> Decision:
    run = context.run
    reason = f"the job did not end within its poll window of {format_duration(context.job.poll_window)}"
    return begin_stop(context, AfterStop.RETRY, reason).noting(
        LogJob(event=JobEvent.JOB_POLL_EXHAUSTED, message=reason),
        EmitEvent(
            type=EventType.JOB_POLL_EXHAUSTED,
            message=f"{run.key}: {reason}; it is stopped",
            detail={
                "attempt": run.attempt,
                "willRetry": is_retry(after_failure(context, None, reason, JobEvent.JOB_POLL_EXHAUSTED)),
                "actionHint": "raise job.jobPollWindowSeconds if it needs longer",
            },
        ),
    )
