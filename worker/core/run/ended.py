"""COMPLETED and FAILED_FINAL: decides on facts that still reach an ended run."""

from worker.core.model.events import JobEvent
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import LogJob, NoteHandled, NoteJob
from worker.core.run.endings import after_failure, tell_orphan, waive_only
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobReport,
    JobReported,
    JobStarted,
    PostRunSeen,
    RunTriggered,
)
from worker.core.run.polling import report_event
from worker.core.run.post_run import judge_post_run, judge_signal
from worker.core.run.state import Outcome, State


def decide_ended(context: Context, fact: Fact) -> Decision:
    match fact:
        case RunTriggered(signal=signal) if signal is not None:
            return judge_signal(context, signal)
        case RunTriggered():
            return ignore("the run has been; a rerun must be asked for")
        case PostRunSeen():
            return judge_post_run(context, fact)
        case JobReported():
            return _reported(context, fact)
        case JobStarted():
            return _started_after_all(context, fact)
        case CancelRequested():
            return waive_only(fact, "the run has ended; there is nothing to cancel")
        case _:
            return not_applicable(context.run, fact)


def _reported(context: Context, fact: JobReported) -> Decision:
    """Retry a run that another system marked failed and then reported; Interlock's own ends are final.

    That system leaves the retry to the reader of its report.
    """
    run = context.run
    is_theirs = run.state is State.FAILED_FINAL and run.outcome is None
    if not is_theirs or fact.report is JobReport.SUCCESS or fact.identity in run.handled:
        return ignore("the run has ended; what is reported about it changes nothing")
    message = fact.message or f"the job was reported as {fact.report}"
    after = after_failure(context, fact.category, message, report_event(fact.report))
    return after.noting(NoteHandled(fact.identity))


def _started_after_all(context: Context, fact: JobStarted) -> Decision:
    run = context.run
    if run.job is not None or run.outcome is Outcome.SUCCEEDED:
        return ignore("the job is known")
    why = "its start was answered after the run had been given up"
    return Decision.of(
        NoteJob(fact.job), LogJob(event=JobEvent.ORPHANED, message=why), tell_orphan(context, why, fact.job)
    )
