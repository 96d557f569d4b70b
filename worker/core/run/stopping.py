"""STOPPING: a job that may be running was told to stop, and nothing new begins before it has."""

from worker.core.model.effects import Ignore
from worker.core.model.events import JobEvent
from worker.core.model.pipeline import Overlap
from worker.core.run.context import STOP_PATIENCE, Context, not_applicable
from worker.core.run.effects import Effect, FindJob, NoteAfterStop, NoteJob, NoteStart, StopJob
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
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
    TimerFired,
)
from worker.core.run.inputs import note_signal
from worker.core.run.polling import old_report, with_report_noted
from worker.core.run.post_run import drift_in_flight
from worker.core.run.reruns import reopen
from worker.core.run.state import AfterStop, StartStep
from worker.core.run.success import succeed, succeed_as_reported
from worker.core.run.triggering import is_old_sending, is_only_job
from worker.core.time.durations import format_duration


def decide_stopping(case: Context, fact: Fact) -> list[Effect]:
    match fact:
        case JobStopped() | JobFailed():
            return _proceed(case)
        case JobSucceeded():
            return _succeeded(case, fact)
        case JobReported():
            return old_report(case, fact) or _reported(case, fact)
        case StopPending() | JobRunning() | JobStatusUnknown() | TimerFired() if case.is_window_over:
            return orphan(case, f"the stop was not confirmed within {format_duration(STOP_PATIENCE)}")
        case StopPending() | JobRunning() | JobStatusUnknown():
            return [Ignore("the stop is not confirmed yet")]
        case TimerFired():
            return [*case.reach_for_job()] or [Ignore("the start is still with its starter")]
        case StopRefused(message=message):
            return _cannot_stop(case, message)
        case CancelRequested():
            return _cancel_too(case, fact)
        case PostRunSeen():
            return drift_in_flight(case, fact)
        case RunTriggered(signal=signal) if signal is not None:
            return note_signal(case, signal)
        case _:
            return _about_start(case, fact)


def _about_start(case: Context, fact: Fact) -> list[Effect]:
    """The start may still have been on its way when the stop was decided."""
    match fact:
        case JobStarted() | JobFound() if case.run.job is None:
            return [NoteJob(fact.job, is_only_job(fact)), StopJob(fact.job)]
        case JobRefused() | JobNotFound() | StartUnanswered() | StarterLost() if case.run.job is not None:
            return [Ignore("the job is known: its start is settled")]
        case JobRefused() | JobNotFound() | StartUnanswered() | StarterLost() if is_old_sending(case.run, fact):
            return [Ignore(f"speaks of sending {fact.sending}, which is settled or still under way")]
        case JobRefused(can_find=True) if case.run.starts_unanswered:
            return _doubt(case, StartStep.UNANSWERED, can_find=True)
        case JobRefused() if case.run.starts_unanswered:
            return orphan(case, NOBODY_KNOWS)
        case JobRefused() | JobNotFound():
            return _proceed(case)
        case StartUnanswered():
            return _doubt(case, StartStep.UNANSWERED, can_find=fact.can_find)
        case StarterLost():
            return _doubt(case, StartStep.ABANDONED, can_find=fact.can_find)
        case _:
            return [*not_applicable(case.run, fact)]


def _doubt(case: Context, step: StartStep, *, can_find: bool) -> list[Effect]:
    if not can_find:
        return orphan(case, NOBODY_KNOWS)
    failures = case.run.start_failures
    return [NoteStart(step=step, failures=failures), FindJob(case.run.token, failures)]


def _proceed(case: Context) -> list[Effect]:
    """Nothing of the attempt runs any more: what was to follow follows."""
    run = case.run
    match run.after_stop:
        case AfterStop.RETRY:
            return after_failure(case, None, run.reason, JobEvent.JOB_POLL_EXHAUSTED)
        case AfterStop.SUPERSEDE:
            return reopen(case, run.rerun_reason, None)
        case AfterStop.CANCEL:
            return cancel(case, run.reason)
        case AfterStop.END | None:
            return time_out(case, run.reason)


def _succeeded(case: Context, fact: JobSucceeded | JobReported) -> list[Effect]:
    """A job that got done before the stop reached it is done, unless a person no longer wants its result."""
    if case.run.after_stop in {AfterStop.SUPERSEDE, AfterStop.CANCEL}:
        return _proceed(case)
    return succeed(case, fact) if isinstance(fact, JobSucceeded) else succeed_as_reported(case, fact)


def _reported(case: Context, fact: JobReported) -> list[Effect]:
    ended = _succeeded(case, fact) if fact.report is JobReport.SUCCESS else _proceed(case)
    return with_report_noted(fact, ended)


def _cannot_stop(case: Context, message: str) -> list[Effect]:
    wants_more = case.run.after_stop in {AfterStop.RETRY, AfterStop.SUPERSEDE}
    if wants_more and case.job.overlap is Overlap.ALLOW:
        return _proceed(case)
    return orphan(case, f"the target cannot stop it: {message}")


def _cancel_too(case: Context, fact: CancelRequested) -> list[Effect]:
    if case.run.after_stop is AfterStop.CANCEL:
        return waive_only(fact, "the run is being cancelled already")
    return [NoteAfterStop(AfterStop.CANCEL, fact.reason), *waive(fact)]
