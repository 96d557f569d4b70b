"""COMPLETED and FAILED_FINAL: decides on facts that still reach an ended run."""

from collections.abc import Mapping

from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.pipeline import Dependency, OnRerun, Schedule
from worker.core.model.values import Json
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import LogJob, NoteHandled, NoteJob, NoteUpstreams
from worker.core.run.endings import after_failure, tell_orphan, waive_only
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobReport,
    JobReported,
    JobStarted,
    PostRunSeen,
    RunTriggered,
    UpstreamEnded,
)
from worker.core.run.polling import report_event
from worker.core.run.post_run import judge_post_run, judge_signal, request_rerun
from worker.core.run.reruns import UPSTREAM, UPSTREAM_REPLAY
from worker.core.run.state import Outcome, Run, State

NAMED_MAX = 5  # upstream runs that a message names


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
        case UpstreamEnded():
            return judge_upstreams(context, fact)
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


# --- upstream runs that complete again --------------------------------------------------------------------------------


def judge_upstreams(context: Context, fact: UpstreamEnded) -> Decision:
    """Request a rerun, or report, once all needed upstream runs are at rest: many cause one."""
    run = context.run
    changed = changed_upstreams(run, fact.upstreams)
    if not changed:
        return ignore(f"the run was started on {fact.upstream} as it is, or without it")
    if fact.waits_for is not None:
        return ignore(f"{len(changed)} upstream runs changed; waiting: {fact.waits_for}")
    if run.outcome is Outcome.CANCELLED:
        return ignore("the run was cancelled; only a person can reopen it")
    signature = signature_of(changed)
    if signature == run.upstream_reported:
        return ignore("these upstream attempts were reported already")
    if fact.is_followed:
        return Decision.of(NoteUpstreams(signature), request_rerun(context, UPSTREAM_REPLAY, signature))
    asked = {key: on_rerun(context.schedule, key) for key in changed}
    told = [key for key, what in asked.items() if what is not OnRerun.IGNORE]
    if not told:
        return ignore("`onRerun: ignore`: an upstream run completed again")
    decision = Decision.of(
        NoteUpstreams(signature),
        LogJob(event=JobEvent.LATE_DATA_ARRIVAL, message=f"{named(told)} completed again"),
    )
    if OnRerun.RERUN in asked.values():
        return decision.also(request_rerun(context, UPSTREAM, signature))
    return decision.also(_tell(context, told))


def changed_upstreams(run: Run, now: Mapping[str, str]) -> dict[str, str]:
    """Return the upstream runs whose complete attempt is not the one that the job was started on."""
    started = run.started_after
    return {key: attempt for key, attempt in now.items() if key in started and started[key] != attempt}


def signature_of(changed: Mapping[str, str]) -> str:
    """Return what a run remembers of the upstream attempts for which it was rerun, or which were reported."""
    return content_hash(dict(sorted(changed.items())))


def on_rerun(schedule: Schedule, upstream: str) -> OnRerun:
    """Return what the schedule wants if this upstream run completes again; the strictest of its items."""
    wants = [each.on_rerun for each in schedule.after if _is_of(each, upstream)]
    return next((what for what in (OnRerun.RERUN, OnRerun.ALERT) if what in wants), OnRerun.IGNORE)


def named(runs: list[str]) -> str:
    """Return some runs by name, and how many others there are."""
    more = f" and {len(runs) - NAMED_MAX} more" if len(runs) > NAMED_MAX else ""
    return f"{', '.join(sorted(runs)[:NAMED_MAX])}{more}"


def _is_of(dependency: Dependency, upstream: str) -> bool:
    pipeline, _, rest = upstream.partition("/")
    return pipeline == dependency.pipeline and dependency.schedule in {None, rest.rpartition("/")[0]}


def _tell(context: Context, changed: list[str]) -> EmitEvent:
    detail: dict[str, Json] = {
        "upstreams": sorted(changed)[:NAMED_MAX],
        "actionHint": "check whether the result is still right; if not, rerun it",
    }
    message = f"{context.run.key}: {named(changed)} completed again after this run had started"
    return EmitEvent(type=EventType.LATE_DATA_ARRIVAL, message=message, detail=detail)
