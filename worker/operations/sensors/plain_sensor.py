"""Recognises a sensor that needs no warning from the stored text of its pipeline alone.

Reading a whole configuration takes longer than writing a sensor. Most sensors are exactly what their pipeline names,
for a period that is certainly in range. All others get the full check in `advice.py`.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias, cast

from worker.core.time.periods import period_of_sensor, split_key
from worker.store.repos.sensors import Sensor

OLDEST: Final = timedelta(days=7)  # runs are kept for longer than that; a day that began in UTC is never too far ahead

# If the schedule has one of these keys, more than the trigger's name decides whether and for what a run starts.
_DECISIVE: Final = frozenset({"cron", "include", "maxAhead", "start"})

_Section: TypeAlias = Mapping[str, object]


def is_plainly_expected(text: str, sensor: Sensor, now: datetime) -> bool:
    """Return whether a pipeline certainly reads a sensor, for a period that it accepts.

    False only means that the full check must decide.
    """
    try:
        document = _section(json.loads(text))
    except ValueError:
        return False  # YAML, or damaged
    name = split_key(sensor.key)[0]
    rules = {part.get("key") for section in ("validation", "postRun") for part in _parts(document.get(section))}
    triggered = [each for each in _schedules(document) if _section(each.get("trigger")).get("key") == name]
    if name not in rules and not triggered:
        return False
    is_simple = all(_DECISIVE.isdisjoint(schedule) for schedule in triggered)
    return is_simple and not any(map(_is_special, _parts(document))) and _is_near(sensor, now)


def _is_near(sensor: Sensor, now: datetime) -> bool:
    """Return whether the sensor names no period, or one of the last days."""
    named = period_of_sensor(sensor.data, split_key(sensor.key)[1], date.min).date
    return named == date.min or now.date() - OLDEST <= named <= now.date()


def _is_special(part: _Section) -> bool:
    """Return whether a part compares keys by their prefix, or has a deadline of every hour."""
    return part.get("match", "exact") != "exact" or str(part.get("deadline", "")).startswith(":")


def _schedules(document: _Section) -> Iterator[_Section]:
    yield _section(document.get("schedule"))
    several = document.get("schedules")
    for each in cast("list[object]", several) if isinstance(several, list) else ():
        yield _section(each)


def _parts(value: object) -> Iterator[_Section]:
    """Yield every mapping in a value, at any depth."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            section = cast("_Section", found)
            yield section
            waiting.extend(section.values())
        elif isinstance(found, list):
            waiting.extend(cast("list[object]", found))


def _section(value: object) -> _Section:
    return cast("_Section", value) if isinstance(value, dict) else {}
