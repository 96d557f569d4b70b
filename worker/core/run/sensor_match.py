"""Sensor match: for which runs a sensor is a trigger, an input of a rule or a post-run value."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from worker.core.model.pipeline import Match, Pipeline, Schedule, Undated
from worker.core.model.rules import evaluate_rule, keys
from worker.core.model.values import Json
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period, period_of_sensor, split_key

# How far back a resync, or a sensor without a period, reaches: runs of older periods are not considered.
LOOK_BACK = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class SensorContent:
    """Holds the content of a sensor: its stored key and its data."""

    key: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """Triggered: a schedule's trigger condition holds. `is_undated`: the sensor names no period."""

    schedule: Schedule
    period: Period
    is_undated: bool

    @property
    def binds_once(self) -> bool:
        """Return whether an undated sensor is for the day it arrived only, not for each day it remains."""
        trigger = self.schedule.trigger
        return self.is_undated and trigger is not None and trigger.undated is Undated.ONCE


def period_said(saying: SensorContent, schedule: Schedule, at: datetime) -> tuple[Period, bool]:
    """Return the period that a sensor is for, and whether only its write time determines it."""
    named = period_named(saying)
    return (Period(wall_at(at, schedule.zone).date()), True) if named is None else (named, False)


def period_named(saying: SensorContent) -> Period | None:
    """Return the period that a sensor names in its data or its key; None if it names none."""
    # No sensor can name this day, so this result means that the sensor named none.
    said = period_of_sensor(saying.data, split_key(saying.key)[1], date.min)
    return None if said.date == date.min else said


def is_for_later(saying: SensorContent, period: Period) -> bool:
    """Return whether a sensor names a later period. A day is not later than the hours in it."""
    named = period_named(saying)
    if named is None:
        return False
    if named.date != period.date or named.hour is None or period.hour is None:
        return named.date > period.date
    return named.begins > period.begins


def is_for(saying: SensorContent, period: Period) -> bool:
    """Return whether a sensor names a period, the day of an hour, or an hour of the day."""
    named = period_named(saying)
    if named is None or named.date != period.date:
        return False
    return named.hour is None or period.hour is None or named == period


def is_named(key: str, name: str, match: Match) -> bool:
    """Return whether a key is the one that a trigger or rule names: exactly, or with a period added."""
    if match is Match.PREFIX:
        return key.startswith(name)
    return name in {key, split_key(key)[0]}


def is_trigger(schedule: Schedule, key: str) -> bool:
    trigger = schedule.trigger
    return trigger is not None and schedule.starts_by_trigger and is_named(key, trigger.rule.key, trigger.match)


def triggered(schedule: Schedule, saying: SensorContent, at: datetime) -> Triggered | None:
    """Return the start that a sensor asks for; None if it is not the trigger or its condition fails."""
    trigger = schedule.trigger
    if trigger is None or not is_trigger(schedule, saying.key):
        return None
    if not evaluate_rule(trigger.rule, saying.data, at).passed:
        return None
    period, is_undated = period_said(saying, schedule, at)
    return Triggered(schedule=schedule, period=period, is_undated=is_undated)


def post_run_name(pipeline: Pipeline, key: str) -> str | None:
    """Return the name under which the post-run rules know a sensor; None if they do not."""
    post_run = pipeline.post_run
    if post_run is None:
        return None
    named = [name for name in keys(post_run.rules) if is_named(key, name, post_run.match)]
    # Of several prefixes, the longest describes the sensor best.
    return max(named, key=len, default=None)


def is_named_by(pipeline: Pipeline, key: str) -> bool:
    """Return whether a sensor is a trigger, an input of a rule or a post-run value of a pipeline."""
    is_input = audience(pipeline, key) is not None or post_run_name(pipeline, key) is not None
    return is_input or any(is_trigger(schedule, key) for schedule in pipeline.schedules)


@dataclass(frozen=True, slots=True)
class Audience:
    """Names the runs whose rules read a sensor. `period` None means those of every period."""

    period: Period | None


def audience(pipeline: Pipeline, key: str) -> Audience | None:
    """Return which runs must be evaluated after a sensor was written; None if no rule names it."""
    names = set(keys(pipeline.rules))
    if key in names:
        return Audience(None)
    name, period = split_key(key)
    return Audience(period) if period is not None and name in names else None
