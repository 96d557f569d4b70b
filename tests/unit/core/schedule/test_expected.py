"""Which runs are expected, and which of them should exist by now."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import ClockTime, Deadline
from worker.core.model.pipeline import Schedule, ScheduleId, Sla, Trigger
from worker.core.model.rules import Operator, Rule
from worker.core.schedule.expected_runs import ExpectedBy, ExpectedRun, expected_runs, overdue
from worker.core.time.periods import Period

NEW_YORK, KOLKATA = ZoneInfo("America/New_York"), ZoneInfo("Asia/Kolkata")
CRON, STREAM = ScheduleId("cron"), ScheduleId("stream")
DAILY_AT_8 = Schedule(id=CRON, cron=parse_cron("0 8 * * *"))
NINE, QUARTER_TO = Deadline(9, 0), Deadline(None, 45)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def expected(schedule: Schedule, start: str, end: str) -> list[ExpectedRun]:
    return list(expected_runs(schedule, utc(start), utc(end)))


def names(runs: list[ExpectedRun]) -> list[str]:
    return [str(run.period) for run in runs]


def late(schedule: Schedule, since: str, now: str) -> list[str]:
    return [str(run.period) for run in overdue(schedule, utc(since), utc(now))]


def sensor(deadline: Deadline | None = None) -> Trigger:
    return Trigger(rule=Rule(key="orders", check=Operator.EXISTS), deadline=deadline)


def included(*days: str, **more: ClockTime | ZoneInfo | Exclusion) -> Schedule:
    zone = more.get("zone", ZoneInfo("UTC"))
    at, exclusion = more.get("expected_at"), more.get("exclusion", Exclusion())
    assert isinstance(zone, ZoneInfo)
    assert isinstance(exclusion, Exclusion)
    assert at is None or isinstance(at, ClockTime)
    dates = tuple(date.fromisoformat(day) for day in days)
    return Schedule(id=STREAM, zone=zone, include_dates=dates, expected_at=at, exclusion=exclusion)


# --- cron -------------------------------------------------------------------------------------------------------------


def test_each_fire_is_an_expected_run_with_its_deadlines() -> None:
    sla = Sla(deadline=Deadline(10, 0), expected_duration=timedelta(minutes=30))
    schedule = Schedule(id=CRON, cron=parse_cron("0 8 * * *"), trigger=sensor(NINE), sla=sla)

    [run] = expected(schedule, "2026-03-10", "2026-03-11")

    assert run == ExpectedRun(
        schedule_id=CRON,
        period=Period(date(2026, 3, 10)),
        by=ExpectedBy.CRON,
        at=utc("2026-03-10T08:00"),
        warning_at=utc("2026-03-10T09:30"),
        breach_at=utc("2026-03-10T10:00"),
        trigger_deadline_at=utc("2026-03-10T09:00"),
    )


def test_an_excluded_run_is_listed_with_its_reason() -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("0 8 * * *"), exclusion=Exclusion(weekends=True))

    friday, saturday = expected(schedule, "2026-03-06", "2026-03-08")

    assert friday.excluded is None
    assert saturday.excluded == "Saturday; weekends are excluded"


def test_an_hourly_run_is_excluded_by_the_date_of_its_hour_in_the_schedules_zone() -> None:
    exclusion = Exclusion(weekends=True)
    schedule = Schedule(id=CRON, cron=parse_cron("0 * * * *"), zone=NEW_YORK, exclusion=exclusion)

    # Saturday 00:00 in New York is about Friday's last hour; 01:00 is about Saturday's first.
    runs = expected(schedule, "2026-03-07T05:00", "2026-03-07T07:00")

    assert names(runs) == ["2026-03-07T04", "2026-03-07T05"]
    assert [run.excluded is None for run in runs] == [True, False]


def test_what_the_clocks_do_to_a_run_is_noted() -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("30 2 * * *"), zone=NEW_YORK)

    [run] = expected(schedule, "2026-03-08", "2026-03-09")

    assert run.note == "02:30 does not exist on 2026-03-08 in America/New_York; runs at 03:00"


# --- inclusion dates --------------------------------------------------------------------------------------------------


def test_inclusion_dates_are_expected_in_order_and_once() -> None:
    schedule = included("2026-03-31", "2026-01-31", "2026-03-31", "2026-06-30", "9999-12-31")

    runs = expected(schedule, "2026-01-01", "2026-06-30")

    assert names(runs) == ["2026-01-31", "2026-03-31"]
    assert {(run.by, run.at) for run in runs} == {(ExpectedBy.INCLUDE, None)}


def test_an_inclusion_date_counts_by_its_time_in_the_schedules_zone() -> None:
    schedule = included("2026-03-31", zone=NEW_YORK, expected_at=ClockTime(22, 0))

    [run] = expected(schedule, "2026-04-01T02:00", "2026-04-01T02:01")

    assert run.at == utc("2026-04-01T02:00")


def test_a_deadline_does_not_make_other_days_expected_where_there_are_inclusion_dates() -> None:
    schedule = Schedule(id=STREAM, include_dates=(date(2026, 3, 31),), sla=Sla(deadline=NINE, day_offset=1))

    [run] = expected(schedule, "2026-03-01", "2026-04-30")

    assert (str(run.period), run.breach_at) == ("2026-03-31", utc("2026-04-01T09:00"))


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_a_daily_deadline_makes_each_day_expected_by_then() -> None:
    schedule = Schedule(id=STREAM, trigger=sensor(), sla=Sla(deadline=NINE, day_offset=1))

    runs = expected(schedule, "2026-03-10T09:00", "2026-03-12T09:00")

    assert names(runs) == ["2026-03-09", "2026-03-10"]
    assert [run.breach_at for run in runs] == [utc("2026-03-10T09:00"), utc("2026-03-11T09:00")]
    assert {(run.by, run.at) for run in runs} == {(ExpectedBy.TRIGGER, None)}


@pytest.mark.parametrize("day_offset", [-7, 0, 7])
def test_a_deadline_far_from_its_date_is_still_found(day_offset: int) -> None:
    schedule = Schedule(id=STREAM, zone=NEW_YORK, sla=Sla(deadline=NINE, day_offset=day_offset, zone=KOLKATA))

    [run] = expected(schedule, "2026-03-10", "2026-03-11")

    assert run.period == Period(date(2026, 3, 10) - timedelta(days=day_offset))


def test_an_hourly_deadline_makes_each_hour_expected_by_then() -> None:
    schedule = Schedule(id=STREAM, trigger=sensor(QUARTER_TO))

    runs = expected(schedule, "2026-03-10T00:00", "2026-03-10T03:00")

    assert names(runs) == ["2026-03-09T23", "2026-03-10T00", "2026-03-10T01"]
    assert [run.trigger_deadline_at for run in runs] == [utc(f"2026-03-10T0{hour}:45") for hour in (0, 1, 2)]


def test_hours_are_those_that_the_producers_clock_shows() -> None:
    schedule = Schedule(id=STREAM, zone=NEW_YORK, trigger=sensor(QUARTER_TO))

    spring = expected(schedule, "2026-03-08T06:00", "2026-03-08T09:00")
    autumn = expected(schedule, "2026-11-01T05:00", "2026-11-01T09:00")

    assert names(spring) == ["2026-03-08T00", "2026-03-08T01", "2026-03-08T03"]
    assert names(autumn) == ["2026-11-01T00", "2026-11-01T01", "2026-11-01T02"]


def test_the_day_that_never_was_has_no_hours() -> None:
    apia = Schedule(id=STREAM, zone=ZoneInfo("Pacific/Apia"), trigger=sensor(QUARTER_TO))

    runs = expected(apia, "2011-12-30T09:00", "2011-12-30T12:00")

    assert names(runs) == ["2011-12-29T22", "2011-12-29T23", "2011-12-31T00"]


def test_the_slas_deadline_leads_where_there_are_two() -> None:
    schedule = Schedule(id=STREAM, trigger=sensor(QUARTER_TO), sla=Sla(deadline=NINE))

    [run] = expected(schedule, "2026-03-10", "2026-03-11")

    assert (str(run.period), run.breach_at) == ("2026-03-10", utc("2026-03-10T09:00"))


def test_nothing_is_expected_of_a_schedule_that_says_nothing() -> None:
    schedule = Schedule(id=STREAM, trigger=sensor(), sla=Sla(max_duration=timedelta(hours=1)))

    assert expected(schedule, "2026-01-01", "2027-01-01") == []


# --- overdue ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "now", "missed"),
    [
        ("2026-03-10T00:00", "2026-03-10T07:59", []),
        ("2026-03-10T00:00", "2026-03-10T08:00", ["2026-03-10"]),
        ("2026-03-10T08:00", "2026-03-10T09:00", ["2026-03-10"]),
        ("2026-03-10T08:01", "2026-03-10T09:00", []),
        ("2026-03-08T00:00", "2026-03-10T09:00", ["2026-03-08", "2026-03-09", "2026-03-10"]),
    ],
)
def test_a_run_is_overdue_from_its_fire_on(since: str, now: str, missed: list[str]) -> None:
    assert late(DAILY_AT_8, since, now) == missed


@pytest.mark.parametrize(
    ("since", "now", "missed"),
    [
        ("2026-03-10T00:00", "2026-03-10T13:59", []),  # 09:59 in New York
        ("2026-03-10T00:00", "2026-03-10T14:00", ["2026-03-10"]),
        ("2026-03-10T13:00", "2026-03-10T14:00", ["2026-03-10"]),  # the fire itself was looked at an hour before
        ("2026-03-10T14:01", "2026-03-10T15:00", []),
    ],
)
def test_an_expected_time_puts_it_off_until_then(since: str, now: str, missed: list[str]) -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("0 8 * * *"), zone=NEW_YORK, expected_at=ClockTime(10, 0))

    assert late(schedule, since, now) == missed


def test_an_expected_time_before_the_fire_changes_nothing() -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("0 8 * * *"), expected_at=ClockTime(6, 0))

    assert late(schedule, "2026-03-10", "2026-03-10T07:00") == []
    assert late(schedule, "2026-03-10", "2026-03-10T08:00") == ["2026-03-10"]


def test_consecutive_looks_find_each_run_once() -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("0 */6 * * *"), zone=NEW_YORK, expected_at=ClockTime(9, 30))
    looks = [utc("2026-03-07") + timedelta(minutes=45) * n for n in range(100)]

    missed = [
        str(run.period)
        for since, now in pairwise(looks)
        for run in overdue(schedule, since, now - timedelta.resolution)
    ]

    assert missed == late(schedule, "2026-03-07", f"{looks[-1] - timedelta.resolution:%Y-%m-%dT%H:%M:%S.%f}")
    assert len(missed) == len(set(missed)) == 12


def test_an_excluded_run_is_never_overdue() -> None:
    schedule = Schedule(id=CRON, cron=parse_cron("0 8 * * *"), exclusion=Exclusion(weekends=True))

    assert late(schedule, "2026-03-06", "2026-03-09") == ["2026-03-06"]


def test_past_inclusion_dates_are_overdue_newest_first_and_at_most_three() -> None:
    schedule = included("2026-01-01", "2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30")

    assert late(schedule, "2026-04-02", "2026-04-02") == ["2026-03-31", "2026-02-28", "2026-01-31"]


def test_on_the_day_itself_an_inclusion_date_waits_for_its_time() -> None:
    schedule = included("2026-03-30", "2026-03-31", zone=NEW_YORK, expected_at=ClockTime(10, 0))

    assert late(schedule, "2026-03-31", "2026-03-31T13:59") == ["2026-03-30"]
    assert late(schedule, "2026-03-31", "2026-03-31T14:00") == ["2026-03-31", "2026-03-30"]


def test_an_inclusion_date_comes_when_it_comes_in_the_schedules_zone() -> None:
    schedule = included("2026-03-31", zone=NEW_YORK)

    assert late(schedule, "2026-03-31", "2026-03-31T03:59") == []
    assert late(schedule, "2026-03-31", "2026-03-31T04:00") == ["2026-03-31"]


def test_an_excluded_inclusion_date_is_not_overdue() -> None:
    schedule = included("2026-03-06", "2026-03-07", exclusion=Exclusion(weekends=True))

    assert late(schedule, "2026-03-08", "2026-03-08") == ["2026-03-06"]


def test_what_only_a_deadline_makes_expected_is_left_to_that_deadline() -> None:
    schedule = Schedule(id=STREAM, trigger=sensor(NINE), sla=Sla(deadline=NINE))

    assert late(schedule, "2026-03-01", "2026-03-31") == []
