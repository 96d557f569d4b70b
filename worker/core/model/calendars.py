"""Calendars: which dates a schedule excludes, and why."""

from calendar import day_name, month_name, monthrange
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

_SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Calendar: a named set of days off. Weekdays count from Monday = 0, as in `date.weekday`."""

    name: str
    weekdays: frozenset[int] = frozenset()
    # date -> name of the day ("Independence Day"), or "" if the file gives none
    dates: Mapping[date, str] = field(default_factory=dict[date, str], hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Holds everything that can exclude a date; empty excludes nothing.

    `business_days` restricts runs to those business days of the month: 1 is the first, -1 the last. A business day is
    neither Saturday nor Sunday, and nothing else here excludes it.
    """

    weekends: bool = False
    weekdays: frozenset[int] = frozenset()
    dates: frozenset[date] = frozenset()
    calendars: tuple[Calendar, ...] = ()
    business_days: frozenset[int] = frozenset()


def reason_excluded(exclusion: Exclusion, day: date) -> str | None:
    """Return a sentence that says why nothing runs for this date, or None if it may run."""
    reason = _reason_of_rest(exclusion, day)
    if reason is None and exclusion.business_days:
        return _reason_of_business_days(exclusion, day)
    return reason


def past_inclusion_dates(dates: Iterable[date], today: date, limit: int = 3) -> tuple[date, ...]:
    """Return the latest `limit` dates that are not in the future, newest first."""
    return tuple(sorted({day for day in dates if day <= today}, reverse=True)[:limit])


def _reason_of_rest(exclusion: Exclusion, day: date) -> str | None:
    weekday = day.weekday()
    if exclusion.weekends and weekday >= _SATURDAY:
        return f"{day_name[weekday]}; weekends are excluded"
    if weekday in exclusion.weekdays:
        return f"{day_name[weekday]}; that weekday is excluded"
    if day in exclusion.dates:
        return f"{day} is an excluded date"
    reasons = (_reason_in_calendar(calendar, day) for calendar in exclusion.calendars)
    return next((reason for reason in reasons if reason), None)


def _reason_in_calendar(calendar: Calendar, day: date) -> str | None:
    if day in calendar.dates:
        return f"{day} is {calendar.dates[day] or 'a day off'} in calendar {calendar.name}"
    if day.weekday() in calendar.weekdays:
        return f"{day_name[day.weekday()]}; a day off in calendar {calendar.name}"
    return None


# --- business days ----------------------------------------------------------------------------------------------------


def _reason_of_business_days(exclusion: Exclusion, day: date) -> str | None:
    in_month = _business_days(exclusion, day.year, day.month)
    wanted = sorted(exclusion.business_days, key=lambda n: (n < 0, n))
    found = {n: _pick(in_month, n) for n in wanted}
    if day in found.values():
        return None
    month = f"{month_name[day.month]} {day.year}"
    names = " or ".join(_name(n) for n in wanted)
    days = [str(each) for each in sorted({each for each in found.values() if each})]
    if not days:
        return f"not the {names} business day of {month} (the month has {len(in_month)} business days)"
    return f"not the {names} business day of {month} ({'those are' if len(days) > 1 else 'that is'} {', '.join(days)})"


def _pick(days: tuple[date, ...], n: int) -> date | None:
    """Return the nth day, from the end if negative; None in a month that has fewer."""
    if abs(n) > len(days):
        return None
    return days[n - 1] if n > 0 else days[n]


# A plan asks for the same month many times; the cache holds this many schedules with rules of their own.
@lru_cache(maxsize=4096)
def _business_days(exclusion: Exclusion, year: int, month: int) -> tuple[date, ...]:
    days = (date(year, month, number) for number in range(1, monthrange(year, month)[1] + 1))
    return tuple(day for day in days if day.weekday() < _SATURDAY and _reason_of_rest(exclusion, day) is None)


def _name(n: int) -> str:
    if n == -1:
        return "last"
    if n < 0:
        return f"{_ordinal(-n)} to last"
    return "first" if n == 1 else _ordinal(n)


def _ordinal(n: int) -> str:
    teens = n % 100 in range(11, 14)
    return f"{n}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
