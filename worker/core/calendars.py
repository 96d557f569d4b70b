"""Which dates a schedule leaves out, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A named set of days on which work rests. Weekdays count from Monday = 0, as in `date.weekday`."""

    name: str
    weekdays: frozenset[int] = frozenset()
    # date -> what day it is ("Independence Day"), or "" where the file gives no name
    dates: Mapping[date, str] = field(default_factory=dict[date, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Everything that can keep a date from running; empty means nothing does.

    `business_days` restricts to those business days of the month: 1 is the first, -1 the last. A business day is one
    that is neither Saturday nor Sunday and that nothing else here leaves out.
    """

    weekends: bool = False
    weekdays: frozenset[int] = frozenset()
    dates: frozenset[date] = frozenset()
    calendars: tuple[Calendar, ...] = ()
    business_days: frozenset[int] = frozenset()
