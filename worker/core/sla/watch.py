"""The SLA watch: every rule that changes it. It ends in one verdict and emits each event at most once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import Sla
from worker.core.model.sla_times import SlaTimes
from worker.core.model.values import Json
from worker.core.run.effects import DeadlineEffect, JudgeDeadline, WaiveDeadline, WatchDeadline
from worker.core.run.state import Status
from worker.core.sla.effects import ArmWatch, CloseWatch, MarkWarned, WatchEffect
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
class TimerReached:
    """TimerReached: the warning or the breach is due. `status` None means that the run does not exist.

    The run was read just before. `succeeded_at` is set for a run that is known to be done but was not judged, such as
    another system's.
    """

    status: Status | None
    succeeded_at: datetime | None = None


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


WatchFact: TypeAlias = RunExpected | RunBegan | RunSucceeded | TimerReached | DeadlineMoved | DeadlineWaived


# --- decide -----------------------------------------------------------------------------------------------------------


def decide(watch: SlaWatch | None, sla: Sla, fact: WatchFact, now: datetime) -> list[WatchEffect]:
    """Decide what must happen next. Never empty: a fact that changes nothing is an `Ignore`."""
    if watch is None:
        return _without_watch(fact)
    if watch.verdict is not None:
        return [Ignore(f"the deadline was judged: {watch.verdict}; that is final")]
    match fact:
        case RunExpected():
            return [Ignore("the deadline is watched already")]
        case RunBegan():
            return _rearmed(watch, fact.times, fact.arrived_at, fact.config_hash)
        case RunSucceeded(at=at):
            return _judged(watch, sla, at)
        case TimerReached():
            return _instant_came(watch, sla, fact, now)
        case DeadlineMoved():
            return _moved(watch, fact)
        case DeadlineWaived(reason=reason):
            return [
                CloseWatch(Verdict.WAIVED, reason),
                EmitEvent(type=EventType.SLA_WAIVED, message=f"{watch.key}: the deadline was waived: {reason}"),
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
    if (times, arrived_at) == (SlaTimes(watch.warning_at, watch.breach_at), watch.arrived_at):
        return [Ignore("the deadline is what it was")]
    return [ArmWatch(times=times, arrived_at=arrived_at, config_hash=config_hash)]


def _moved(watch: SlaWatch, fact: DeadlineMoved) -> list[WatchEffect]:
    if fact.run_exists:
        return [Ignore("the run began under the old deadline and is judged by it")]
    if fact.times is None:
        return [CloseWatch(Verdict.WAIVED, "the configuration has no deadline for it any more")]
    return _rearmed(watch, fact.times, fact.arrived_at, fact.config_hash)


def _instant_came(watch: SlaWatch, sla: Sla, fact: TimerReached, now: datetime) -> list[WatchEffect]:
    if fact.succeeded_at is not None:
        return _judged(watch, sla, fact.succeeded_at)
    times = SlaTimes(watch.warning_at, watch.breach_at)
    if times.is_breached(now):
        return _breached(watch, sla, fact.status, "the deadline passed without a success")
    if times.is_warning_due(now) and watch.warned_at is None:
        return [MarkWarned(), _tell_warning(watch, sla, fact.status)]
    return [Ignore("nothing is due, or it was said already")]


def _judged(watch: SlaWatch, sla: Sla, succeeded_at: datetime) -> list[WatchEffect]:
    """Judge a success: it is in time if it was before the breach, whenever it was noticed."""
    if succeeded_at >= watch.breach_at:
        return _breached(watch, sla, Status.COMPLETED, f"the success came at {format_utc(succeeded_at)}, too late")
    detail: dict[str, Json] = {"succeededAt": format_rfc3339(succeeded_at), "breachAt": format_rfc3339(watch.breach_at)}
    return [
        CloseWatch(Verdict.MET),
        EmitEvent(type=EventType.SLA_MET, message=f"{watch.key} was done in time", detail=detail),
    ]


def _breached(watch: SlaWatch, sla: Sla, status: Status | None, why: str) -> list[WatchEffect]:
    is_relative = watch.arrived_at is not None
    return [
        CloseWatch(Verdict.BREACHED, why),
        EmitEvent(
            type=EventType.RELATIVE_SLA_BREACH if is_relative else EventType.SLA_BREACH,
            message=f"{watch.key} missed its deadline of {format_utc(watch.breach_at)}: {why}",
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
        message=f"{watch.key} may miss its deadline of {format_utc(watch.breach_at)}",
        detail={**_detail(watch, sla, status), "actionHint": "find out what the run waits for while there is time"},
    )


def _detail(watch: SlaWatch, sla: Sla, status: Status | None) -> dict[str, Json]:
    detail: dict[str, Json] = {
        "status": "not started" if status is None else status.value,
        # As in the Lambda edition: there, the watchdog handles deadlines that count from the arrival of data.
        "source": "schedule" if watch.arrived_at is None else "watchdog",
        "breachAt": format_rfc3339(watch.breach_at),
    }
    if watch.arrived_at is not None:
        detail["sensorArrivalAt"] = format_rfc3339(watch.arrived_at)
        detail["maxDuration"] = format_duration(watch.breach_at - watch.arrived_at)
    elif sla.deadline is not None:
        detail["deadline"] = str(sla.deadline)
    return detail


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


def _fact_of(effect: DeadlineEffect) -> RunBegan | RunSucceeded | DeadlineWaived:
    match effect:
        case WatchDeadline():
            return RunBegan(times=effect.times, arrived_at=effect.arrived_at, config_hash=effect.config_hash)
        case JudgeDeadline(succeeded_at=at):
            return RunSucceeded(at)
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
    return watch if watch is None or watch == before else replace(watch, owner=None if watch.verdict else by)


def next_due(watch: SlaWatch, now: datetime) -> datetime | None:
    """Return when the watch must next warn or judge; None after its verdict."""
    if watch.verdict is not None:
        return None
    if watch.warned_at is None and watch.warning_at is not None and watch.warning_at < watch.breach_at:
        return watch.warning_at if now < watch.breach_at else watch.breach_at
    return watch.breach_at


def _armed(watch: SlaWatch | None, key: RunKey, effect: ArmWatch, now: datetime) -> SlaWatch:
    watch = watch or SlaWatch(key=key, config_hash=effect.config_hash, since=now, breach_at=effect.times.breach_at)
    return replace(
        watch,
        config_hash=effect.config_hash,
        arrived_at=effect.arrived_at,
        warning_at=effect.times.warning_at,
        breach_at=effect.times.breach_at,
    )


def _applied(watch: SlaWatch | None, effect: WatchEffect, now: datetime) -> SlaWatch | None:
    match effect:
        case MarkWarned() if watch is not None:
            return replace(watch, since=now, warned_at=now)
        case CloseWatch(verdict=verdict, reason=reason) if watch is not None:
            return replace(watch, since=now, verdict=verdict, reason=reason)
        case _:
            return watch
