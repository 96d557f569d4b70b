"""The sensors that a pipeline names: their latest data, and when they usually arrive."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from worker.core.model import rules
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.summaries import SUMMARY_KEY
from worker.core.model.values import Json, show
from worker.core.run.drift import changed_at
from worker.core.statistics.usual_range import usual_range
from worker.core.time.local_time import shifted_instant, wall_at
from worker.core.time.periods import Period
from worker.operations.redaction import without_secrets
from worker.store.repos.sensors import Sensor, Sensors

NAMES_MAX: Final = 12
CADENCE_DAYS: Final = 14
ROWS_MAX: Final = 60  # of each name
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cadence:
    """Cadence is when a daily sensor usually arrives. `late_since`: the next one was due then."""

    early: datetime
    late: datetime
    late_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorLine:
    """SensorLine is a sensor by the name that rules use. `key` is "" if it was never written."""

    name: str
    key: str = ""
    period: str = ""
    data: str = ""
    changed_at: datetime | None = None
    cadence: Cadence | None = None


def sensor_names(pipeline: Pipeline, schedule: Schedule) -> list[str]:
    """Return every sensor that the trigger, the rules or the post-run rules name, each once."""
    trigger = [schedule.trigger.rule.key] if schedule.trigger else []
    after = [name for name in rules.keys(pipeline.post_run.rules) if name != SUMMARY_KEY] if pipeline.post_run else []
    return list(dict.fromkeys([*trigger, *rules.keys(pipeline.rules), *after]))


async def sensor_lines(
    sensors: Sensors, pipeline: Pipeline, schedule: Schedule, now: datetime
) -> tuple[list[SensorLine], int]:
    """Return one line for each name, at most NAMES_MAX, and how many names there are."""
    names = sensor_names(pipeline, schedule)
    today = wall_at(now, schedule.zone).date()
    lines: list[SensorLine] = []
    for name in names[:NAMES_MAX]:
        dated: list[Sensor] = []
        async for each in sensors.of_days(pipeline.id, name, today - CADENCE_DAYS * _DAY, today + _DAY):
            dated.append(each)
            if len(dated) > ROWS_MAX:
                dated.pop(0)
        latest = dated[-1] if dated else await sensors.get(pipeline.id, name)
        newest = max((period.date for each in dated if (period := _day_of(each))), default=None)
        cadence = cadence_of(list(arrivals(dated)), schedule.zone, now, newest)
        lines.append(SensorLine(name=name) if latest is None else _line(name, latest, cadence))
    return lines, len(names)


def _line(name: str, latest: Sensor, cadence: Cadence | None) -> SensorLine:
    return SensorLine(
        name=name,
        key=latest.key,
        period=latest.key.partition("#")[2],
        data=data_text(latest.data),
        changed_at=changed_at(latest.data),
        cadence=cadence,
    )


def data_text(data: Mapping[str, Json]) -> str:
    return ", ".join(f"{name} {show(without_secrets(value, name))}" for name, value in data.items())


def arrivals(dated: Sequence[Sensor]) -> Iterator[tuple[Period, datetime]]:
    """Yield the daily periods whose producer says when it wrote them."""
    for each in dated:
        period, at = _day_of(each), changed_at(each.data)
        if period is not None and at is not None:
            yield period, at


def _day_of(sensor: Sensor) -> Period | None:
    """Return the day that a sensor is for; None for an hour, and for what is no period."""
    text = sensor.key.partition("#")[2]
    period = Period.parse(text) or Period.parse_compact(text)
    return period if period is not None and period.hour is None else None


def cadence_of(
    found: Sequence[tuple[Period, datetime]], zone: tzinfo, now: datetime, newest: date | None = None
) -> Cadence | None:
    """Return the usual times of arrival, as those of the newest period; None for fewer than five.

    `newest` is the newest day that was written, also without a time: its sensor is there, so it is not late.
    """
    offsets = [wall_at(at, zone) - datetime.combine(period.date, time()) for period, at in found]
    usual = usual_range(offsets)
    if usual is None:
        return None
    newest = max([*(period.date for period, _ in found), *([] if newest is None else [newest])])
    early, late = (shifted_instant(datetime.combine(newest, time()) + each, zone) for each in usual)
    following = shifted_instant(datetime.combine(newest + _DAY, time()) + usual[1], zone)
    return Cadence(early, late, following if following < now else None)
