"""The order, the days and the folding of expected runs, and the difference between two plans."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from worker.cli.plan.view import block_row, change_row
from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.deadlines import ClockTime, Deadline
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule, ScheduleId, Sla, StartBy, Trigger
from worker.core.model.rules import Group, Operator, Rule
from worker.core.schedule.agenda import RUNS_SHOWN_MAX, PlanEntry, Span, agenda, blocks, by_day, unclocked
from worker.core.schedule.agenda_record import agenda_record
from worker.core.schedule.plan_changes import DifferenceKind, RunDifference, changes

BERLIN, NEW_YORK, UTC_ZONE = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("UTC")
GOOD_FRIDAY = Calendar(name="us-market", dates={date(2027, 3, 26): "Good Friday"})
TRIGGER = Trigger(rule=Rule(key="export", check=Operator.EXISTS))
WEEKEND = Span(first=date(2027, 3, 26), days=3)


def a_pipeline(name: str, *schedules: Schedule, dry_run: bool = False) -> Pipeline:
    return Pipeline(id=PipelineId(name), schedules=schedules, rules=Group(), job=None, dry_run=dry_run)


def a_cron(
    text: str, *, zone: ZoneInfo = UTC_ZONE, exclusion: Exclusion | None = None, sla: Sla | None = None
) -> Schedule:
    cron, start = parse_cron(text), StartBy.CRON
    return Schedule(
        id=ScheduleId("cron"), cron=cron, start=start, zone=zone, exclusion=exclusion or Exclusion(), sla=sla
    )


def rows(pipelines: list[Pipeline], span: Span, *, fold: bool = True) -> dict[date, list[list[str]]]:
    return {day: [block_row(block) for block in todays] for day, todays in by_day(agenda(pipelines, span), fold=fold)}


def differences(old: Schedule | None, new: Schedule | None, *, days: int = 1) -> list[RunDifference]:
    before = [a_pipeline("p", old)] if old else []
    after = [a_pipeline("p", new)] if new else []
    return list(changes(before, after, Span(first=date(2027, 3, 26), days=days)))


def test_each_run_shows_its_local_time_and_utc_its_period_and_its_deadline() -> None:
    sla = Sla(deadline=Deadline(20, 0), expected_duration=timedelta(minutes=30), zone=NEW_YORK)
    trades = a_pipeline("trades", a_cron("30 17 * * *", zone=NEW_YORK, sla=sla))

    shown = rows([trades], Span(first=date(2027, 3, 25), days=1))

    facts = "warning 19:30 EDT; due 20:00 EDT"
    assert shown == {date(2027, 3, 25): [["17:30 EDT", "21:30Z", "trades/cron", "2027-03-25", facts]]}


def test_an_excluded_run_shows_its_reason_and_no_deadline() -> None:
    sla = Sla(deadline=Deadline(20, 0), zone=NEW_YORK)
    exclusion = Exclusion(calendars=(GOOD_FRIDAY,))
    trades = a_pipeline("trades", a_cron("30 17 * * *", zone=NEW_YORK, exclusion=exclusion, sla=sla))

    [row] = rows([trades], Span(first=date(2027, 3, 26), days=1))[date(2027, 3, 26)]

    assert row[-1] == "excluded: 2027-03-26 is Good Friday in calendar us-market"


def test_a_run_in_a_clock_change_shows_what_happens_to_it() -> None:
    refresh = a_pipeline("refresh", a_cron("30 2 * * *", zone=BERLIN))

    [row] = rows([refresh], WEEKEND)[date(2027, 3, 28)]

    assert row[:2] == ["03:00 CEST", "01:00Z"]
    assert "02:30 does not exist on 2027-03-28" in row[-1]


def test_a_run_started_by_data_is_listed_on_the_day_it_is_due() -> None:
    sla = Sla(deadline=Deadline(6, 0), zone=BERLIN, day_offset=1)
    orders = a_pipeline("orders", Schedule(id=ScheduleId("stream"), zone=BERLIN, trigger=TRIGGER, sla=sla))

    shown = rows([orders], Span(first=date(2027, 3, 25), days=1))

    assert shown == {date(2027, 3, 25): [["on trigger", "", "orders/stream", "2027-03-24", "due 06:00 CET"]]}


def test_a_listed_date_shows_when_it_counts_as_missed_and_a_relative_deadline() -> None:
    sla = Sla(max_duration=timedelta(hours=6), zone=NEW_YORK)
    close = Schedule(
        id=ScheduleId("stream"),
        zone=NEW_YORK,
        trigger=TRIGGER,
        include_dates=(date(2027, 3, 31),),
        expected_at=ClockTime(18, 0),
        sla=sla,
    )

    shown = rows([a_pipeline("close", close)], Span(first=date(2027, 3, 30), days=3))

    facts = "missed if not started by 18:00 EDT; due 6h after its first sensor"
    assert shown == {date(2027, 3, 31): [["on trigger", "", "close/stream", "2027-03-31", facts]]}


def test_a_deadline_on_another_day_is_shown_with_its_date() -> None:
    sla = Sla(deadline=Deadline(2, 0), zone=BERLIN, day_offset=1)
    nightly = a_pipeline("nightly", a_cron("0 22 * * *", zone=BERLIN, sla=sla))

    [row] = rows([nightly], Span(first=date(2027, 3, 22), days=1))[date(2027, 3, 22)]

    assert row[-1] == "due 2027-03-23 02:00 CET"


def test_a_cron_that_only_says_what_is_expected_is_told_apart_from_one_that_starts() -> None:
    schedule = Schedule(id=ScheduleId("cron"), cron=parse_cron("0 6 * * *"), trigger=TRIGGER, start=StartBy.TRIGGER)

    [row] = rows([a_pipeline("p", schedule)], Span(first=date(2027, 3, 22), days=1))[date(2027, 3, 22)]

    assert row[-1] == "expected then, but started by its trigger"


def test_a_busy_schedule_is_one_line_a_day() -> None:
    busy = a_pipeline("busy", a_cron("* * * * *"))

    shown = rows([busy], Span(first=date(2027, 3, 22), days=2))

    assert [len(todays) for todays in shown.values()] == [1, 1]
    assert shown[date(2027, 3, 22)] == [["00:00-23:59 UTC", "00:00Z-23:59Z", "busy/cron", "1,440 runs", ""]]


def test_busy_days_of_a_schedule_that_data_starts_show_no_clock_time() -> None:
    sla = Sla(deadline=Deadline(None, 45))
    hourly = a_pipeline("hourly", Schedule(id=ScheduleId("stream"), trigger=TRIGGER, sla=sla))

    shown = rows([hourly], Span(first=date(2027, 3, 22), days=1))

    assert shown == {date(2027, 3, 22): [["on trigger", "", "hourly/stream", "24 runs", "each due at :45"]]}


def test_all_runs_of_a_busy_schedule_are_listed_on_request() -> None:
    busy = a_pipeline("busy", a_cron("0 * * * *"))

    shown = rows([busy], Span(first=date(2027, 3, 22), days=1), fold=False)

    assert len(shown[date(2027, 3, 22)]) == 24


def test_a_schedule_at_the_limit_is_not_folded() -> None:
    quiet = a_pipeline("quiet", a_cron("0 0,6,12,18 * * *"))

    assert RUNS_SHOWN_MAX == 4
    assert len(rows([quiet], Span(first=date(2027, 3, 22), days=1))[date(2027, 3, 22)]) == 4


def test_days_are_those_of_each_schedule_and_runs_inside_a_day_are_in_order() -> None:
    early, late = a_cron("0 1 * * *", zone=ZoneInfo("Asia/Tokyo")), a_cron("0 23 * * *", zone=NEW_YORK)
    pipelines = [a_pipeline("b-late", late), a_pipeline("a-early", early)]

    entries = list(agenda(pipelines, Span(first=date(2027, 3, 22), days=2)))

    listed = [(entry.day.day, entry.pipeline) for entry in entries]
    assert listed == [(22, "a-early"), (22, "b-late"), (23, "a-early"), (23, "b-late")]


def test_a_day_without_a_midnight_is_planned_from_its_first_instant() -> None:
    cairo = ZoneInfo("Africa/Cairo")  # on 2027-04-30 the clocks jump from 00:00 to 01:00
    hourly = a_pipeline("hourly", a_cron("0 * * * *", zone=cairo))

    entries = list(agenda([hourly], Span(first=date(2027, 4, 30), days=1)))

    assert len(entries) == 23
    assert {entry.day for entry in entries} == {date(2027, 4, 30)}


def test_a_folded_day_keeps_each_oddity_once() -> None:
    [first, second, *_] = agenda([a_pipeline("p", a_cron("*/5 * * * *"))], Span(first=date(2027, 3, 22), days=1))

    [block] = blocks([first, second], shown_max=1)

    assert block.notes == []
    assert (block.first, block.last) == (first, second)


def test_a_schedule_of_which_nothing_is_expected_is_named() -> None:
    silent = Schedule(id=ScheduleId("stream"), trigger=TRIGGER)
    watched = Schedule(id=ScheduleId("watched"), trigger=Trigger(rule=TRIGGER.rule, deadline=Deadline(9, 0)), sla=None)

    assert unclocked([a_pipeline("p", silent, watched)]) == [("p", silent)]


def test_a_record_holds_instants_in_utc_and_the_local_time() -> None:
    [entry] = agenda([a_pipeline("p", a_cron("30 2 * * *", zone=BERLIN))], Span(first=date(2027, 3, 29), days=1))

    record = agenda_record(entry)

    assert record["at"] == "2027-03-29T00:30:00Z"
    assert record["local"] == "2027-03-29T02:30:00+02:00"
    assert (record["zone"], record["by"], record["excluded"]) == ("Europe/Berlin", "cron", None)


def test_two_equal_plans_have_no_difference() -> None:
    assert differences(a_cron("0 6 * * *"), a_cron("0 6 * * *"), days=14) == []


def test_a_later_cron_moves_the_run_of_the_same_period() -> None:
    [change] = differences(a_cron("0 6 * * *"), a_cron("30 7 * * *"))

    assert change.kind is DifferenceKind.MOVED
    assert change_row(change)[-1] == "2027-03-26 06:00 UTC (06:00Z) -> 2027-03-26 07:30 UTC (07:30Z)"


def test_a_new_exclusion_removes_the_run_and_says_why() -> None:
    [change] = differences(a_cron("0 6 * * *"), a_cron("0 6 * * *", exclusion=Exclusion(calendars=(GOOD_FRIDAY,))))

    assert change.kind is DifferenceKind.REMOVED
    assert change_row(change)[-1] == "2027-03-26 is Good Friday in calendar us-market"


def test_a_lifted_exclusion_adds_the_run() -> None:
    [change] = differences(a_cron("0 6 * * *", exclusion=Exclusion(calendars=(GOOD_FRIDAY,))), a_cron("0 6 * * *"))

    assert change.kind is DifferenceKind.ADDED
    assert change_row(change)[:3] == ["+", "added", "p/cron"]


def test_a_schedule_that_is_gone_removes_its_runs() -> None:
    [change] = differences(a_cron("0 6 * * *"), None)

    assert change.kind is DifferenceKind.REMOVED
    assert change_row(change)[-1] == "no longer expected"


def test_another_deadline_is_a_change_of_the_same_run() -> None:
    old, new = (a_cron("0 6 * * *", sla=Sla(deadline=Deadline(hour, 0))) for hour in (8, 9))

    [change] = differences(old, new)

    assert change.kind is DifferenceKind.DEADLINE
    assert change_row(change)[-1] == "due 08:00 UTC -> due 09:00 UTC"


def test_an_exclusion_that_only_changes_its_reason_changes_no_run() -> None:
    old = a_cron("0 6 * * *", exclusion=Exclusion(dates=frozenset({date(2027, 3, 26)})))
    new = a_cron("0 6 * * *", exclusion=Exclusion(calendars=(GOOD_FRIDAY,)))

    assert differences(old, new) == []


def test_a_listed_date_without_time_or_deadline_stands_on_its_own_day() -> None:
    schedule = Schedule(id=ScheduleId("stream"), zone=NEW_YORK, trigger=TRIGGER, include_dates=(date(2027, 3, 31),))

    [entry] = agenda([a_pipeline("p", schedule)], Span(first=date(2027, 3, 31), days=1))

    assert isinstance(entry, PlanEntry)
    assert (entry.day, entry.moment) == (date(2027, 3, 31), datetime(2027, 3, 31, 4, tzinfo=UTC))
