"""STOPPING: a job that may be running must stop, and nothing new begins before it has."""

from worker.core.model.events import JobEvent
from worker.core.model.pipeline import Overlap
from worker.core.run.context import STOP_PATIENCE, Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import FindJob, NoteAfterStop, NoteJob, NoteStart, StopJob
from worker.core.run.endings import (
    NOBODY_KNOWS,
    after_failure,
    cancel,
    orphan,
    time_out,
    waive,
    waive_only,
)
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobFailed,
    JobFound,
    JobNotFound,
    JobRefused,
    JobReport,
    JobReported,
    JobRunning,
    JobStarted,
    JobStatusUnknown,
    JobStopped,
    JobSucceeded,
    PostRunSeen,
    RunTriggered,
    SensorChanged,
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
    TimerFired,
)
from worker.core.run.inputs import note_input
from worker.core.run.polling import old_report, with_report_noted
from worker.core.run.post_run import drift_in_flight
from worker.core.run.reruns import reopen
from worker.core.run.state import AfterStop, StartStep
from worker.core.run.success import succeed, succeed_as_reported
from worker.core.run.triggering import is_old_sending, is_only_job
from worker.core.time.durations import format_duration


def decide_stopping(context: Context, fact: Fact) -> Decision:
    match fact:
        case JobStopped() | JobFailed():
            return _proceed(context)
        case JobSucceeded():
            return _succeeded(context, fact)
        case JobReported():
            return old_report(context, fact) or _reported(context, fact)
        case StopPending() | JobRunning() | JobStatusUnknown() | TimerFired() if context.is_window_over:
            return orphan(context, f"the stop was not confirmed within {format_duration(STOP_PATIENCE)}")
        case StopPending() | JobRunning() | JobStatusUnknown():
            return ignore("the stop is not confirmed yet")
        case TimerFired() if actions := context.reach_for_job():
            return Decision.of(*actions)
        case TimerFired():
            return ignore("the start is still with its starter")
        case StopRefused(message=message):
            return _cannot_stop(context, message)
        case CancelRequested():
            return _cancel_too(context, fact)
        case PostRunSeen():
            return drift_in_flight(context, fact)
        case RunTriggered() | SensorChanged():
            return note_input(context, fact)
        case _:
            return _about_start(context, fact)


def _about_start(context: Context, fact: Fact) -> Decision:
    """Decide on a fact about a start that may still have been under way when the stop was decided."""
    match fact:
        case JobStarted() | JobFound() if context.run.job is None:
            return Decision.of(NoteJob(fact.job, is_only_job(fact)), StopJob(fact.job))
        case JobRefused() | JobNotFound() | StartUnanswered() | StarterLost() if context.run.job is not None:
            return ignore("the job is known: its start is settled")
        case JobRefused() | JobNotFound() | StartUnanswered() | StarterLost() if is_old_sending(context.run, fact):
            return ignore(f"speaks of sending {fact.sending}, which is settled or still under way")
        case JobRefused(can_find=True) if context.run.starts_unanswered:
            return _doubt(context, StartStep.UNANSWERED, can_find=True)
        case JobRefused() if context.run.starts_unanswered:
            return orphan(context, NOBODY_KNOWS)
        case JobRefused() | JobNotFound():
            return _proceed(context)
        case StartUnanswered():
            return _doubt(context, StartStep.UNANSWERED, can_find=fact.can_find)
        case StarterLost():
            return _doubt(context, StartStep.ABANDONED, can_find=fact.can_find)
        case _:
            return not_applicable(context.run, fact)


def _doubt(context: Context, step: StartStep, *, can_find: bool) -> Decision:
    if not can_find:
        return orphan(context, NOBODY_KNOWS)
    failures = context.run.start_failures
    return Decision.of(NoteStart(step=step, failures=failures), FindJob(context.run.token, failures))


def _proceed(context: Context) -> Decision:
    """Do what was to follow the stop: nothing of the attempt runs any more."""
    run = context.run
    match run.after_stop:
        case AfterStop.RETRY:
            return after_failure(context, None, run.reason, JobEvent.JOB_POLL_EXHAUSTED)
        case AfterStop.SUPERSEDE:
            return reopen(context, run.rerun_reason, None)
        case AfterStop.CANCEL:
            return cancel(context, run.reason)
        case AfterStop.END | None:
            return time_out(context, run.reason)


def _succeeded(context: Context, fact: JobSucceeded | JobReported) -> Decision:
    """Accept a success from before the stop took effect, unless a person no longer wants its result."""
    if context.run.after_stop in {AfterStop.SUPERSEDE, AfterStop.CANCEL}:
        return _proceed(context)
    return succeed(context, fact) if isinstance(fact, JobSucceeded) else succeed_as_reported(context, fact)


def _reported(context: Context, fact: JobReported) -> Decision:
    ended = _succeeded(context, fact) if fact.report is JobReport.SUCCESS else _proceed(context)
    return with_report_noted(fact, ended)


def _cannot_stop(context: Context, message: str) -> Decision:
    wants_more = context.run.after_stop in {AfterStop.RETRY, AfterStop.SUPERSEDE}
    if wants_more and context.job.overlap is Overlap.ALLOW:
        return _proceed(context)
    return orphan(context, f"the target cannot stop it: {message}")


def _cancel_too(context: Context, fact: CancelRequested) -> Decision:
    if context.run.after_stop is AfterStop.CANCEL:
        return waive_only(fact, "the run is already being cancelled")
    return Decision.of(NoteAfterStop(AfterStop.CANCEL, fact.reason), *waive(fact))
