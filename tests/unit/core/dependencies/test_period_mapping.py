"""Which upstream periods a run waits for, against an oracle that walks over 400 days in steps of 15 minutes.

`make test-mapping` compares every period of the 400 days, which takes 20 minutes, and says how many there were.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from os import environ
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.dependencies.period_mapping import (
    WAITING_PERIODS_MAX,
    Link,
    is_mapping_allowed,
    needed_periods,
    waiting_periods,
)
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.pipeline import Dependency, PeriodMapping, PipelineId, Schedule, ScheduleId
from worker.core.time.periods import Granularity, Period

START, DAYS, STEP = datetime(2026, 3, 1, tzinfo=UTC), 400, timedelta(minutes=15)
# All change their clocks: by an hour, by half an hour, at midnight, and with an offset of 45 minutes.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Chatham")
PAIRS = [
    *((zone, zone) for zone in ZONES),
    *((zone, "UTC") for zone in ZONES),
    *pairwise(ZONES),
    *(("UTC", zone) for zone in ZONES),
]
CLOSED = Exclusion(
    weekends=True, calendars=(Calendar(name="holidays", dates={date(2026, 12, 25): "", date(2026, 11, 1): ""}),)
)


def a_schedule(zone: str, cron: str = "", grain: Granularity | None = None, *, is_closed: bool = False) -> Schedule:
    return Schedule(
        id=ScheduleId("s"),
        zone=ZoneInfo(zone),
        cron=parse_cron(cron) if cron else None,
        grain=grain,
        exclusion=CLOSED if is_closed else Exclusion(),
    )


def a_link(downstream: Schedule, upstream: Schedule, periods: PeriodMapping | None = None, **more: timedelta) -> Link:
    return Link(Dependency(pipeline=PipelineId("up"), periods=periods, **more), downstream, upstream)  # pyright: ignore[reportArgumentType]


# --- the oracle: it names every quarter of an hour by what the clocks show then, and knows nothing else ---------------


@cache
def steps() -> tuple[datetime, ...]:
    return tuple(START + number * STEP for number in range(DAYS * 96))


@cache
def walls(zone: str) -> tuple[datetime, ...]:
    return tuple(step.astimezone(ZoneInfo(zone)) for step in steps())


@cache
def names(zone: str, pattern: str) -> tuple[str, ...]:
    return tuple(format(wall, pattern) for wall in walls(zone))


def days_around_changes() -> set[str]:
    found: set[str] = set()
    for zone in ZONES:
        offsets = [wall.utcoffset() for wall in walls(zone)]
        changed = [number for number in range(1, len(offsets)) if offsets[number] != offsets[number - 1]]
        found |= {f"{steps()[number].date() + timedelta(days=shift)}" for number in changed for shift in (-1, 0, 1)}
    return found


CHANGES = days_around_changes()


def sample(periods: list[str], far: int) -> list[str]:
    """Some of the periods, and more of those on days around a change of the clocks; with a variable, all."""
    if "MAPPING_EVERY_PERIOD" in environ:
        return periods
    near = [each for each in periods if each[:10] in CHANGES]
    return sorted({*periods[:: max(1, len(periods) // far)], *near[:: max(1, len(near) // (2 * far))]})


DAY, HOUR, MINUTE = "%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H%M"
PATTERNS = {Granularity.DAILY: DAY, Granularity.HOURLY: HOUR, Granularity.MINUTE: MINUTE}


@dataclass
class Oracle:
    """Says for each of our periods which upstream names its quarters of an hour have."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    found: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for our, their in zip(self.ours, self.theirs, strict=True):
            self.found[our].add(their)

    def whole(self) -> list[str]:
        """Our periods, without those at either end, of which the walk sees only a part.

        Unless all are asked for, hours and minutes far from a change of the clocks are represented by some of them.
        """
        return sample(sorted(self.found)[2:-2], 30)


def texts(link: Link, period: str) -> list[str]:
    return [str(each.period) for each in needed_periods(link, parsed(period))]


def parsed(text: str) -> Period:
    period = Period.parse(text)
    assert period is not None
    return period


def compared(number: int) -> None:
    """Say how many periods were compared; `make test-mapping` adds them up."""
    print(f"compared {number} periods")


def agrees(link: Link, oracle: Oracle) -> None:
    inverse: dict[str, list[str]] = defaultdict(list)
    whole = oracle.whole()
    for ours in whole:
        expected = sorted(oracle.found[ours])
        assert texts(link, ours) == expected, ours
    for ours, theirs in sorted(oracle.found.items())[2:-2]:
        for each in theirs:
            inverse[each].append(ours)
    upstreams = sample(sorted(inverse)[60:-60], 10)
    for upstream in upstreams:
        assert [str(each) for each in waiting_periods(link, parsed(upstream))] == inverse[upstream], upstream
    compared(len(whole) + len(upstreams))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_a_day_waits_for_every_hour_that_the_clocks_show_in_it(ours: str, theirs: str) -> None:
    link = a_link(a_schedule(ours, grain=Granularity.DAILY), a_schedule(theirs, grain=Granularity.HOURLY))

    agrees(link, Oracle(names(ours, DAY), names(theirs, HOUR)))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_an_hour_waits_for_the_hours_that_share_an_instant_with_it(ours: str, theirs: str) -> None:
    link = a_link(a_schedule(ours, grain=Granularity.HOURLY), a_schedule(theirs, grain=Granularity.HOURLY))

    agrees(link, Oracle(names(ours, HOUR), names(theirs, HOUR)))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_days_have_the_same_date_in_any_zone(ours: str, theirs: str) -> None:
    link = a_link(a_schedule(ours, grain=Granularity.DAILY), a_schedule(theirs, grain=Granularity.DAILY))

    agrees(link, Oracle(names(ours, DAY), names(ours, DAY)))


CRONS: dict[str, Callable[[datetime], bool]] = {
    "0 * * * *": lambda wall: wall.minute == 0,
    "0 */2 * * *": lambda wall: wall.minute == 0 and wall.hour % 2 == 0,
    "30 6-18 * * 1-5": lambda wall: wall.minute == 30 and 6 <= wall.hour <= 18 and wall.isoweekday() <= 5,
    "*/15 * * * *": lambda _: True,
}


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "is_closed"), [(zone, place % 2 == 0) for place, zone in enumerate(ZONES)])
def test_a_day_waits_for_what_cron_and_calendar_of_the_upstream_make_expected(
    zone: str, is_closed: bool, cron: str
) -> None:
    ours = a_schedule("Europe/Berlin", grain=Granularity.DAILY)
    link = a_link(ours, a_schedule(zone, cron, is_closed=is_closed))
    is_hourly = link.upstream.cron is not None and link.upstream.cron.granularity is Granularity.HOURLY
    pattern = HOUR if is_hourly else MINUTE
    due: dict[str, datetime] = {}
    for step, wall in zip(steps(), walls(zone), strict=True):
        if CRONS[cron](wall):
            at = step - timedelta(hours=1) if is_hourly else step
            due.setdefault(format(at, pattern), step - timedelta(hours=1) if is_hourly else step)
    oracle = Oracle(names("Europe/Berlin", DAY), names("UTC", pattern))

    days = oracle.whole() if is_hourly or "MAPPING_EVERY_PERIOD" in environ else oracle.whole()[::4]
    for day in days:
        expected = sorted(oracle.found[day] & due.keys())
        needed = needed_periods(link, parsed(day))
        assert [str(each.period) for each in needed] == expected, day
        for each in needed:
            assert (each.excused is not None) == (is_closed and is_off(each.period, zone)), (day, each)
    compared(len(days))


def is_off(period: Period, zone: str) -> bool:
    begins = period.begins.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    return begins.isoweekday() > 5 or begins.date() in {date(2026, 12, 25), date(2026, 11, 1)}


@pytest.mark.parametrize("zone", ZONES)
def test_an_hour_waits_for_every_minute_that_cron_makes_expected_in_it(zone: str) -> None:
    link = a_link(a_schedule(zone, grain=Granularity.HOURLY), a_schedule(zone, "*/15 * * * *"))

    agrees(link, Oracle(names(zone, HOUR), names("UTC", MINUTE)))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS[:10])
def test_the_previous_hour_is_the_one_before_ours_begins(ours: str, theirs: str) -> None:
    link = a_link(
        a_schedule(ours, grain=Granularity.HOURLY), a_schedule(theirs, grain=Granularity.HOURLY), PeriodMapping.PREVIOUS
    )
    mine, other = names(ours, HOUR), names(theirs, HOUR)
    begins: dict[str, int] = {}
    for number, name in enumerate(mine):
        begins.setdefault(name, number)

    sampled = sample([*begins][4:-4], 30)
    for name in sampled:
        number = begins[name]
        assert texts(link, mine[number]) == sorted(set(other[number - 4 : number])), name
    compared(len(sampled))


def test_the_previous_day_is_yesterday_and_wakes_tomorrow() -> None:
    day = a_schedule("UTC", grain=Granularity.DAILY)
    link = a_link(day, day, PeriodMapping.PREVIOUS)

    assert texts(link, "2026-03-01") == ["2026-02-28"]
    assert waiting_periods(link, Period(date(2026, 2, 28))) == (Period(date(2026, 3, 1)),)


def test_the_number_of_hours_of_a_day_follows_the_clocks() -> None:
    link = a_link(a_schedule("Europe/Berlin", grain=Granularity.DAILY), a_schedule("UTC", grain=Granularity.HOURLY))

    assert [len(texts(link, day)) for day in ("2026-03-28", "2026-03-29", "2026-10-25")] == [24, 23, 25]


def test_a_day_that_the_cron_of_the_upstream_leaves_out_is_excused_with_that_reason() -> None:
    link = a_link(a_schedule("UTC", grain=Granularity.DAILY), a_schedule("UTC", "0 6 * * 1-5"))

    [saturday] = needed_periods(link, Period(date(2026, 11, 14)))
    [friday] = needed_periods(link, Period(date(2026, 11, 13)))

    assert saturday.excused == "its cron `0 6 * * 1-5` makes no run of 2026-11-14 due"
    assert friday.excused is None


def test_a_day_that_is_not_one_of_the_listed_dates_is_excused() -> None:
    upstream = Schedule(id=ScheduleId("s"), include_dates=(date(2026, 11, 13),))
    link = a_link(a_schedule("UTC", grain=Granularity.DAILY), upstream)

    assert [needed_periods(link, Period(date(2026, 11, day)))[0].excused for day in (13, 14)] == [
        None,
        "2026-11-14 is not one of its dates",
    ]


def test_latest_concerns_the_periods_from_its_own_on_within_its_range() -> None:
    day = a_schedule("UTC", grain=Granularity.DAILY)
    link = a_link(day, day, PeriodMapping.LATEST, within=timedelta(days=3))

    concerned = waiting_periods(link, Period(date(2026, 11, 10)))

    assert [str(each) for each in concerned] == ["2026-11-10", "2026-11-11", "2026-11-12", "2026-11-13"]


def test_one_upstream_period_concerns_a_bounded_number_of_ours() -> None:
    minute = a_schedule("UTC", grain=Granularity.MINUTE)
    link = a_link(minute, minute, PeriodMapping.LATEST)

    assert len(waiting_periods(link, parsed("2026-11-10T0000"))) == WAITING_PERIODS_MAX


def test_without_any_grain_a_run_has_the_grain_of_its_upstream_run() -> None:
    link = a_link(a_schedule("UTC"), a_schedule("UTC"))

    assert waiting_periods(link, parsed("2026-11-10T07")) == (parsed("2026-11-10T07"),)
    assert waiting_periods(link, parsed("2026-11-10")) == (parsed("2026-11-10"),)


@pytest.mark.parametrize("day", ["1970-01-01", "1970-01-03", "9998-12-31"])
def test_the_ends_of_the_calendar_raise_no_error(day: str) -> None:
    for mapping in PeriodMapping:
        link = a_link(a_schedule("Pacific/Chatham", grain=Granularity.DAILY), a_schedule("UTC"), mapping)

        needed_periods(link, parsed(day))
        waiting_periods(link, parsed(day))


def test_which_mappings_the_grains_allow() -> None:
    day, hour = Granularity.DAILY, Granularity.HOURLY

    assert is_mapping_allowed(PeriodMapping.SAME, day, day)
    assert not is_mapping_allowed(PeriodMapping.SAME, day, hour)
    assert is_mapping_allowed(PeriodMapping.ALL, day, hour)
    assert not is_mapping_allowed(PeriodMapping.ALL, hour, day)
    assert is_mapping_allowed(PeriodMapping.LATEST, hour, day)
    assert not is_mapping_allowed(PeriodMapping.PREVIOUS, hour, day)
