"""Which runs a sensor speaks to: as the signal that starts one, as a rule's input, as what is watched afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from worker.core.model.pipeline import Match, Pipeline, Schedule, Undated
from worker.core.model.rules import evaluate_rule, keys
from worker.core.model.values import Json
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period, period_of_sensor, split_key

# Runs of older periods than this are not looked for: a resync, or a sensor without a period, reaches back so far.
LOOK_BACK = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class SensorContent:
    """What a sensor says: its stored key and its data."""

    key: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """The condition of a schedule's trigger holds. `is_undated`: the sensor itself does not say for which period."""

    schedule: Schedule
    period: Period
    is_undated: bool

    @property
    def binds_once(self) -> bool:
        """An undated signal is for the day it came, and not for each day it stays."""
        trigger = self.schedule.trigger
        return self.is_undated and trigger is not None and trigger.undated is Undated.ONCE


def period_said(saying: SensorContent, schedule: Schedule, at: datetime) -> tuple[Period, bool]:
    """The period a sensor speaks of, and whether that is only because of when it was written."""
    named = period_named(saying)
    return (Period(wall_at(at, schedule.zone).date()), True) if named is None else (named, False)


def period_named(saying: SensorContent) -> Period | None:
    """The period that a sensor itself names, in its data or its key; None: it names none."""
    # No sensor can name this day, so getting it back means that the sensor named none.
    said = period_of_sensor(saying.data, split_key(saying.key)[1], date.min)
    return None if said.date == date.min else said


def is_for_later(saying: SensorContent, period: Period) -> bool:
    """Say whether a sensor names a later period than this one. A day is not later than the hours in it."""
    named = period_named(saying)
    if named is None:
        return False
    if named.date != period.date or named.hour is None or period.hour is None:
        return named.date > period.date
    return named.begins > period.begins


def is_named(key: str, name: str, match: Match) -> bool:
    """Say whether a sensor's key is the one a trigger or rule names: the key itself, or the key and a period."""
    if match is Match.PREFIX:
        return key.startswith(name)
    return name in {key, split_key(key)[0]}


def is_trigger(schedule: Schedule, key: str) -> bool:
    trigger = schedule.trigger
    return trigger is not None and schedule.starts_by_trigger and is_named(key, trigger.rule.key, trigger.match)


def triggered(schedule: Schedule, saying: SensorContent, at: datetime) -> Triggered | None:
    """The start that a sensor asks for; None if it is not the trigger, or its condition does not hold."""
    trigger = schedule.trigger
    if trigger is None or not is_trigger(schedule, saying.key):
        return None
    if not evaluate_rule(trigger.rule, saying.data, at).passed:
        return None
    period, is_undated = period_said(saying, schedule, at)
    return Triggered(schedule=schedule, period=period, is_undated=is_undated)


def post_run_name(pipeline: Pipeline, key: str) -> str | None:
    """The name under which the post-run rules know a sensor; None if they do not."""
    post_run = pipeline.post_run
    if post_run is None:
        return None
    named = [name for name in keys(post_run.rules) if is_named(key, name, post_run.match)]
    # Of several prefixes the longest says most about the sensor.
    return max(named, key=len, default=None)


@dataclass(frozen=True, slots=True)
class Audience:
    """The runs whose rules see a sensor. `period` None: those of every period."""

    period: Period | None


def audience(pipeline: Pipeline, key: str) -> Audience | None:
    """Who must look again when a sensor was written; None if no rule names it."""
    names = set(keys(pipeline.rules))
    if key in names:
        return Audience(None)
    name, period = split_key(key)
    return Audience(period) if period is not None and name in names else None
