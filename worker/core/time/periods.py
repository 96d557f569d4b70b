"""Periods: the day, hour or minute of data that a run is for, and how sensors name it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import Self

from worker.core.time.local_time import reached_at, wall_at

# The dates that runs can be for. Producers write 9999-12-31 for "never", and a deadline past the end of the calendar
# cannot be computed; nothing outside these years is a period.
FIRST_DATE, LAST_DATE = date(1970, 1, 1), date(9998, 12, 31)

_SUFFIX = r"(?:T(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)?)?"
_DASHED = re.compile(rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d){_SUFFIX}", re.ASCII)
_COMPACT = re.compile(rf"(?P<year>\d{{4}})(?P<month>\d\d)(?P<day>\d\d){_SUFFIX}", re.ASCII)


class Granularity(StrEnum):
    DAILY = "daily"
    HOURLY = "hourly"
    MINUTE = "minute"


@total_ordering
@dataclass(frozen=True, slots=True)
class Period:
    """Period: a day, an hour or a minute. Ordered as its text: a day comes before its own hours."""

    date: date
    hour: int | None = None
    minute: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `YYYY-MM-DD`, `YYYY-MM-DDTHH` or `YYYY-MM-DDTHHMM`; None for any other text or no real date."""
        return cls._read(_DASHED.fullmatch(text))

    @classmethod
    def parse_compact(cls, text: str) -> Self | None:
        """Read `YYYYMMDD`, `YYYYMMDDTHH` or `YYYYMMDDTHHMM`, as some producers write it."""
        return cls._read(_COMPACT.fullmatch(text))

    @classmethod
    def _read(cls, match: re.Match[str] | None) -> Self | None:
        if match is None:
            return None
        try:
            day = date(int(match["year"]), int(match["month"]), int(match["day"]))
        except ValueError:
            return None
        if not FIRST_DATE <= day <= LAST_DATE:
            return None
        hour, minute = match["hour"], match["minute"]
        return cls(day, int(hour) if hour else None, int(minute) if minute else None)

    @classmethod
    def hour_of(cls, wall: datetime) -> Self:
        return cls(wall.date(), wall.hour)

    @classmethod
    def minute_of(cls, wall: datetime) -> Self:
        return cls(wall.date(), wall.hour, wall.minute)

    @property
    def granularity(self) -> Granularity:
        if self.hour is None:
            return Granularity.DAILY
        return Granularity.HOURLY if self.minute is None else Granularity.MINUTE

    @property
    def begins(self) -> datetime:
        """Return the wall time at which it begins; the zone depends on who named the period."""
        return datetime.combine(self.date, time(self.hour or 0, self.minute or 0))

    @property
    def compact(self) -> str:
        return str(self).replace("-", "")

    def __str__(self) -> str:
        return _name(self.date, self.hour, self.minute)

    def __lt__(self, other: Self) -> bool:
        return str(self) < str(other)


@lru_cache(maxsize=1_024)  # a run's name is part of everything that is written about it
def _name(day: date, hour: int | None, minute: int | None) -> str:
    hours = "" if hour is None else f"T{hour:02d}"
    minutes = "" if minute is None else f"{minute:02d}"
    return f"{day.isoformat()}{hours}{minutes}"


def date_in_zone(period: Period, *, zone: tzinfo, hour_zone: tzinfo) -> date:
    """Return the period's date on the clocks of `zone`.

    A day is its own date; an hour or minute was named in `hour_zone`.
    """
    if period.hour is None or zone == hour_zone:
        return period.date
    return wall_at(reached_at(period.begins, hour_zone), zone).date()


# --- sensors ----------------------------------------------------------------------------------------------------------


def sensor_keys(key: str, period: Period) -> tuple[str, str, str]:
    """Return the keys that the sensor `key` of a period may be stored under; the first that exists counts."""
    return f"{key}#{period}", f"{key}#{period.compact}", key


@lru_cache(maxsize=1_024)  # each component that handles a sensor asks it of the same key
def split_key(key: str) -> tuple[str, Period | None]:
    """Split the period off the end of a sensor's key; a suffix that is no period belongs to the name."""
    name, _, suffix = key.rpartition("#")
    period = Period.parse(suffix) or Period.parse_compact(suffix)
    return (name, period) if name and period else (key, None)


def period_of_sensor(data: Mapping[str, object], key_suffix: Period | None, local_today: date) -> Period:
    """Return a sensor's period: its own `date` (with `hour`, `minute`), else its key's suffix, else today."""
    day = _date(data.get("date"))
    if day is None:
        return key_suffix or Period(local_today)
    hour = _number(data.get("hour"), r"\d{1,2}", below=24)
    minute = _number(data.get("minute"), r"\d\d", below=60)
    return Period(day, hour, None if hour is None else minute)


def _date(value: object) -> date | None:
    text = str(whole) if (whole := _whole(value)) is not None else value
    if not isinstance(text, str):
        return None
    period = Period.parse(text) or Period.parse_compact(text)
    return period.date if period and period.granularity is Granularity.DAILY else None


def _number(value: object, pattern: str, *, below: int) -> int | None:
    number = _whole(value)
    if number is None and isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII):
        number = int(value)
    return number if number is not None and 0 <= number < below else None


def _whole(value: object) -> int | None:
    """Return a whole number; None for any other value.

    Producers also write 20260303 as a number, and stores return such a number as an integer, decimal or double.
    """
    match value:
        case bool():
            return None
        case Decimal() if not value.is_finite():
            return None
        # Larger numbers are neither dates nor hours, and converting them could fail or be costly.
        case int() | float() | Decimal() if abs(value) < 10**8 and value == int(value):
            return int(value)
        case _:
            return None
