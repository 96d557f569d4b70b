"""Reads calendars, and the days that a schedule excludes."""

from collections.abc import Mapping
from datetime import date
from functools import partial

from worker.config.problems import Problems, advise, show
from worker.config.scalars import read_date, read_weekday
from worker.config.schema import CalendarBody, CalendarDate, ExclusionSection, ScheduleSection
from worker.core.model.calendars import Calendar, Exclusion
from worker.yaml.document import Path

_DATE_HINT = "write YYYY-MM-DD, a day that exists"
_BUSINESS_DAYS = {"first": 1, "last": -1}


def read_calendar(name: str, body: CalendarBody, path: Path, problems: Problems) -> Calendar:
    dates: dict[date, str] = {}
    for index, item in enumerate(body.dates):
        text, label = (item.date, item.name) if isinstance(item, CalendarDate) else (item, "")
        found = read_date(text)
        if found is None:
            message = f"{show(text)} is not a date"
            problems.tolerate((*path, "dates", index), message, _DATE_HINT, instead="ignored")
        else:
            dates[found] = label
    return Calendar(name=name, weekdays=_read_weekdays(body.days, (*path, "days"), problems), dates=dates)


def read_exclusion(
    section: ScheduleSection,
    path: Path,
    problems: Problems,
    *,
    everywhere: ExclusionSection | None,
    calendars: Mapping[str, Calendar],
) -> Exclusion:
    """Return what a schedule excludes: its own days, and those that the file excludes everywhere."""
    sources: list[tuple[Path, ExclusionSection | None]] = [
        ((*path, "exclude"), section.exclude),
        (("exclusions",), everywhere),
    ]
    given = [(at, exclude) for at, exclude in sources if exclude is not None]
    named = [(at, key, names) for at, found in given for key, names in _calendar_names(found)]
    named.append((path, "calendar", _as_list(section.calendar)))
    return Exclusion(
        weekends=any(exclude.weekends for _, exclude in given),
        weekdays=frozenset(
            day for at, exclude in given for day in _read_weekdays(exclude.days, (*at, "days"), problems)
        ),
        dates=frozenset(day for at, exclude in given for day in _read_dates(exclude, at, problems)),
        calendars=_find_calendars(named, calendars, problems),
        business_days=_read_business_days(section, path, problems),
    )


def _calendar_names(exclude: ExclusionSection) -> list[tuple[str, list[str]]]:
    return [("calendar", _as_list(exclude.calendar)), ("holidays", _as_list(exclude.holidays))]


def _as_list(names: str | list[str]) -> list[str]:
    if isinstance(names, list):
        return names
    return [names] if names else []


def _find_calendars(
    named: list[tuple[Path, str, list[str]]], calendars: Mapping[str, Calendar], problems: Problems
) -> tuple[Calendar, ...]:
    """Return the named calendars, each once, sorted by name so that equal files give equal results."""
    found: dict[str, Calendar] = {}
    for at, key, names in named:
        for name in names:
            if name in calendars:
                found[name] = calendars[name]
            else:
                hint = partial(_advise_calendar, name, calendars)
                problems.tolerate((*at, key), f'there is no calendar "{name[:64]}"', hint, instead="ignored")
    return tuple(found[name] for name in sorted(found))


def _advise_calendar(name: str, calendars: Mapping[str, Calendar]) -> str:
    known = advise(name, sorted(calendars), kind="calendars here")
    return known or "put calendar files into a directory `calendars` next to the pipeline files"


def _read_weekdays(names: list[str], path: Path, problems: Problems) -> frozenset[int]:
    days = (read_weekday(name, (*path, index), problems) for index, name in enumerate(names))
    return frozenset(day for day in days if day is not None)


def _read_dates(exclude: ExclusionSection, path: Path, problems: Problems) -> list[date]:
    found: list[date] = []
    for index, text in enumerate(exclude.dates):
        day = read_date(text)
        if day is None:
            message = f"{show(text)} is not a date"
            problems.tolerate((*path, "dates", index), message, _DATE_HINT, instead="ignored")
        else:
            found.append(day)
    return found


def _read_business_days(section: ScheduleSection, path: Path, problems: Problems) -> frozenset[int]:
    given = section.business_days
    items = given if isinstance(given, list) else [] if given is None else [given]
    days = {_BUSINESS_DAYS[item] if isinstance(item, str) else item for item in items}
    if 0 in days:
        problems.error((*path, "businessDays"), "there is no business day 0", "the first is 1, the last is -1")
    return frozenset(days - {0})
