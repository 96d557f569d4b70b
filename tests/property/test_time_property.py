"""What must hold of cron, periods and deadlines whatever the expression, the zone and the moment."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from worker.config.cron_text import BadCron, parse_cron
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Schedule, ScheduleId, Sla
from worker.core.model.sla_times import deadline_at
from worker.core.schedule.expected_runs import expected_runs
from worker.core.time.cron import fires_between, next_fire, period_of_fire, previous_fire
from worker.core.time.local_time import reached_at, wall_at
from worker.core.time.periods import Granularity, Period, sensor_keys, split_key

UTC_ZONE = ZoneInfo("UTC")
# Gaps at night and at midnight, half an hour, quarter hours, both hemispheres, a skipped day, no change at all.
ZONES = st.sampled_from(
    [
        "UTC", "America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "Australia/Sydney",
        "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Kolkata", "Asia/Kathmandu", "America/Santiago",
        "America/Nuuk", "America/St_Johns", "America/Havana", "Pacific/Apia", "Pacific/Chatham", "Antarctica/Troll",
    ]
).map(ZoneInfo)  # fmt: skip
# Where clocks change most: the nights of spring and autumn, and the day Samoa left out.
CHANGES = st.sampled_from(
    [
        (2011, 12, 30), (2026, 3, 8), (2026, 3, 29), (2026, 4, 5), (2026, 4, 24), (2026, 9, 6), (2026, 10, 4),
        (2026, 10, 25), (2026, 11, 1), (2010, 11, 7),
    ]
)  # fmt: skip


@st.composite
def instants(draw: st.DrawFn) -> datetime:
    seconds = draw(st.integers(-3 * 86400, 3 * 86400)) // draw(st.sampled_from([1, 60, 3600]))
    near = datetime(*draw(CHANGES), tzinfo=UTC) + timedelta(seconds=seconds)
    anywhere = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
    return near if draw(st.booleans()) else draw(anywhere)


def fields(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.sets(number, min_size=2, max_size=2).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.tuples(st.sampled_from(["*", f"{low}-{high}"]), st.integers(2, 20)).map(
        lambda step: "/".join(map(str, step))
    )
    lists = st.lists(number.map(str), min_size=1, max_size=3, unique=True).map(",".join)
    return st.one_of(st.just("*"), number.map(str), spans, steps, lists, *(st.just(text) for text in more))


MINUTES, HOURS, DAYS = fields(0, 59), fields(0, 23), fields(1, 31, "L", "1,L", "28-31")
MONTHS, WEEKDAYS = fields(1, 12, "FEB", "JAN-MAR"), fields(0, 7, "MON-FRI", "5#2", "1#1,1#3", "L5", "sun")
EVERY_DAY = st.tuples(MINUTES, HOURS).map(lambda times: f"{times[0]} {times[1]} * * *")
EXPRESSIONS = st.one_of(EVERY_DAY, st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join))


@given(EXPRESSIONS, instants())
@settings(max_examples=75, deadline=None)
def test_in_utc_we_agree_with_croniter(text: str, after: datetime) -> None:
    cron = parse_cron(text)
    # croniter forgets the days of the month beside a `5#2`; here as elsewhere a date that fits either fires.
    assume(cron.days is None or not cron.nth_weekdays)
    ours = next_fire(cron, UTC_ZONE, after)
    assume(ours is not None)

    # What croniter calls a bug is what crontab(5) promises: a star with a step is a star.
    theirs = croniter(text, after, ret_type=datetime, implement_cron_bug=True).get_next()

    assert ours == theirs
    later = theirs + timedelta(seconds=1)
    before = croniter(text, later, ret_type=datetime, implement_cron_bug=True).get_prev()
    assert previous_fire(cron, UTC_ZONE, theirs + timedelta(seconds=1)) == before == theirs


@given(EXPRESSIONS, ZONES, instants())
@settings(max_examples=100, deadline=None)
def test_next_and_previous_are_inverse(text: str, zone: ZoneInfo, at: datetime) -> None:
    cron = parse_cron(text)
    fire = next_fire(cron, zone, at)
    assume(fire is not None)
    assert fire is not None

    assert fire > at
    before, after = previous_fire(cron, zone, fire), next_fire(cron, zone, fire)
    assert before is None or before <= at
    assert after is None or previous_fire(cron, zone, after) == fire
    assert before is None or next_fire(cron, zone, before) == fire


@given(EVERY_DAY, ZONES, instants())
@settings(max_examples=75, deadline=None)
def test_a_range_holds_exactly_what_stepping_finds(text: str, zone: ZoneInfo, start: datetime) -> None:
    cron, end = parse_cron(text), start + timedelta(hours=30)

    stepped: list[datetime] = []
    at = next_fire(cron, zone, start - timedelta.resolution)
    while at is not None and at < end:
        stepped.append(at)
        at = next_fire(cron, zone, at) if len(stepped) < 40 else None

    assert [fire.at for fire in fires_between(cron, zone, start, end)][: len(stepped)] == stepped


@given(EVERY_DAY, ZONES, instants())
@settings(max_examples=75, deadline=None)
def test_no_two_fires_are_about_the_same_period(text: str, zone: ZoneInfo, start: datetime) -> None:
    cron = parse_cron(text)

    fires = list(fires_between(cron, zone, start, start + timedelta(days=2)))

    assert sorted({fire.period for fire in fires}) == [fire.period for fire in fires]
    assert [period_of_fire(cron, zone, fire.at) for fire in fires[:30]] == [fire.period for fire in fires[:30]]


@given(st.integers(0, 59), st.integers(0, 23), ZONES, instants())
@settings(max_examples=75, deadline=None)
def test_a_fixed_time_runs_once_for_every_day_there_is(minute: int, hour: int, zone: ZoneInfo, start: datetime) -> None:
    cron = parse_cron(f"{minute} {hour} * * *")

    days = [fire.period.date for fire in fires_between(cron, zone, start, start + timedelta(days=7))]

    steps = {later - earlier for earlier, later in pairwise(days)}
    # Midnight of the day that Samoa left out is the next day's: nothing is left of it to run for.
    skips_a_day = zone.key == "Pacific/Apia" and (hour, minute) == (0, 0)
    assert steps <= {timedelta(days=1)} | ({timedelta(days=2)} if skips_a_day else set())


@given(ZONES, instants())
@settings(max_examples=75, deadline=None)
def test_an_every_minute_schedule_fires_each_minute_that_passes(zone: ZoneInfo, start: datetime) -> None:
    start = start.replace(second=0, microsecond=0)

    fires = list(fires_between(parse_cron("* * * * *"), zone, start, start + timedelta(hours=3)))

    assert [fire.at for fire in fires] == [start + timedelta(minutes=passed) for passed in range(180)]


@given(ZONES, instants(), instants())
@settings(max_examples=150, deadline=None)
def test_a_later_wall_time_is_never_reached_earlier(zone: ZoneInfo, one: datetime, other: datetime) -> None:
    earlier, later = sorted((one.replace(tzinfo=None), other.replace(tzinfo=None)))

    assert reached_at(earlier, zone) <= reached_at(later, zone)
    assert wall_at(reached_at(later, zone), zone) >= later


def period_at(at: datetime, granularity: Granularity) -> Period:
    by_granularity = {
        Granularity.DAILY: Period(at.date()),
        Granularity.HOURLY: Period.hour_of(at),
        Granularity.MINUTE: Period.minute_of(at),
    }
    return by_granularity[granularity]


PERIODS = st.builds(period_at, instants(), st.sampled_from(Granularity))


@given(PERIODS, st.text(min_size=1).filter(lambda name: "#" not in name))
@settings(deadline=None)
def test_a_period_survives_its_text_and_a_sensors_key(period: Period, name: str) -> None:
    dashed, compact, _ = sensor_keys(name, period)

    assert Period.parse(str(period)) == period
    assert split_key(dashed) == split_key(compact) == (name, period)


@given(st.text())
@settings(deadline=None)
def test_any_text_is_a_period_that_writes_itself_the_same_or_none(text: str) -> None:
    period = Period.parse(text)

    assert period is None or str(period) == text


DEADLINES = st.builds(Deadline, st.none() | st.integers(0, 23), st.integers(0, 59))


@given(DEADLINES, st.lists(PERIODS, min_size=2, max_size=5), ZONES, ZONES, st.integers(-7, 7))
@settings(max_examples=100, deadline=None)
def test_a_later_period_never_has_an_earlier_deadline(
    deadline: Deadline, periods: list[Period], zone: ZoneInfo, hour_zone: ZoneInfo, offset: int
) -> None:
    for granularity in Granularity:
        ordered = sorted(period for period in periods if period.granularity is granularity)

        deadlines = [deadline_at(deadline, each, zone=zone, hour_zone=hour_zone, day_offset=offset) for each in ordered]

        assert deadlines == sorted(deadlines)


@given(DEADLINES, ZONES, ZONES, instants(), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_each_deadline_belongs_to_one_range_only(
    deadline: Deadline, zone: ZoneInfo, sla_zone: ZoneInfo, start: datetime, hours: int
) -> None:
    schedule = Schedule(id=ScheduleId("stream"), zone=zone, sla=Sla(deadline=deadline, zone=sla_zone))
    middle, end = start + timedelta(hours=hours), start + timedelta(hours=72)

    whole = list(expected_runs(schedule, start, end))
    parts = [*expected_runs(schedule, start, middle), *expected_runs(schedule, middle, end)]

    assert parts == whole
    assert len({run.period for run in whole}) == len(whole)


@given(st.text(max_size=40))
@settings(deadline=None)
def test_any_text_is_cron_or_is_refused_as_such(text: str) -> None:
    try:
        cron = parse_cron(text)
    except BadCron:
        return
    assert cron.minutes
    assert cron.hours


@given(st.dates(date(1970, 1, 5), date(9998, 12, 20)), ZONES)
@settings(deadline=None)
def test_a_day_of_the_calendar_always_has_a_deadline(day: date, zone: ZoneInfo) -> None:
    at = deadline_at(Deadline(23, 59), Period(day), zone=zone, hour_zone=zone, day_offset=7)

    assert abs(at.date() - day - timedelta(days=7)) <= timedelta(days=2)
