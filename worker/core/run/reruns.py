"""Rerun requests: the only way from an end to a new attempt, or to replace a live one."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.run_names import replay_command, rerun_command
from worker.core.run.context import Context
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import EvaluateNow, LogJob, NoteHandled, RecordRerun, Reopen
from worker.core.run.endings import JOB_FAIL_RETRY, begin_stop
from worker.core.run.facts import RerunRequested
from worker.core.run.state import STATE_WORDS, AfterStop, Budget, Outcome, Run, Spent, State

LATE_DATA = "late-data"
DATA_DRIFT = "data-drift"
REPLAY = "replay"  # requested for each period of a range, so it is outside the budgets
UPSTREAM = "upstream"  # an upstream run completed again
UPSTREAM_REPLAY = "upstream-replay"  # the same, because of a replay that all downstreams follow
AUTOMATIC = frozenset({LATE_DATA, DATA_DRIFT, UPSTREAM, UPSTREAM_REPLAY})  # nobody asked for these


def request_identity(reason: str, requested_at: str, request_id: str) -> str:
    """Return the identity of a request, made from its content.

    A row that is delivered twice is one request; two requests with the same wording are two.
    """
    return hashlib.sha256(f"{reason}\n{requested_at}\n{request_id}".encode()).hexdigest()[:32]


def budget_for(reason: str) -> Budget | None:
    """Return the budget that a rerun is charged to; None if it is charged to none."""
    if reason in {REPLAY, UPSTREAM_REPLAY}:
        return None
    return Budget.DRIFT if reason in AUTOMATIC else Budget.MANUAL


def is_automatic(reason: str) -> bool:
    """Return whether Interlock itself asks for a rerun, because its data changed."""
    return reason in AUTOMATIC


def spent_by(reasons: Iterable[str]) -> Spent:
    """Return how much of each budget the record of reruns has used.

    The record does not say of which kind a failure was, so each failure counts for both retry budgets.
    """
    recorded = [*reasons]
    retries = recorded.count(JOB_FAIL_RETRY)
    asked = [budget_for(reason) for reason in recorded if reason != JOB_FAIL_RETRY]
    return Spent(transient=retries, code=retries, drift=asked.count(Budget.DRIFT), manual=asked.count(Budget.MANUAL))


def is_unanswered(run: Run, identity: str, reason: str, asked_at: datetime | None) -> bool:
    """Return whether a person's request still waits for its answer, for example until a pause ends.

    A request that is older than the attempt was answered, or was never Interlock's to answer: the run records only the
    latest requests.
    """
    return (
        not is_automatic(reason)
        and identity not in run.handled
        and asked_at is not None
        and asked_at >= run.attempt_began_at
    )


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Holds the rerun request of a run, answered or not. `asked_at` is None if its row does not say."""

    identity: str
    reason: str
    asked_at: datetime | None


def yield_to_person(decision: Decision, run: Run | None, request: OpenRequest | None) -> Decision:
    """Drop Interlock's own rerun request if a person's still waits: that one finds the newest data too."""
    if run is None or request is None or not is_unanswered(run, request.identity, request.reason, request.asked_at):
        return decision
    return decision.without_request()


def decide_rerun(context: Context, fact: RerunRequested) -> Decision:
    if fact.identity in context.run.handled:
        return ignore(f"request {fact.identity} was answered already")
    if context.pipeline.dry_run and context.run.is_ended:
        return ignore(f"{context.pipeline.id} is in dry run, so no job starts")
    if excluded := context.excluded:
        return _reject(context, fact, EventType.PIPELINE_EXCLUDED, excluded)
    if refusal := _refusal(context, fact):
        return _reject(context, fact, EventType.RERUN_REJECTED, refusal.why, actionHint=refusal.hint)
    return _accept(context, fact)


def reopen(context: Context, reason: str, config_hash: str | None, *, is_followed: bool = False) -> Decision:
    """Begin the next attempt and record why, in one commit, so that no budget is charged for nothing."""
    return Decision.of(
        Reopen(
            reason=reason,
            budget=budget_for(reason),
            config_hash=config_hash,
            window_ends_at=context.evaluation_ends_at,
            timeout_at=context.new_timeout_at,
            pipeline_owner=context.pipeline.owner,
            is_followed=is_followed,
        ),
        RecordRerun(reason=reason),
        EvaluateNow(),
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    hint: str


def _refusal(context: Context, fact: RerunRequested) -> _Refusal | None:
    run = context.run
    if run.state is State.STOPPING:
        return _Refusal("the run is stopping", "request it again when the run has ended")
    again, override = rerun_command(run.key, context.pipeline), replay_command(run.key, context.pipeline)
    if not run.is_ended and not fact.supersede:
        hint = f"wait until it ends, or stop it and start again: `{again} --supersede`"
        return _Refusal(f"the run is {STATE_WORDS[run.state]}", hint)
    if run.is_out_of_reach:
        why = "the target did not answer a start of its job, so the job may be running"
        return _Refusal(why, "check whether its job runs; wait until the run ends, or cancel it (`interlock cancel`)")
    if run.outcome is Outcome.CANCELLED and budget_for(fact.reason) is Budget.DRIFT:
        why = "the run was cancelled; only a person can reopen it"
        return _Refusal(why, f"to override: `{again}`")
    if over := _over_budget(context, budget_for(fact.reason)):
        return _Refusal(over, f"to override: `{override}`")
    if run.state is State.COMPLETED and not fact.is_fresh and fact.reason != REPLAY:
        why = "no sensor changed since the run completed, so a rerun would read the same data"
        return _Refusal(why, f"to override: `{override}`")
    return None


def _over_budget(context: Context, budget: Budget | None) -> str | None:
    if budget is None:
        return None
    limit = context.job.max_drift_reruns if budget is Budget.DRIFT else context.job.max_manual_reruns
    spent = context.run.spent.of(budget)
    return f"{budget} rerun limit reached ({spent} of {limit})" if spent >= limit else None


def _accept(context: Context, fact: RerunRequested) -> Decision:
    run = context.run
    if run.is_ended:
        begun = reopen(context, fact.reason, fact.birth.config_hash, is_followed=fact.is_followed)
    elif run.is_idle:
        begun = reopen(context, fact.reason, None, is_followed=fact.is_followed)
    else:
        begun = begin_stop(context, AfterStop.SUPERSEDE, f"superseded: {fact.reason}", rerun_reason=fact.reason)
    return begun.noting(
        NoteHandled(fact.identity),
        LogJob(event=JobEvent.RERUN_ACCEPTED, message=fact.reason),
        EmitEvent(
            type=EventType.RERUN_ACCEPTED,
            message=f"{run.key}: rerun accepted: {fact.reason}",
            detail={"reason": fact.reason, "attempt": run.attempt + 1},
        ),
    )


def _reject(context: Context, fact: RerunRequested, told: EventType, why: str, **more: str) -> Decision:
    message = f"{context.run.key}: rerun rejected ({fact.reason}): {why}"
    return Decision.of(
        NoteHandled(fact.identity),
        LogJob(event=JobEvent.RERUN_REJECTED, message=why),
        EmitEvent(type=told, message=message, detail={"reason": why, **more}),
    )
