"""The SLA watch: every rule that changes it. It ends in one verdict and emits each event at most once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from worker.core.model.deadlines import SlaTimes
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import Sla
from worker.core.model.rule_report import RuleReport, missing_record
from worker.core.model.values import Json
from worker.core.run.effects import DeadlineEffect, JudgeDeadline, JudgeEvaluation, WaiveDeadline, WatchDeadline
from worker.core.run.state import Status
from worker.core.sla.effects import ArmWatch, CloseEvaluation, CloseWatch, MarkWarned, WatchEffect
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339, format_utc

# --- what happens to a watch ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExpected:
    """RunExpected: the scheduler expects a run, so its deadline is watched even if it never begins."""

    times: SlaTimes
    config_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegan:
    """RunBegan: a run was created, so the times that apply to it are known."""

    times: SlaTimes
    arrived_at: datetime | None
    config_hash: str


@dataclass(frozen=True, slots=True)
class RunSucceeded:
    at: datetime


@dataclass(frozen=True, slots=True)
class RunPassed:
    """RunPassed: the rules of the run held, and its job is started."""

    at: datetime


@dataclass(frozen=True, slots=True)
class TimerReached:
    """TimerReached: something is due. `status` None means that the run does not exist.

    The run was read just before. `succeeded_at` is set for a run that is known to be done but was not judged, such as
    another system's. `missing` is what keeps the rules from holding, evaluated after their deadline; empty if they hold
    or held, None if they were not evaluated.
    """

    status: Status | None
    succeeded_at: datetime | None = None
    missing: tuple[RuleReport, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineMoved:
    """DeadlineMoved: the configuration changed. `times` None means that the period has no deadline now.

    `arrived_at` is the arrival that the times count from; None means that they are times of day.
    """

    times: SlaTimes | None
    config_hash: str
    run_exists: bool
    arrived_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadlineWaived:
    reason: str


WatchFact: TypeAlias = RunExpected | RunBegan | RunPassed | RunSucceeded | TimerReached | DeadlineMoved | DeadlineWaived


# --- decide -----------------------------------------------------------------------------------------------------------


def decide(watch: SlaWatch | None, sla: Sla, fact: WatchFact, now: datetime) -> list[WatchEffect]:
    """Decide what must happen next. Never empty: a fact that changes nothing is an `Ignore`."""
    if watch is None:
        return _without_watch(fact)
    if watch.is_closed:
        verdict = watch.verdict or watch.evaluation_verdict
        return [Ignore(f"the deadline was judged: {verdict}; that is final")]
    match fact:
        case RunExpected():
            return [Ignore("the deadline is watched already")]
        case RunBegan():
            return _rearmed(watch, fact.times, fact.arrived_at, fact.config_hash)
        case RunPassed(at=at):
            return _held(watch, at) or [Ignore("the evaluation has no open deadline")]
        case RunSucceeded(at=at):
            return _judged(watch, sla, at)
        case TimerReached():
            return _instant_came(watch, sla, fact, now)
        case DeadlineMoved():
            return _moved(watch, fact)
        case DeadlineWaived(reason=reason):
            # The run's own deadline may have its verdict already, which is final.
            what = "the deadline of its evaluation" if watch.verdict else "the deadline"
            return [
                CloseWatch(Verdict.WAIVED, reason),
                EmitEvent(type=EventType.SLA_WAIVED, message=f"{watch.key}: {what} was waived: {reason}"),
            ]


def _without_watch(fact: WatchFact) -> list[WatchEffect]:
    match fact:
        case RunExpected():
            return [ArmWatch(times=fact.times, arrived_at=None, config_hash=fact.config_hash)]
        case RunBegan():
            return [ArmWatch(times=fact.times, arrived_at=fact.arrived_at, config_hash=fact.config_hash)]
        case _:
            return [Ignore("no deadline is watched")]


def _rearmed(watch: SlaWatch, times: SlaTimes, arrived_at: datetime | None, config_hash: str) -> list[WatchEffect]:
    armed = ArmWatch(times=times, arrived_at=arrived_at, config_hash=config_hash)
    after = _moved_to(watch, armed)
    if (after.times, after.arrived_at) == (watch.times, watch.arrived_at):
        return [Ignore("the deadline is what it was")]
    return [armed]


def _moved(watch: SlaWatch, fact: DeadlineMoved) -> list[WatchEffect]:
    if fact.run_exists:
        return [Ignore("the run began under the old deadline and is judged by it")]
    if fact.times is None:
        return [CloseWatch(Verdict.WAIVED, "the configuration has no deadline for it any more")]
    return _rearmed(watch, fact.times, fact.arrived_at, fact.config_hash)


def _instant_came(watch: SlaWatch, sla: Sla, fact: TimerReached, now: datetime) -> list[WatchEffect]:
    if fact.succeeded_at is not None:
        return _judged(watch, sla, fact.succeeded_at)
    due = [*_evaluation_due(watch, sla, fact, now), *_deadline_due(watch, sla, fact, now)]
    return due or [Ignore("nothing is due, or it was said already")]


def _deadline_due(watch: SlaWatch, sla: Sla, fact: TimerReached, now: datetime) -> list[WatchEffect]:
    if not watch.is_deadline_open:
        return []
    if watch.times.is_breached(now):
        return _breached(watch, sla, fact.status, "the deadline passed without a success")
    if watch.times.is_warning_due(now) and watch.warned_at is None:
        return [MarkWarned(), _tell_warning(watch, sla, fact.status)]
    return []


def _evaluation_due(watch: SlaWatch, sla: Sla, fact: TimerReached, now: datetime) -> list[WatchEffect]:
    """Judge the evaluation by what an evaluation after its deadline found; without one, judge it later."""
    if fact.missing is None or not watch.is_evaluation_open or not watch.times.is_evaluation_due(now):
        return []
    return _unready(watch, sla, fact.status, fact.missing) if fact.missing else _held(watch, now)


def _judged(watch: SlaWatch, sla: Sla, succeeded_at: datetime) -> list[WatchEffect]:
    """Judge a success: it is in time if it was before the breach, whenever it was noticed."""
    held = _held(watch, succeeded_at)  # nothing succeeds whose rules did not hold
    if watch.breach_at is None or not watch.is_deadline_open:
        return held or [Ignore("there is no open deadline")]
    if succeeded_at >= watch.breach_at:
        late = f"the success came at {format_utc(succeeded_at)}, too late"
        return [*held, *_breached(watch, sla, Status.COMPLETED, late)]
    detail: dict[str, Json] = {"succeededAt": format_rfc3339(succeeded_at), "breachAt": format_rfc3339(watch.breach_at)}
    return [
        *held,
        CloseWatch(Verdict.MET),
        EmitEvent(type=EventType.SLA_MET, message=f"{watch.key} was done in time", detail=detail),
    ]


def _held(watch: SlaWatch, at: datetime) -> list[WatchEffect]:
    """Record that the rules held.

    It counts as in time even if no worker evaluated them at the deadline and the first evaluation since came later:
    then nothing shows that something was missing.
    """
    if not watch.is_evaluation_open:
        return []
    late = f"first evaluated after the deadline, at {format_utc(at)}" if watch.times.is_evaluation_due(at) else ""
    return [CloseEvaluation(Verdict.MET, late)]


def _unready(watch: SlaWatch, sla: Sla, status: Status | None, missing: Sequence[RuleReport]) -> list[WatchEffect]:
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    why = f"{missing[0].reason}{more}"
    detail: dict[str, Json] = {
        "status": "not started" if status is None else status.value,
        "source": "schedule",
        "deadlineAt": format_rfc3339(watch.times.evaluation_at) if watch.times.evaluation_at else None,
        **missing_record(missing),
        "actionHint": "find out why the data is late or wrong (`interlock explain`); nothing was stopped",
    }
    if sla.max_evaluation is not None:
        detail["maxEvaluation"] = format_duration(sla.max_evaluation)
    elif sla.evaluation_deadline is not None:
        detail["evaluationDeadline"] = str(sla.evaluation_deadline)
    at = format_utc(watch.evaluation_at) if watch.evaluation_at else "its deadline"
    message = f"{watch.key}: the rules did not hold by {at}: {why}"
    return [
        CloseEvaluation(Verdict.BREACHED, why),
        EmitEvent(type=EventType.EVALUATION_SLA_BREACH, message=message, detail=detail),
    ]


def _breached(watch: SlaWatch, sla: Sla, status: Status | None, why: str) -> list[WatchEffect]:
    is_relative = watch.arrived_at is not None
    return [
        CloseWatch(Verdict.BREACHED, why),
        EmitEvent(
            type=EventType.RELATIVE_SLA_BREACH if is_relative else EventType.SLA_BREACH,
            message=f"{watch.key} breached its deadline of {_due(watch)}: {why}",
            detail={
                **_detail(watch, sla, status),
                "actionHint": "inform the users of the data; find out why it is late",
            },
        ),
    ]


def _tell_warning(watch: SlaWatch, sla: Sla, status: Status | None) -> EmitEvent:
    is_relative = watch.arrived_at is not None
    return EmitEvent(
        type=EventType.RELATIVE_SLA_WARNING if is_relative else EventType.SLA_WARNING,
        message=f"{watch.key} may breach its deadline of {_due(watch)}",
        detail={**_detail(watch, sla, status), "actionHint": "find out what the run waits for while there is time"},
    )


def _detail(watch: SlaWatch, sla: Sla, status: Status | None) -> dict[str, Json]:
    detail: dict[str, Json] = {
        "status": "not started" if status is None else status.value,
        # As in the Lambda edition: there, the watchdog handles deadlines that count from the arrival of data.
        "source": "schedule" if watch.arrived_at is None else "watchdog",
        "breachAt": None if watch.breach_at is None else format_rfc3339(watch.breach_at),
    }
    if watch.arrived_at is not None and watch.breach_at is not None:
        detail["sensorArrivalAt"] = format_rfc3339(watch.arrived_at)
        detail["maxDuration"] = format_duration(watch.breach_at - watch.arrived_at)
    elif sla.deadline is not None:
        detail["deadline"] = str(sla.deadline)
    return detail


def _due(watch: SlaWatch) -> str:
    return "" if watch.breach_at is None else format_utc(watch.breach_at)


# --- with a run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MovedWatch:
    """Holds a watch as a decision leaves it, and the events about that."""

    watch: SlaWatch
    events: tuple[EmitEvent, ...]


def move_with_run(
    watch: SlaWatch | None, effect: DeadlineEffect, *, key: RunKey, sla: Sla | None, now: datetime, by: SessionId
) -> MovedWatch | None:
    """Decide what a run's decision means for its SLA watch; None if the watch does not change.

    `sla` None means that the configuration no longer has the deadline, so that events give no details about it.
    """
    effects = decide(watch, sla or Sla(), _fact_of(effect), now)
    after = evolve(watch, key, effects, now, by)
    if after is None or after == watch:
        return None
    return MovedWatch(after, tuple(effect for effect in effects if isinstance(effect, EmitEvent)))


def _fact_of(effect: DeadlineEffect) -> RunBegan | RunPassed | RunSucceeded | DeadlineWaived:
    match effect:
        case WatchDeadline():
            return RunBegan(times=effect.times, arrived_at=effect.arrived_at, config_hash=effect.config_hash)
        case JudgeDeadline(succeeded_at=at):
            return RunSucceeded(at)
        case JudgeEvaluation(held_at=at):
            return RunPassed(at)
        case WaiveDeadline(reason=reason):
            return DeadlineWaived(reason)


# --- evolve, and when -------------------------------------------------------------------------------------------------


def evolve(
    watch: SlaWatch | None, key: RunKey, effects: Sequence[WatchEffect], now: datetime, by: SessionId
) -> SlaWatch | None:
    """Return the watch after a session recorded the effects; the same one if its row is unchanged."""
    before = watch
    for effect in effects:
        watch = _armed(watch, key, effect, now) if isinstance(effect, ArmWatch) else _applied(watch, effect, now)
    # The session that commits a watch holds its next timer; an unchanged watch needs no commit.
    return watch if watch is None or watch == before else replace(watch, owner=None if watch.is_closed else by)


def next_due(watch: SlaWatch, now: datetime) -> datetime | None:
    """Return when the watch must next warn or judge; None after its last verdict."""
    due = [_next_of_deadline(watch, now), watch.evaluation_at if watch.is_evaluation_open else None]
    return min((at for at in due if at is not None), default=None)


def _next_of_deadline(watch: SlaWatch, now: datetime) -> datetime | None:
    if watch.breach_at is None or not watch.is_deadline_open:
        return None
    if watch.warned_at is None and watch.warning_at is not None and watch.warning_at < watch.breach_at:
        return watch.warning_at if now < watch.breach_at else watch.breach_at
    return watch.breach_at


def _armed(watch: SlaWatch | None, key: RunKey, effect: ArmWatch, now: datetime) -> SlaWatch:
    return _moved_to(watch or SlaWatch(key=key, config_hash=effect.config_hash, since=now), effect)


def _moved_to(watch: SlaWatch, effect: ArmWatch) -> SlaWatch:
    """Return the watch with new times; what was judged keeps the time it was judged by."""
    watch = replace(watch, config_hash=effect.config_hash)
    if watch.evaluation_verdict is None:
        watch = replace(watch, evaluation_at=effect.times.evaluation_at)
    if watch.verdict is not None:
        return watch
    return replace(
        watch,
        arrived_at=effect.arrived_at,
        warning_at=effect.times.warning_at,
        breach_at=effect.times.breach_at,
    )


def _applied(watch: SlaWatch | None, effect: WatchEffect, now: datetime) -> SlaWatch | None:
    match effect:
        case MarkWarned() if watch is not None:
            return replace(watch, since=now, warned_at=now)
        case CloseWatch(verdict=Verdict.WAIVED, reason=reason) if watch is not None:
            waived = _judge_evaluation(watch, CloseEvaluation(Verdict.WAIVED, reason), now)
            return waived if watch.verdict else replace(waived, since=now, verdict=Verdict.WAIVED, reason=reason)
        case CloseWatch(verdict=verdict, reason=reason) if watch is not None:
            return replace(watch, since=now, verdict=verdict, reason=reason)
        case CloseEvaluation() if watch is not None:
            return _judge_evaluation(watch, effect, now)
        case _:
            return watch


def _judge_evaluation(watch: SlaWatch, effect: CloseEvaluation, now: datetime) -> SlaWatch:
    if not watch.is_evaluation_open:
        return watch
    return replace(watch, evaluation_verdict=effect.verdict, evaluation_judged_at=now, evaluation_reason=effect.reason)
