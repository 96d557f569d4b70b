"""When a cron expression fires, in a zone whose clocks jump twice a year."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """The five fields of a cron expression, expanded. Made by `worker/crontext.py`, which knows the syntax.

    A weekday is 0 (Sunday) to 6. `days` or `weekdays` None means the field did not restrict (`*`); when both restrict,
    a date that fits either fires, as in every cron.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    # (weekday, n): the nth such weekday of the month, `5#2`; n = -1 is the last one, `L5`.
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    last_day: bool = False
    # `*` or a step in the hour field: the schedule follows the wall clock as it really passes (23 or 25 hours a day).
    follows_clock: bool = False
