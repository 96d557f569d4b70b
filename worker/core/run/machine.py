"""The run machine: `decide` says what must happen, `evolve` what the run then is.

Every rule that moves a run is reached from here. One module per state holds the rules (`evaluating.py` and its
neighbours); `state.py` holds the data.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.effects import Ignore
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.clock_shift import decide_step, realign, shifted
from worker.core.run.context import UPSTREAM_PATIENCE, Context, limits
from worker.core.run.create import decide_create, decide_trigger_of_existing
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import (
    Create,
    Effect,
    End,
    MoveTo,
    NoteAfterStop,
    NoteChange,
    NoteGate,
    NoteHandled,
    NoteJob,
    NotePostRun,
    NoteSignal,
    NoteStart,
    NoteSummary,
    NoteUpstreams,
    Reopen,
    Retry,
    ShiftTimes,
    StartJob,
)
from worker.core.run.ended import decide_ended
from worker.core.run.evaluating import decide_evaluating
from worker.core.run.facts import (
    AboutAttempt,
    CancelRequested,
    ClockStepped,
    Fact,
    RerunRequested,
    TimerFired,
    TriggerRequested,
)
from worker.core.run.polling import decide_polling
from worker.core.run.post_run import noted, with_newest
from worker.core.run.reruns import decide_rerun
from worker.core.run.state import (
    ATTEMPT_REASON_MAX,
    ATTEMPTS_MAX,
    CHANGED_INPUTS_MAX,
    HANDLED_MAX,
    POST_RUN_SEEN_MAX,
    SUPERSEDED,
    Budget,
    Deletion,
    EarlierAttempt,
    FailureCategory,
    Outcome,
    Pause,
    Run,
    Spent,
    State,
    altered,
    job_id,
    job_url,
)
from worker.core.run.stopping import decide_stopping
from worker.core.run.triggering import decide_triggering

# The fields of a run with no pending start and no pending stop.
NOTHING_PENDING: Final[Mapping[str, object]] = {
    "start_step": None,
    "start_after": None,
    "starter": None,
    "after_stop": None,
    "rerun_reason": "",
}


def decide(
    run: Run | None,
    pipeline: Pipeline,
    schedule: Schedule,
    fact: Fact,
    now: datetime,
    *,
    pause: Pause | None = None,
    deletion: Deletion | None = None,
) -> Decision:
    """Decide what follows from a fact; a fact that changes nothing gives an `Ignore`.

    `pipeline` is the version that the run began under. For a run that does not exist or has ended, it is the version in
    force. `deletion` says that the run existed and was deleted.
    """
    decision = (
        decide_create(pipeline, schedule, fact, now, deletion)
        if run is None
        else _decide(run, pipeline, schedule, fact, now)
    )
    if pause is None or pause.is_over(now) or not decision.is_held_by_pause(fact):
        return decision
    # A held-back fact stays due and is delivered again.
    reason = f"paused: {pause.reason}; it is taken up again when the pause is over"
    return Decision.of(Ignore(reason, is_held_back=True, until=pause.until))


def _decide(run: Run, pipeline: Pipeline, schedule: Schedule, fact: Fact, now: datetime) -> Decision:
    if isinstance(fact, AboutAttempt) and fact.attempt != run.attempt:
        return ignore(f"speaks of attempt {fact.attempt}, not of {run.attempt}")
    if isinstance(fact, ClockStepped):
        return ignore("it has ended") if run.is_ended else Decision.of(decide_step(run.since, fact))
    patience = limits(pipeline).run_timeout + (UPSTREAM_PATIENCE if run.is_at_gate else timedelta(0))
    if isinstance(fact, TimerFired) and not run.is_ended and (shift := realign(run.since, now, patience)):
        return Decision.of(shift)
    context = Context(run, pipeline, schedule, now)
    if isinstance(fact, RerunRequested):
        return decide_rerun(context, fact)
    if isinstance(fact, TriggerRequested):
        return decide_trigger_of_existing(context, fact)
    if isinstance(fact, CancelRequested) and fact.identity:
        return _cancel_once(context, fact)
    return _decide_by_state(context, fact)


def _cancel_once(context: Context, fact: CancelRequested) -> Decision:
    """Cancel once per request: its row outlives the request, and must not cancel a later rerun."""
    if fact.identity in context.run.handled:
        return ignore(f"request {fact.identity} was answered already")
    return _decide_by_state(context, fact).noting(NoteHandled(fact.identity))


def _decide_by_state(context: Context, fact: Fact) -> Decision:
    match context.run.state:
        case State.EVALUATING:
            return decide_evaluating(context, fact)
        case State.TRIGGERING:
            return decide_triggering(context, fact)
        case State.POLLING:
            return decide_polling(context, fact)
        case State.STOPPING:
            return decide_stopping(context, fact)
        case State.COMPLETED | State.FAILED_FINAL:
            return decide_ended(context, fact)


# --- evolve -----------------------------------------------------------------------------------------------------------


def evolve(run: Run | None, decision: Decision, now: datetime, by: SessionId) -> Run | None:
    """Return the run after a session recorded the decision; the same run if its row is unchanged."""
    before = run
    for effect in decision.effects:
        run = effect.run if isinstance(effect, Create) else _applied(run, effect, now, by)
    if run is None or run == before:
        return before  # an unchanged run needs no commit
    # The session that commits a run holds its next timer.
    return altered(run, owner=None if run.is_ended else by)


def _applied(run: Run | None, effect: Effect, now: datetime, by: SessionId) -> Run | None:
    if run is None:
        return None
    match effect:
        case MoveTo():
            return _moved(run, effect, now)
        case Retry():
            failed = _with_attempt(run, Outcome.FAILED, effect.category, effect.reason, now)
            charged = altered(failed, spent=_charged(run.spent, effect.budget), reason=effect.reason)
            return _next_attempt(charged, effect.window_ends_at, now)
        case Reopen():
            return _reopened(run, effect, now)
        case End():
            return _ended(run, effect, now)
        case StartJob():
            return altered(run, starter=by)
        case _:
            return _noted(run, effect)


def _moved(run: Run, effect: MoveTo, now: datetime) -> Run:
    is_begun = effect.state is State.POLLING
    return altered(
        run,
        state=effect.state,
        starts_unanswered=0 if effect.is_only_job else run.starts_unanswered,
        since=now,
        window_ends_at=effect.window_ends_at,
        started_on=run.started_on if effect.started_on is None else effect.started_on,
        started_after=run.started_after if effect.started_after is None else effect.started_after,
        upstream_reported=run.upstream_reported if effect.started_after is None else "",
        # A new start has a new baseline, so results against the old one are forgotten.
        post_run_seen=run.post_run_seen if effect.started_on is None else {},
        changed_inputs=run.changed_inputs if effect.started_on is None else {},
        start_step=None if is_begun else effect.start_step or run.start_step,
        start_after=None,
        starter=None if is_begun else run.starter,
        job=effect.job or run.job,
        job_type=effect.job_type or run.job_type,
        started_at=now if is_begun else run.started_at,
        after_stop=effect.after_stop,
        rerun_reason=effect.rerun_reason,
        reason=effect.reason or run.reason,
    )


def _next_attempt(run: Run, window_ends_at: datetime | None, now: datetime) -> Run:
    return altered(
        run,
        **NOTHING_PENDING,
        state=State.EVALUATING,
        attempt=run.attempt + 1,
        attempt_at=now,
        since=now,
        window_ends_at=window_ends_at,
        start_failures=0,
        starts_unanswered=0,
        job=None,
        outcome=None,
        started_at=None,
        category=None,
        summary=None,
    )


def _with_attempt(run: Run, outcome: str, category: FailureCategory | None, reason: str, ended_at: datetime) -> Run:
    """Return the run with its current attempt among the earlier ones, of which the oldest are dropped."""
    attempt = EarlierAttempt(
        number=run.attempt,
        job_type=run.job_type if run.job else "",
        job=job_id(run.job),
        url=job_url(run.job),
        started_at=run.started_at,
        ended_at=ended_at,
        outcome=outcome,
        category=category,
        reason=reason[:ATTEMPT_REASON_MAX],
    )
    return altered(run, attempts=(*run.attempts, attempt)[-(ATTEMPTS_MAX - 1) :])


def _reopened(run: Run, effect: Reopen, now: datetime) -> Run:
    outcome = SUPERSEDED if not run.is_ended else "" if run.outcome is None else run.outcome.value
    asked = altered(
        _with_attempt(run, outcome, run.category, run.reason, run.since if run.is_ended else now),
        spent=run.spent if effect.budget is None else _charged(run.spent, effect.budget),
        config_hash=effect.config_hash or run.config_hash,
        timeout_at=effect.timeout_at,
        reason=effect.reason,
        pipeline_owner=effect.pipeline_owner or run.pipeline_owner,
        is_followed=effect.is_followed,
    )
    return _next_attempt(asked, effect.window_ends_at, now)


def _ended(run: Run, effect: End, now: datetime) -> Run:
    return altered(
        run,
        **NOTHING_PENDING,
        state=State.COMPLETED if effect.outcome is Outcome.SUCCEEDED else State.FAILED_FINAL,
        since=now,
        outcome=effect.outcome,
        reason=effect.reason,
        category=effect.category,
        started_on=run.started_on if effect.saw is None else effect.saw,
        window_ends_at=effect.monitored_until,
    )


def _noted(run: Run, effect: Effect) -> Run:
    match effect:
        case NoteStart():
            return altered(
                run,
                start_step=effect.step,
                start_failures=effect.failures,
                starts_unanswered=run.starts_unanswered if effect.unanswered is None else effect.unanswered,
                start_after=effect.after,
                reason=effect.reason or run.reason,
            )
        case NoteGate(window_ends_at=window_ends_at, timeout_at=timeout_at):
            return altered(run, window_ends_at=window_ends_at, timeout_at=timeout_at)
        case NoteUpstreams(signature=signature):
            return altered(run, upstream_reported=signature)
        case NoteJob(job=job, is_only_job=is_only):
            return altered(run, job=job, start_step=None, starts_unanswered=0 if is_only else run.starts_unanswered)
        case NoteAfterStop(after_stop=after_stop, reason=reason):
            return altered(run, after_stop=after_stop, rerun_reason="", reason=reason)
        case NoteSignal(content_hash=content_hash, sensor_key=key, written_at=at):
            told = _changed(run, key, content_hash, at) if key else run
            return altered(told, late_reported=content_hash, late_attempt=run.attempt)
        case NoteChange(sensor_key=key, content_hash=content_hash, written_at=at):
            return _changed(run, key, content_hash, at)
        case NotePostRun(sensor_key=key, content_hash=content_hash, written_at=at):
            seen = with_newest(run.post_run_seen, key, content_hash, POST_RUN_SEEN_MAX)
            return altered(run, post_run_seen=seen, told_at=noted(run.told_at, key, at))
        case ShiftTimes(by=by, patience=patience):
            return shifted(run, by, patience)
        case NoteSummary(summary=summary):
            return altered(run, summary=summary)
        case NoteHandled(identity=identity):
            return altered(run, handled=(*run.handled, identity)[-HANDLED_MAX:])
        case _:
            return run


def _changed(run: Run, sensor_key: str, content_hash: str, written_at: datetime | None) -> Run:
    changed = with_newest(run.changed_inputs, sensor_key, content_hash, CHANGED_INPUTS_MAX)
    return altered(run, changed_inputs=changed, told_at=noted(run.told_at, sensor_key, written_at))


def _charged(spent: Spent, budget: Budget) -> Spent:
    match budget:
        case Budget.TRANSIENT:
            return replace(spent, transient=spent.transient + 1)
        case Budget.CODE:
            return replace(spent, code=spent.code + 1)
        case Budget.DRIFT:
            return replace(spent, drift=spent.drift + 1)
        case Budget.MANUAL:
            return replace(spent, manual=spent.manual + 1)
