"""Every zone whose clocks change in 2020 to 2030, beside cronsim, which follows Debian's cron.

Each change of every zone is walked through with expressions from a seed and with ones that are hard on purpose. What
the two mean differently is in `follows_clock`, `text_for_cronsim` and `one_per_hour_of_data`.
"""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import cycle, islice, pairwise, takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from worker.config.cron_text import parse_cron
from worker.core.time.cron import fires_between
from worker.core.time.local_time import offset_at, wall_at

SEED: Final = 20260
FIRST: Final = datetime(2020, 1, 1, tzinfo=UTC)
LAST: Final = datetime(2031, 1, 1, tzinfo=UTC)
# Clocks stay changed for weeks, also where they go back for a month of fasting.
STEP: Final = timedelta(days=7)
HOUR: Final = timedelta(hours=1)
AROUND: Final = 26 * HOUR
RANDOM_PER_CHANGE: Final = 2
WALKS: Final = 60 if int(os.environ.get("CHAOS_ROUNDS", "0")) else 30
FIRES_PER_WALK: Final = 200

HARD: Final = (
    "5 2-4/2 * * *",  # a step between two hours names fixed hours
    "30 2 * * *",
    "0 2,3 * * *",
    "30 1-3 * * *",
    "15,45 0-5 * * *",
    "*/15 2 * * *",
    "* 2-3 * * *",
    "*/20 1-4/3 * * *",
    "0 0 * * *",
    "30 0,23 * * *",
    "59 23 * * *",
    "10 1-23/2 * * *",
    "0 */2 * * *",
    "10 * * * *",
    "7,37 */3 * * *",
    "30 0-23 * * *",
    "0 0-23/2 * * *",
    "40 */12,2 * * *",
    "40 2,*/12 * * *",
    "0 */24 * * *",
    "30 2 * * 0",
    "45 1,2 1-7 * 0,6",
    "20 2 */2 * 0",
    "30 0-3/3 L * L0",
)


@dataclass(frozen=True, slots=True)
class Change:
    """The instant at which the clocks of a zone change, and by how much."""

    zone: str
    at: datetime
    shift: timedelta

    def is_comparable(self, text: str) -> bool:
        """Whether cronsim finds what follows the clock there.

        It looks for minutes and hours an hour at a time, so where clocks shift by half an hour (Lord Howe) it passes
        over some. `test_cron_year.py` walks through that zone.
        """
        return abs(self.shift) >= HOUR or not follows_clock(text)


@cache
def changes() -> tuple[Change, ...]:
    """Every change of every zone; of zones whose clocks always agree, the first by name stands for all."""
    by_history: dict[tuple[tuple[datetime, timedelta], ...], str] = {}
    for zone in sorted(available_timezones()):
        by_history.setdefault(tuple(_history(ZoneInfo(zone))), zone)
    return tuple(
        Change(zone, at, new - old) for history, zone in by_history.items() for (_, old), (at, new) in pairwise(history)
    )


def _history(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """The offset at the start, then each instant of a change with the offset from then on."""
    looks = [FIRST + STEP * count for count in range((LAST - FIRST) // STEP + 1)]
    offsets = [(look, offset_at(look, zone)) for look in looks]
    yield offsets[0]
    for (before, old), (after, new) in pairwise(offsets):
        if old != new:
            low, high = before, after
            while high - low > timedelta(minutes=1):
                middle = low + (high - low) // timedelta(minutes=1) // 2 * timedelta(minutes=1)
                low, high = (middle, high) if offset_at(middle, zone) == old else (low, middle)
            yield high, new


def a_field(rng: random.Random, low: int, high: int) -> str:
    """A number, a list, a range, a range or star with a step, or a list of ranges."""
    first, last = sorted(rng.sample(range(low, high + 1), 2))
    number, step = rng.randint(low, high), rng.randint(2, max(2, (high - low) // 2))
    forms = [f"{number}", f"{first},{last}", f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}", f"{low}-{high}"]
    return rng.choice([*forms, f"{first}-{last}/{step},{number}", f"*/{step},{number}", "*"])


def an_expression(rng: random.Random) -> str:
    minute = rng.choice([f"{rng.randint(0, 59)}", f"{rng.randint(0, 59)}", a_field(rng, 0, 59)])
    # Around the hours at which clocks change, most of the time.
    hour = rng.choice([a_field(rng, 0, 5), a_field(rng, 0, 23)])
    day = rng.choice(["*", "*", "*", a_field(rng, 1, 31), "L"])
    month = rng.choice(["*", "*", a_field(rng, 1, 12)])
    weekday = rng.choice(["*", "*", "*", a_field(rng, 0, 6), "0", "5#2", "L6"])
    return f"{minute} {hour} {day} {month} {weekday}"


def follows_clock(text: str) -> bool:
    """Here, an hour field that is a star, with a step or without, or that names all hours, follows the clock."""
    hour, hours = text.split()[1], CronSim(text_for_cronsim(text), FIRST).hours
    return len(hours) == 24 or (len(hours) > 1 and re.fullmatch(r"(\*|0-23)/\d+", hour) is not None)


def text_for_cronsim(text: str) -> str:
    """The same fields in cronsim's words: fixed hours, whatever is in them.

    There, a star at the start of the minute or hour field is what follows the clock, so stars are written as ranges.
    The last Friday is `L5` here and `5L` there.
    """
    minute, hour, day, month, weekday = text.split()
    minute, hour, weekday = minute.replace("*", "0-59"), hour.replace("*", "0-23"), re.sub(r"L(\d)", r"\1L", weekday)
    return f"{minute} {hour} {day} {month} {weekday}"


def walk(text: str, zone: ZoneInfo, start: datetime) -> Iterator[datetime]:
    """The fires of cronsim after `start`."""
    fixed = CronSim(text_for_cronsim(text), start.astimezone(zone))
    if not follows_clock(text):
        return iter(fixed)
    minute, _, *days = text_for_cronsim(text).split()
    # Every hour is walked through and the named ones are picked: cronsim itself looks for them an hour at a time, and
    # passes over some where clocks change off the hour (Chatham). It writes a midnight that is skipped as 00:00.
    every = CronSim(" ".join((minute, "*", *days)), start.astimezone(zone))
    return (at for at in every if wall_at(at.astimezone(UTC), zone).hour in fixed.hours)


def one_per_hour_of_data(text: str, fires: list[datetime]) -> list[datetime]:
    """A schedule of several hours runs once for each hour of data; next to a gap, two times can be about the same."""
    sim = CronSim(text_for_cronsim(text), FIRST)
    if len(sim.minutes) > 1 or len(sim.hours) == 1:
        return fires
    firsts: dict[datetime, datetime] = {}
    for at in fires:
        firsts.setdefault(at.replace(minute=0), at)
    return list(firsts.values())


def found_by_cronsim(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    # From some hours earlier: a run in the first hour must know of an earlier one about the same hour.
    instants = (at.astimezone(UTC) for at in walk(text, zone, start - 3 * HOUR))
    fires = one_per_hour_of_data(text, list(takewhile(lambda at: at < end, instants)))
    return [at for at in fires if at >= start]


def found_here(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    return [fire.at for fire in fires_between(parse_cron(text), zone, start, end)]


def test_the_zones_of_the_world_change_their_clocks() -> None:
    zones = {change.zone for change in changes()}

    assert len(zones) > 40
    assert len(changes()) > 700


def test_on_the_days_the_clocks_change_every_zone_fires_as_debian_would() -> None:
    rng, hard = random.Random(SEED), cycle(HARD)
    differing: list[str] = []

    for change in changes():
        zone, start, end = ZoneInfo(change.zone), change.at - AROUND, change.at + AROUND
        texts = (next(hard), *(an_expression(rng) for _ in range(RANDOM_PER_CHANGE)))
        for text in filter(change.is_comparable, texts):
            expected, found = (look(text, zone, start, end) for look in (found_by_cronsim, found_here))
            if expected != found:
                odd = sorted({*expected} ^ {*found})
                differing.append(f"{text} in {change.zone} around {change.at}: {[f'{at:%dT%H:%M}' for at in odd]}")

    assert not differing, "\n".join(differing[:10])


@pytest.mark.parametrize("seed", range(SEED, SEED + WALKS))
def test_through_the_months_random_schedules_fire_as_debian_would(seed: int) -> None:
    rng = random.Random(seed)
    text = an_expression(rng)
    zone = ZoneInfo(rng.choice([change.zone for change in changes() if change.is_comparable(text)]))
    start = FIRST + timedelta(days=rng.randrange(365 * 9))

    last = max(islice(walk(text, zone, start), FIRES_PER_WALK), default=LAST).astimezone(UTC)

    assert found_here(text, zone, start, last) == found_by_cronsim(text, zone, start, last)
