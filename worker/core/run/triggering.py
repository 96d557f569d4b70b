"""TRIGGERING: intent and token are saved; the job may or may not exist yet.

A start is sent again only in three cases: the last sending certainly started nothing; the target recognises the second
one (after a lost starter); or the pipeline is configured for it (`onUnknownStart: restart`). In the last two cases the
run records that the job may be running: such a run never counts as idle, and its job never as not started.
"""

from datetime import timedelta

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.pipeline import OnUnknownStart
from worker.core.model.values import Json
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import End, FindJob, LogJob, MoveTo, NoteStart, StartJob
from worker.core.run.endings import begin_stop, cancel, keep_outputs, note_summary, time_out, waive
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobFound,
    JobNotFound,
    JobNotSeen,
    JobRefused,
    JobStarted,
    PostRunSeen,
    RunTriggered,
    SensorChanged,
    StarterLost,
    StartUnanswered,
    TimerFired,
)
from worker.core.run.inputs import note_input
from worker.core.run.post_run import drift_in_flight
from worker.core.run.state import AfterStop, FailureCategory, Outcome, Run, StartStep, State

START_BACKOFF = (timedelta(seconds=30), timedelta(seconds=60), timedelta(seconds=120))
# A target may ask for a longer pause; a wrong number must not hold a run for a day.
START_PAUSE_MAX = timedelta(minutes=15)


def decide_triggering(context: Context, fact: Fact) -> Decision:
    match fact:
        case JobStarted() | JobFound():
            return _started(context, fact)
        case JobRefused() | StartUnanswered() | StarterLost() | JobNotFound() if is_old_sending(context.run, fact):
            return ignore(f"speaks of sending {fact.sending}; {context.run.start_failures} is the last, or is settled")
        case JobRefused():
            return _refused(context, fact)
        case StartUnanswered(message=message):
            return _doubt(context, StartStep.UNANSWERED, message, can_find=fact.can_find)
        case StarterLost():
            return _doubt(context, StartStep.ABANDONED, "its starter was lost", can_find=fact.can_find)
        case JobNotSeen(sending=sending):
            return _not_seen(context.run, sending)
        case JobNotFound():
            return _not_found(context)
        case CancelRequested(reason=reason):
            ending = cancel(context, reason) if context.run.is_idle else begin_stop(context, AfterStop.CANCEL, reason)
            return ending.also(*waive(fact))
        case TimerFired():
            return _time_came(context)
        case PostRunSeen():
            return drift_in_flight(context, fact)
        case RunTriggered() | SensorChanged():
            return note_input(context, fact)
        case _:
            return not_applicable(context.run, fact)


def _refused(context: Context, fact: JobRefused) -> Decision:
    unanswered = context.run.starts_unanswered
    if unanswered and fact.can_find:
        # The refusal is about the last sending alone. The earlier one may still arrive, so search for its job.
        return _doubt(context, StartStep.UNANSWERED, fact.message, can_find=True)
    if fact.is_final:
        return _give_up(context, fact.message, fact.category, unanswered)
    return _failed(context, fact.message, fact.category, fact.retry_after, unanswered=unanswered)


def is_old_sending(run: Run, fact: JobRefused | StartUnanswered | StarterLost | JobNotFound) -> bool:
    """Return whether an answer is about a sending that is settled, or was followed by another."""
    if fact.sending != run.start_failures:
        return True
    match fact:
        case JobRefused(can_find=True) if run.starts_unanswered:
            return run.start_step is not StartStep.SENT  # already in doubt, because of the earlier sending
        case JobRefused():
            return run.start_step is StartStep.REFUSED
        case StartUnanswered() | StarterLost():
            return run.start_step is not StartStep.SENT
        case JobNotFound():
            return run.start_step not in {StartStep.UNANSWERED, StartStep.ABANDONED}


def is_only_job(fact: JobStarted | JobFound) -> bool:
    """Return whether every start of the attempt, including unanswered ones, has this same job."""
    return isinstance(fact, JobFound) or fact.can_find


def _started(context: Context, fact: JobStarted | JobFound) -> Decision:
    run, job = context.run, fact.job
    outputs = fact.outputs if isinstance(fact, JobStarted) else None
    return Decision.of(
        MoveTo(
            state=State.POLLING,
            job=job,
            job_type=context.job.type.value,
            window_ends_at=context.now + context.job.poll_window,
            is_only_job=is_only_job(fact),
        ),
        *keep_outputs(run, outputs),
        *note_summary(run, outputs),
        EmitEvent(
            type=EventType.JOB_TRIGGERED,
            message=f"{run.key}: the job of attempt {run.attempt} was started",
            detail={"attempt": run.attempt, "job": job},
        ),
    )


def _failed(
    context: Context,
    message: str,
    category: FailureCategory | None,
    retry_after: timedelta | None = None,
    *,
    unanswered: int,
) -> Decision:
    """Handle a start that failed, or is repeated as if it had: retry with the same token, or give up.

    `unanswered` is how many of the tries so far, including this one, may have started the job.
    """
    failures = context.run.start_failures
    if failures >= len(START_BACKOFF):
        return _give_up(context, message, category, unanswered)
    pause = max(START_BACKOFF[failures], min(retry_after or timedelta(), START_PAUSE_MAX))
    return Decision.of(
        NoteStart(
            step=StartStep.REFUSED,
            failures=failures + 1,
            after=context.now + pause,
            unanswered=unanswered,
            reason=message,
        ),
        LogJob(event=JobEvent.INFRA_TRIGGER_FAILURE, message=message, category=category),
    )


def _give_up(context: Context, message: str, category: FailureCategory | None, unanswered: int) -> Decision:
    tries = context.run.start_failures + 1
    if unanswered:
        # A refusal of the last try proves nothing about the others: one of them may have started the job.
        return _unknown(context, f"{unanswered} of {tries} tries got no answer; the last: {message}")
    number = "1 try" if tries == 1 else f"{tries} tries"
    reason = f"the target did not start the job in {number}; the last: {message}"
    detail: dict[str, Json] = {
        "attempt": context.run.attempt,
        "actionHint": "fix what the target rejects, then rerun it",
    }
    return Decision.of(
        End(outcome=Outcome.NOT_STARTED, reason=reason, category=category),
        LogJob(event=JobEvent.INFRA_TRIGGER_EXHAUSTED, message=message, category=category),
        EmitEvent(type=EventType.RETRY_EXHAUSTED, message=f"{context.run.key}: {reason}", detail=detail),
    )


def _doubt(context: Context, step: StartStep, message: str, *, can_find: bool) -> Decision:
    if can_find:
        return Decision.of(
            NoteStart(step=step, failures=context.run.start_failures, reason=message),
            LogJob(event=JobEvent.INFRA_TRIGGER_FAILURE, message=message),
            FindJob(context.run.token, context.run.start_failures),
        )
    if context.job.on_unknown_start is OnUnknownStart.RESTART:
        return _failed(context, message, None, unanswered=context.run.starts_unanswered + 1)
    return _unknown(context, message)


def _unknown(context: Context, why: str) -> Decision:
    """End the run because its start is in doubt: a person must check, and nothing new is started."""
    reason = f"start outcome unknown: {why}"
    hint = "see at the target whether the job ran; rerun if it did not"
    return Decision.of(
        End(outcome=Outcome.START_UNKNOWN, reason=reason),
        LogJob(event=JobEvent.START_UNKNOWN, message=reason),
        EmitEvent(
            type=EventType.JOB_START_UNKNOWN,
            message=f"{context.run.key}: {reason}",
            detail={"token": context.run.token, "attempt": context.run.attempt, "actionHint": hint},
        ),
    )


def _not_seen(run: Run, sending: int) -> Decision:
    """Send again what a lost starter may have sent: both sendings lead to the same job.

    The earlier sending stays in doubt. Only a started job settles it, or a search once it must have arrived.
    """
    if run.start_step is not StartStep.ABANDONED or sending != run.start_failures:
        return ignore("the start is not with a lost starter any more")
    if run.start_failures >= len(START_BACKOFF):
        return ignore("the start was sent as often as is allowed; it is looked for until it must have arrived")
    return _send(run, run.start_failures + 1, unanswered=run.starts_unanswered + 1)


def _not_found(context: Context) -> Decision:
    run = context.run
    if run.start_step is StartStep.UNANSWERED or run.start_failures >= len(START_BACKOFF):
        return _failed(context, "the start was not answered, and the target does not have the job", None, unanswered=0)
    # The target did nothing wrong, so no delay is needed: send at once. The sending still counts, because a start that
    # crashes its sender must not be repeated forever.
    return _send(run, run.start_failures + 1, unanswered=0)


def _time_came(context: Context) -> Decision:
    run = context.run
    if context.is_timed_out and run.is_idle:
        return time_out(context, "the target had refused to start it")
    if context.is_timed_out:
        return begin_stop(context, AfterStop.END, "it was being started")
    match run.start_step:
        case StartStep.REFUSED if _is_pause_over(context):
            return _send(run, run.start_failures)
        case StartStep.UNANSWERED | StartStep.ABANDONED:
            return Decision.of(FindJob(run.token, run.start_failures))
        case _:
            return ignore("the start waits for its time, or is with its starter")


def _is_pause_over(context: Context) -> bool:
    """Return whether the delay before the next try is over.

    A delay longer than the maximum was computed by a clock that was ahead, so it is over too.
    """
    until = context.run.start_after
    return until is None or context.now >= until or until - context.now > START_PAUSE_MAX


def _send(run: Run, sending: int, *, unanswered: int | None = None) -> Decision:
    return Decision.of(
        NoteStart(step=StartStep.SENT, failures=sending, unanswered=unanswered), StartJob(run.token, sending)
    )
