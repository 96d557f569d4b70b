"""Which cron times are run, made up for or let go."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.pipeline import Misfire, MisfirePolicy, PipelineId, Schedule, ScheduleId
from worker.core.schedule.due import (
    COUNTED_MAX,
    FIRES_MAX,
    SPREAD,
    Due,
    ScheduleKey,
    due,
    next_due,
    place_in_herd,
)

DAY = timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_timed(
    cron: str,
    policy: Misfire = Misfire.LATEST,
    *,
    lateness: timedelta = timedelta(hours=24),
    exclusion: Exclusion | None = None,
    zone: str = "UTC",
) -> Schedule:
    return Schedule(
        id=ScheduleId("cron"),
        cron=parse_cron(cron),
        zone=ZoneInfo(zone),
        misfire=MisfirePolicy(policy=policy, max_lateness=lateness),
        exclusion=exclusion or Exclusion(),
    )


def looked(schedule: Schedule, considered: str, now: str) -> Due:
    found = due(schedule, utc(considered), utc(now))
    assert found is not None
    return found


def times(found: Due) -> list[str]:
    return [f"{fire.at:%dT%H:%M}" for fire in found.fires]


# --- on time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", Misfire)
def test_a_time_that_has_just_come_is_run_whatever_the_policy(policy: Misfire) -> None:
    found = looked(a_timed("0 6 * * *", policy), "2026-03-09T06:00", "2026-03-10T06:00")

    assert times(found) == ["10T06:00"]
    assert found.passed is None
    assert found.until == utc("2026-03-10T06:00")


@pytest.mark.parametrize("policy", Misfire)
def test_a_take_over_makes_nothing_late(policy: Misfire) -> None:
    found = looked(a_timed("* * * * *", policy), "2026-03-10T05:59", "2026-03-10T06:01:40")

    assert times(found) == ["10T06:00", "10T06:01"]
    assert found.passed is None


def test_nothing_is_due_before_its_time_and_nothing_twice() -> None:
    schedule = a_timed("0 6 * * *")

    assert due(schedule, utc("2026-03-09T06:00"), utc("2026-03-10T05:59:59")) is None
    assert due(schedule, utc("2026-03-10T06:00"), utc("2026-03-10T06:00")) is None
    assert due(schedule, utc("2026-03-10T06:00"), utc("2026-03-10T06:01")) is None


def test_a_schedule_without_cron_is_never_due() -> None:
    schedule = Schedule(id=ScheduleId("stream"))

    assert due(schedule, utc("2026-03-09T06:00"), utc("2026-03-10T06:00")) is None
    assert next_due(schedule, utc("2026-03-09T06:00")) is None


def test_the_next_look_is_at_the_next_time() -> None:
    assert next_due(a_timed("0 6 * * *"), utc("2026-03-10T06:00")) == utc("2026-03-11T06:00")


def test_a_clock_that_went_back_makes_nothing_due() -> None:
    assert due(a_timed("* * * * *"), utc("2026-03-10T06:00"), utc("2026-03-10T05:00")) is None


# --- late -------------------------------------------------------------------------------------------------------------


def test_of_the_times_that_were_missed_the_latest_is_made_up_for() -> None:
    found = looked(a_timed("0 * * * *"), "2026-03-10T06:00", "2026-03-10T09:30")

    assert times(found) == ["10T09:00"]
    assert found.passed is not None
    assert (found.passed.first, found.passed.last, found.passed.count) == (
        utc("2026-03-10T07:00"),
        utc("2026-03-10T08:00"),
        2,
    )
    assert "makes up for the latest only" in found.passed.reason


def test_the_latest_that_was_missed_is_run_besides_one_that_is_on_time() -> None:
    found = looked(a_timed("0 * * * *"), "2026-03-10T06:00", "2026-03-10T09:01")

    assert times(found) == ["10T08:00", "10T09:00"]


def test_none_is_made_up_for_if_the_policy_says_so() -> None:
    found = looked(a_timed("0 * * * *", Misfire.SKIP), "2026-03-10T06:00", "2026-03-10T09:30")

    assert times(found) == []
    assert found.until == utc("2026-03-10T09:00")
    assert found.passed is not None
    assert found.passed.count == 3
    assert "makes up for none" in found.passed.reason


def test_all_are_made_up_for_oldest_first() -> None:
    found = looked(a_timed("0 * * * *", Misfire.ALL), "2026-03-10T06:00", "2026-03-10T09:30")

    assert times(found) == ["10T07:00", "10T08:00", "10T09:00"]
    assert found.passed is None


@pytest.mark.parametrize("policy", [Misfire.ALL, Misfire.LATEST])
def test_what_is_further_back_than_the_maximum_lateness_is_let_go(policy: Misfire) -> None:
    schedule = a_timed("0 6 * * *", policy, lateness=timedelta(hours=2))

    found = looked(schedule, "2026-03-08T06:00", "2026-03-10T08:00:01")

    assert times(found) == []
    assert found.until == utc("2026-03-10T06:00")
    assert found.passed is not None
    assert found.passed.count == 2
    assert "maximum lateness" in found.passed.reason
    assert times(looked(schedule, "2026-03-08T06:00", "2026-03-10T08:00")) == ["10T06:00"]


def test_a_maximum_lateness_of_seconds_is_kept() -> None:
    schedule = a_timed("0 6 * * *", lateness=timedelta(seconds=30))

    assert times(looked(schedule, "2026-03-09T06:00", "2026-03-10T06:00:30")) == ["10T06:00"]
    assert times(looked(schedule, "2026-03-09T06:00", "2026-03-10T06:00:31")) == []


def test_a_long_way_back_is_gone_in_steps() -> None:
    schedule = a_timed("* * * * *", Misfire.ALL)
    considered, now, run = utc("2026-03-10T00:00"), utc("2026-03-10T06:00"), list[datetime]()

    while (found := due(schedule, considered, now)) is not None:
        assert len(found.fires) <= FIRES_MAX
        assert found.passed is None
        run += [fire.at for fire in found.fires]
        considered = found.until

    assert run == [utc("2026-03-10T00:00") + timedelta(minutes=n) for n in range(1, 361)]


def test_a_mark_of_years_ago_is_read_in_no_time_and_its_times_are_counted_up_to_a_limit() -> None:
    found = looked(a_timed("* * * * *", Misfire.SKIP), "2020-01-01T00:00", "2026-03-10T06:00")

    assert len(found.fires) == 3
    assert found.passed is not None
    assert found.passed.count == COUNTED_MAX
    assert found.passed.last == utc("2026-03-10T05:57")


# --- calendars --------------------------------------------------------------------------------------------------------


def test_an_excluded_day_is_settled_without_a_run_and_counts_as_nothing_missed() -> None:
    schedule = a_timed("0 6 * * *", exclusion=Exclusion(weekends=True))

    found = looked(schedule, "2026-03-06T06:00", "2026-03-07T06:00:10")

    assert found == Due(fires=(), passed=None, until=utc("2026-03-07T06:00"))


def test_the_latest_that_may_run_is_made_up_for_on_a_day_off() -> None:
    schedule = a_timed("0 6 * * *", lateness=timedelta(days=7), exclusion=Exclusion(weekends=True))

    found = looked(schedule, "2026-03-05T06:00", "2026-03-08T12:00")

    assert times(found) == ["06T06:00"]
    assert found.until == utc("2026-03-08T06:00")


def test_a_business_day_is_found_behind_a_holiday() -> None:
    holidays = Calendar(name="de", dates={datetime(2026, 5, 1, tzinfo=UTC).date(): "Labour Day"})
    schedule = a_timed("0 6 * * *", exclusion=Exclusion(calendars=(holidays,), business_days=frozenset({1})))

    assert times(looked(schedule, "2026-04-30T06:00", "2026-05-01T06:00")) == []
    assert times(looked(schedule, "2026-05-03T06:00", "2026-05-04T06:00")) == ["04T06:00"]


# --- clocks that change -----------------------------------------------------------------------------------------------


def test_a_time_that_the_clock_skips_is_run_right_after_the_gap() -> None:
    schedule = a_timed("30 2 * * *", zone="Europe/Berlin")

    found = looked(schedule, "2026-03-28T01:30", "2026-03-29T01:00")

    assert [(fire.at, str(fire.period)) for fire in found.fires] == [(utc("2026-03-29T01:00"), "2026-03-29")]


def test_a_time_that_comes_twice_is_run_once() -> None:
    schedule = a_timed("30 2 * * *", zone="Europe/Berlin")

    first = looked(schedule, "2026-10-24T00:30", "2026-10-25T00:30")

    assert [str(fire.period) for fire in first.fires] == ["2026-10-25"]
    assert due(schedule, first.until, utc("2026-10-25T02:00")) is None


# --- herds ------------------------------------------------------------------------------------------------------------


def test_places_in_a_herd_are_steady_and_spread_over_half_a_minute() -> None:
    at = utc("2026-03-10T06:00")
    keys = [ScheduleKey(PipelineId(f"p{number}"), ScheduleId("cron")) for number in range(1000)]

    places = [place_in_herd(key, at, DAY) for key in keys]

    assert places == [place_in_herd(key, at, DAY) for key in keys]
    assert all(timedelta(0) <= place < SPREAD for place in places)
    by_second = [sum(place // timedelta(seconds=1) == second for place in places) for second in range(30)]
    assert max(by_second) < 70
    assert min(by_second) > 10


def test_no_place_in_a_herd_is_too_late_for_its_run() -> None:
    key, at, lateness = ScheduleKey(PipelineId("p"), ScheduleId("cron")), utc("2026-03-10T06:00"), timedelta(seconds=8)

    places = [place_in_herd(key, at + number * DAY, lateness) for number in range(100)]

    assert timedelta(seconds=3) < max(places) < lateness / 2
    assert place_in_herd(key, at, timedelta(microseconds=1)) == timedelta(0)
