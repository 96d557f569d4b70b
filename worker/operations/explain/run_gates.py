"""Explains the gates of an existing run: its state, the rules, the budgets and its SLA watch."""

from dataclasses import replace

from worker.core.model.rules import Rule, evaluate_rule, leaves
from worker.core.model.run_names import replay_command, rerun_command
from worker.core.model.sla_times import times_for_run
from worker.core.model.summaries import SUMMARY_KEY, summary_text
from worker.core.run.context import limits
from worker.core.run.state import (
    AfterStop,
    DryRun,
    DryState,
    ForeignRun,
    Outcome,
    Run,
    Spent,
    StartStep,
    State,
    Status,
    foreign_word,
    status_word,
)
from worker.core.sla.state import SlaWatch, Verdict
from worker.operations.explain.conditions import condition_of, conditions_of
from worker.operations.explain.explanation import Gate, GateFinding, is_closed, is_open
from worker.operations.explain.remedies import smallest_changes
from worker.operations.explain.snapshot import RunSnapshot, moment
from worker.operations.explain.waiting import times

AFTERWARDS = {
    AfterStop.RETRY: "then it is retried",
    AfterStop.SUPERSEDE: "then the next attempt starts",
    AfterStop.CANCEL: "then it is cancelled",
    AfterStop.END: "then it ends as timed out",
}
ENDS = {
    Outcome.EXHAUSTED: "failed (its rules did not pass)",
    Outcome.NOT_STARTED: "failed (not started)",
    Outcome.START_UNKNOWN: "failed (start unknown)",
    Outcome.ORPHANED: "failed (its job may still be running)",
    Outcome.TIMED_OUT: "failed (run timed out)",
}


def run(sight: RunSnapshot) -> GateFinding:
    match sight.run:
        case None:
            return is_open(Gate.RUN, "there is no run yet")
        case DryRun() as rehearsal:
            return _rehearsal(sight, rehearsal)
        case ForeignRun() as foreign:
            return _foreign(sight, foreign)
        case Run(state=State.COMPLETED | State.FAILED_FINAL) as ended:
            return _ended(sight, ended)
        case Run(state=State.STOPPING) as stopping:
            return _stopping(sight, stopping)
        case Run() as active:
            return is_open(Gate.RUN, _progress(sight, active))


def _progress(sight: RunSnapshot, active: Run) -> str:
    zone = sight.schedule.zone
    attempt, since = f"(attempt {active.attempt})", moment(active.since, zone)
    match active.state, active.start_step:
        case State.EVALUATING, _ if active.is_at_gate:
            return f"waiting for its upstreams since {since} {attempt}"
        case State.EVALUATING, _:
            until = f", until {moment(active.window_ends_at, zone)}" if active.window_ends_at else ""
            return f"waiting for its rules since {since}{until} {attempt}"
        case State.TRIGGERING, StartStep.REFUSED:
            again = f"; the next try is at {moment(active.start_after, zone)}" if active.start_after else ""
            return f"starting {attempt}: {_failures(active)}{again}{_last_word(active)}"
        case State.TRIGGERING, StartStep.UNANSWERED | StartStep.ABANDONED:
            asked = f"the job may have started at {since}; Interlock asks the target whether it did"
            return f"starting {attempt}: {asked}{_last_word(active)}"
        case State.TRIGGERING, _:
            return f"starting since {since} {attempt}"
        case _:
            return f"running since {since}, until {_patience(sight, active)} at the latest {attempt}"


def _failures(active: Run) -> str:
    if lost := active.starts_unanswered:
        return f"the job may be running: {lost} of {active.start_failures} tries to start it got no answer"
    return f"the target rejected it {times(active.start_failures)}"


def _last_word(active: Run) -> str:
    return f"; last answer: {active.reason}" if active.reason else ""


def _patience(sight: RunSnapshot, active: Run) -> str:
    return moment(min(filter(None, (active.window_ends_at, active.timeout_at))), sight.schedule.zone)


def _stopping(sight: RunSnapshot, stopping: Run) -> GateFinding:
    then = AFTERWARDS.get(stopping.after_stop, "") if stopping.after_stop else ""
    until = (
        f" until {moment(stopping.window_ends_at, sight.schedule.zone)} at the latest"
        if stopping.window_ends_at
        else ""
    )
    why = f": {stopping.reason}" if stopping.reason else ""
    sentence = f"stopping{until} (attempt {stopping.attempt}){why}; {then}"
    return is_closed(Gate.RUN, sentence.rstrip("; "), "wait until the job has stopped")


def _ended(sight: RunSnapshot, ended: Run) -> GateFinding:
    at = moment(ended.since, sight.schedule.zone)
    how = ENDS.get(ended.outcome, status_word(ended)) if ended.outcome else status_word(ended)
    why = f": {ended.reason}" if ended.reason else ""
    until = ended.monitored_until
    if until is not None and sight.now < until:
        why += f"; monitoring its results until {moment(until, sight.schedule.zone)}"
    finding = is_closed(Gate.RUN, f"{how} at {at} (attempt {ended.attempt}){why}", _again(sight, ended))
    return replace(finding, advice=f"Use `{_command(sight, ended)}` to run it again.")


def _again(sight: RunSnapshot, ended: Run) -> str:
    limit = "" if _manual_left(sight, ended) else " (the manual rerun limit is reached)"
    return f"run `{_command(sight, ended)}`{limit}"


def _command(sight: RunSnapshot, ended: Run) -> str:
    command = rerun_command if _manual_left(sight, ended) else replay_command
    return command(sight.key, sight.pipeline)


def _foreign(sight: RunSnapshot, foreign: ForeignRun) -> GateFinding:
    if foreign.status != Status.RUNNING:
        again = f"run `{rerun_command(sight.key, sight.pipeline)}`"
        return is_closed(Gate.RUN, f"{foreign_word(foreign.status)} in another system", again)
    if foreign.expires_at is None:
        return is_closed(
            Gate.RUN, "running in another system, without a time limit", "end it in the system that started it"
        )
    at = moment(foreign.expires_at, sight.schedule.zone)
    if sight.now > foreign.expires_at:
        return is_closed(Gate.RUN, f"another system's run timed out at {at}", "let a worker close it, then rerun it")
    return is_closed(Gate.RUN, f"running in another system, until {at} at the latest", f"wait until {at}")


def _rehearsal(sight: RunSnapshot, rehearsal: DryRun) -> GateFinding:
    since = moment(rehearsal.since, sight.schedule.zone)
    match rehearsal.state:
        case DryState.EVALUATING:
            until = moment(rehearsal.window_ends_at, sight.schedule.zone)
            return is_open(Gate.RUN, f"dry run: waiting for its rules since {since}, until {until}")
        case DryState.WOULD_TRIGGER:
            return is_open(Gate.RUN, f"dry run: the job would have started at {since}")
        case DryState.EXHAUSTED:
            return is_open(Gate.RUN, f"dry run: its rules did not pass by {since}: {rehearsal.reason}")


def rules(sight: RunSnapshot) -> GateFinding:
    result = sight.rules_result
    conditions = tuple(conditions_of(result, sight.sensors, sight.own_run, sight.probes))
    if is_under_way(sight):
        return is_open(Gate.RULES, f"passed when the job started; now {result.reason}", conditions)
    if result.passed:
        return is_open(Gate.RULES, result.reason, conditions)
    probes = {probe.key for probe in sight.pipeline.probes}
    changes = smallest_changes(result, sight.key.period, sight.schedule.zone, probes)
    return is_closed(Gate.RULES, result.reason, *changes, conditions=conditions)


def is_under_way(sight: RunSnapshot) -> bool:
    return sight.own_run is not None and sight.own_run.state in {State.TRIGGERING, State.POLLING, State.STOPPING}


def budgets(sight: RunSnapshot) -> GateFinding:
    seen = sight.own_run
    sentence = f"{_used(sight)}{_asked(sight)}"
    if seen is None or not seen.is_ended or _manual_left(sight, seen):
        return is_open(Gate.BUDGETS, sentence)
    return is_closed(Gate.BUDGETS, f"{sentence}; the manual rerun limit is reached", _again(sight, seen))


def _used(sight: RunSnapshot) -> str:
    job = limits(sight.pipeline)
    spent = sight.own_run.spent if sight.own_run else Spent()
    counts = (
        (spent.transient, job.max_retries, "retries"),
        (spent.code, job.max_code_retries, "code retries"),
        (spent.drift, job.max_drift_reruns, "drift reruns"),
        (spent.manual, job.max_manual_reruns, "manual reruns"),
    )
    return "used: " + ", ".join(f"{used} of {limit} {name}" for used, limit, name in counts)


def _manual_left(sight: RunSnapshot, seen: Run) -> bool:
    return seen.spent.manual < limits(sight.pipeline).max_manual_reruns


def _asked(sight: RunSnapshot) -> str:
    request, seen = sight.request, sight.own_run
    if request is None or (seen is not None and request.identity in seen.handled):
        return ""
    return f'; the rerun requested at {request.requested_at or "an unknown time"} ("{request.reason}") is still waiting'


def sla(sight: RunSnapshot) -> GateFinding:
    """Return the SLA gate. A deadline blocks nothing, so it always passes, even if it was breached."""
    watch, wanted, zone = sight.watch, sight.schedule.sla, sight.schedule.zone
    if watch is None:
        times = times_for_run(wanted, sight.schedule, sight.key.period, None) if wanted else None
        if times is None:
            return is_open(Gate.SLA, "no deadline" if wanted is None else "its deadline counts from its first sensor")
        parts = [f"due by {moment(times.breach_at, zone)}"] if times.breach_at else []
        parts += [f"rules to hold by {moment(times.evaluation_at, zone)}"] if times.evaluation_at else []
        return is_open(Gate.SLA, "; ".join([*parts, "not watched yet"]))
    parts = [_of_deadline(watch, sight), _of_evaluation(watch, sight)]
    return is_open(Gate.SLA, "; ".join(part for part in parts if part))


def _of_deadline(watch: SlaWatch, sight: RunSnapshot) -> str:
    if watch.breach_at is None:
        return ""
    due, since = moment(watch.breach_at, sight.schedule.zone), moment(watch.since, sight.schedule.zone)
    why = f": {watch.reason}" if watch.reason else ""
    match watch.verdict:
        case None:
            warned = "; the warning was sent" if watch.warned_at else ""
            return f"{'overdue since' if sight.now >= watch.breach_at else 'due by'} {due}{warned}"
        case Verdict.MET:
            return f"met: due by {due}, decided at {since}"
        case Verdict.BREACHED:
            return f"breached: the run was due by {due}{why}; a deadline blocks nothing"
        case Verdict.WAIVED:
            return f"waived at {since}{why}"


def _of_evaluation(watch: SlaWatch, sight: RunSnapshot) -> str:
    if watch.evaluation_at is None:
        return ""
    due = moment(watch.evaluation_at, sight.schedule.zone)
    match watch.evaluation_verdict:
        case None:
            return f"rules to hold by {due}"
        case Verdict.MET:
            return f"rules held by {due}"
        case Verdict.BREACHED:
            return f"rules did not hold by {due}: {watch.evaluation_reason}"
        case Verdict.WAIVED:
            return f"rules to hold by {due}, waived"


def has_summary(sight: RunSnapshot) -> bool:
    """Return whether the run has a summary, or rules that check it."""
    return bool(_summary_rules(sight) or (sight.own_run and sight.own_run.summary))


def summary(sight: RunSnapshot) -> GateFinding:
    """Return what the job counted, and the post-run rules about it. Like a deadline, it blocks nothing."""
    counts = sight.own_run.summary if sight.own_run else None
    results = [evaluate_rule(rule, counts, sight.now) for rule in _summary_rules(sight)]
    if counts is None:
        wanted = "; ".join(f"{each.rule.field or each.rule.key} must be {each.wanted}" for each in results)
        return is_open(Gate.SUMMARY, f"the job gave no summary yet; when it ends, {wanted}")
    failed = [each.reason for each in results if not each.passed]
    judged = f"; not as wanted: {'; '.join(failed)}" if failed else "; as wanted" if results else ""
    return is_open(
        Gate.SUMMARY, f"{summary_text(counts)}{judged}", tuple(condition_of(each, None, None) for each in results)
    )


def _summary_rules(sight: RunSnapshot) -> list[Rule]:
    post_run = sight.pipeline.post_run
    return [rule for rule in leaves(post_run.rules) if rule.key == SUMMARY_KEY] if post_run else []
