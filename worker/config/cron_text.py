"""Parses cron text to `Cron`. The syntax is croniter's five fields.

`worker/core/time/cron.py` defines when they fire.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from croniter import croniter

from worker.core.time.cron import LAST, Cron

TEXT_MAX = 200
FIELDS_KEPT = 1_024

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_WEEKDAYS = "SUN MON TUE WED THU FRI SAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """Describes one of the five fields: its index, its words, and what it accepts, for messages."""

    index: int
    name: str
    accepts: str
    words: frozenset[str] = frozenset()
    highest: frozenset[str] = frozenset()


_FIELDS = (
    _Field(index=0, name="minute", accepts="0-59", highest=frozenset({"59"})),
    _Field(index=1, name="hour", accepts="0-23", highest=frozenset({"23"})),
    _Field(
        index=2,
        name="day of month",
        accepts="1-31 or L (the last day)",
        words=frozenset({"L"}),
        highest=frozenset({"31"}),
    ),
    _Field(
        index=3,
        name="month",
        accepts="1-12 or JAN-DEC",
        words=frozenset(_MONTHS.split()),
        highest=frozenset({"12", "DEC"}),
    ),
    _Field(
        index=4,
        name="day of week",
        accepts="0-7 (0 and 7 are Sunday) or SUN-SAT, 5#2 (the second Friday) or L5 (the last Friday)",
        words=frozenset({*_WEEKDAYS.split(), "L"}),
        highest=frozenset({"6", "SAT"}),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expanded:
    """Holds the expanded values of a field.

    If `numbers` is None the field does not restrict. If it is empty, only `has_last` or `nth` restrict.
    """

    numbers: frozenset[int] | None
    has_last: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()

    def numbers_within(self, everything: range) -> tuple[int, ...]:
        return tuple(everything) if self.numbers is None else tuple(sorted(self.numbers))


_LEGAL = re.compile(r"[0-9A-Za-z*/,#?-]+")
_WORD = re.compile(r"[A-Za-z]+")
_STEPS_OF_DAY = re.compile(r"(?:\*|0+-23|0+)/\d+")
_STEPS_FROM_ONE = re.compile(r"(?<![^,])(\w+)/\d+(?![^,])")
_RANGE_OF_ONE = re.compile(r"(?<![^,])(\w+)-\1(?:/\d+)?(?![^,])")


class BadCron(ValueError):
    """Signals that the text is not a supported cron expression; the message names the field.

    It also says what the field accepts.
    """


def parse_cron(text: str) -> Cron:
    """Parse five fields, or one of `@hourly @daily @weekly @monthly @yearly`. Raises `BadCron`."""
    if len(text) > TEXT_MAX:
        raise BadCron(f"a cron expression has at most {TEXT_MAX} characters, this one has {len(text)}")
    fields = _split(text)
    minutes, hours, days, months, weekdays = map(_expand, _FIELDS, fields)
    hour_text = fields[1]
    return Cron(
        text=text,
        minutes=minutes.numbers_within(range(60)),
        hours=hours.numbers_within(range(24)),
        days=days.numbers,
        months=frozenset(months.numbers_within(range(1, 13))),
        weekdays=weekdays.numbers,
        nth_weekdays=weekdays.nth,
        last_day=days.has_last,
        must_fit_both=fields[2].startswith("*") or fields[4].startswith("*"),
        # `0-23` means the same as `*`. A step that leaves one hour (`*/24`) is that fixed hour. A step between two
        # hours (`2-4/2`) or a list is a short form of fixed hours.
        follows_clock=hours.numbers is None
        or (len(hours.numbers) > 1 and _STEPS_OF_DAY.fullmatch(hour_text) is not None),
    )


def _split(text: str) -> list[str]:
    fields = _expand_alias(text.strip()).split()
    if len(fields) == len(_FIELDS):
        return fields
    names = ", ".join(field.name for field in _FIELDS)
    hint = "; seconds and years are not supported" if len(fields) > len(_FIELDS) else ""
    raise BadCron(f"{text!r} has {len(fields)} fields; a cron expression has 5: {names}{hint}")


def _expand_alias(text: str) -> str:
    if not text.startswith("@"):
        return text
    if text.lower() not in NICKNAMES:
        raise BadCron(f"{text!r} is not known; accepted are {', '.join(NICKNAMES)}, or five fields")
    return NICKNAMES[text.lower()]


@lru_cache(maxsize=FIELDS_KEPT)  # thousands of pipelines share a few fields, and croniter takes long
def _expand(field: _Field, part: str) -> _Expanded:
    """Expand one field with croniter, among valid others, so that any error is this field's."""
    words = {word.upper() for word in _WORD.findall(part)}
    # croniter also accepts hashed, random and nearest-weekday forms, whose meaning varies between calls or elsewhere.
    if not _LEGAL.fullmatch(part) or "*#" in part or not words <= field.words:
        raise _refusal(field, part)
    try:
        values, nth = croniter.expand(" ".join(_among_others(field, part)))
    except ValueError as error:
        raise _refusal(field, part) from error
    # croniter's type omits the "l" of `L5`.
    nths = [(weekday, n) for weekday, ns in cast("dict[int, set[int | str]]", nth).items() for n in ns]
    numbers = frozenset(value for value in values[field.index] if isinstance(value, int))
    return _Expanded(
        numbers=None if "*" in values[field.index] else numbers.difference(nth),
        has_last="l" in values[field.index],
        nth=frozenset((weekday, n if isinstance(n, int) else LAST) for weekday, n in nths),
    )


def _among_others(field: _Field, part: str) -> list[str]:
    # With a star in the other day field, croniter would turn `1-31` into a star. Combined with a weekday they differ:
    # `1-31` names every day, `*` leaves the choice to the weekday.
    fields = ["*", "*", "1", "*", "1"]
    # croniter reads 5-5 as a full cycle, and wraps steps from the highest value (`23/2`). Every other program reads
    # both as the single value.
    part = _RANGE_OF_ONE.sub(r"\1", part)
    fields[field.index] = _STEPS_FROM_ONE.sub(
        lambda found: found[1] if found[1].upper() in field.highest else found[0], part
    )
    return fields


def _refusal(field: _Field, part: str) -> BadCron:
    return BadCron(
        f"{field.name} {part!r} is not understood; "
        f"accepted are {field.accepts}, lists (1,2), ranges (1-5), steps (*/2) and *"
    )
