"""Whatever the schedule: a plan lists no excluded date as a run, keeps to its days, and equals itself."""

from datetime import date, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule, ScheduleId, Sla, StartBy, Trigger
from worker.core.model.rules import Group, Operator, Rule
from worker.core.schedule.agenda import PlanEntry, Span, agenda, by_day
from worker.core.schedule.plan_changes import DifferenceKind, changes

ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")]
CRONS = ["30 2 * * *", "0 */6 * * *", "15 23 * * 1-5", "0 0 1 * *", "45 1,13 * * *", "*/20 22-23 * * *"]
# Few enough that random exclusions hit random spans; both clock changes of both hemispheres are among them.
DAYS = st.one_of(st.dates(date(2026, 3, 20), date(2026, 4, 10)), st.dates(date(2026, 9, 28), date(2026, 11, 3)))


def an_exclusion(
    weekends: bool, weekdays: frozenset[int], dates: frozenset[date], holidays: frozenset[date]
) -> Exclusion:
    calendar = Calendar(name="holidays", dates=dict.fromkeys(holidays, ""))
    return Exclusion(weekends=weekends, weekdays=weekdays, dates=dates, calendars=(calendar,))


def a_cron(text: str, zone: ZoneInfo, exclusion: Exclusion) -> Schedule:
    cron = parse_cron(text)
    return Schedule(id=ScheduleId("cron"), cron=cron, start=StartBy.CRON, zone=zone, exclusion=exclusion)


def a_trigger(zone: ZoneInfo, exclusion: Exclusion, hour: int | None, offset: int) -> Schedule:
    trigger = Trigger(rule=Rule(key="data", check=Operator.EXISTS))
    sla = Sla(deadline=Deadline(hour, 30), zone=zone, day_offset=offset)
    return Schedule(id=ScheduleId("stream"), trigger=trigger, zone=zone, exclusion=exclusion, sla=sla)


def a_span(first: date, days: int) -> Span:
    return Span(first=first, days=days)


spans = st.builds(a_span, DAYS, st.integers(1, 12))
exclusions = st.builds(
    an_exclusion,
    st.booleans(),
    st.frozensets(st.integers(0, 6), max_size=2),
    st.frozensets(DAYS, max_size=20),
    st.frozensets(DAYS, max_size=20),
)
crons = st.builds(a_cron, st.sampled_from(CRONS), st.sampled_from(ZONES), exclusions)
deadline_hours = st.one_of(st.none(), st.integers(0, 23))
triggered = st.builds(a_trigger, st.sampled_from(ZONES), exclusions, deadline_hours, st.integers(0, 2))
schedules = st.one_of(crons, triggered)


def a_pipeline(schedule: Schedule, name: str = "p") -> Pipeline:
    return Pipeline(id=PipelineId(name), schedules=(schedule,), rules=Group(), job=None)


def is_left_out(entry: PlanEntry, exclusion: Exclusion) -> bool:
    """Decided here anew, from the plain meaning of the words, not by the function under test."""
    zone = entry.schedule.zone
    period = entry.run.period
    day = period.date
    if period.hour is not None:
        named_in = ZoneInfo("UTC") if entry.schedule.cron else zone
        day = period.begins.replace(tzinfo=named_in).astimezone(zone).date()
    weekend = exclusion.weekends and day.isoweekday() in {6, 7}
    listed = day in exclusion.dates or any(day in calendar.dates for calendar in exclusion.calendars)
    return weekend or listed or day.weekday() in exclusion.weekdays


@given(schedules, spans)
def test_an_excluded_date_is_never_listed_as_a_run(schedule: Schedule, span: Span) -> None:
    for entry in agenda([a_pipeline(schedule)], span):
        assert (entry.run.excluded is not None) == is_left_out(entry, schedule.exclusion)


@given(st.lists(schedules, max_size=4), spans)
def test_a_plan_keeps_to_its_days_and_shows_each_once_in_order(found: list[Schedule], span: Span) -> None:
    pipelines = [a_pipeline(schedule, f"p{index}") for index, schedule in enumerate(found)]

    days = [day for day, _ in by_day(agenda(pipelines, span), fold=True)]

    assert days == sorted(set(days))
    assert all(span.first <= day <= span.last for day in days)


@given(schedules, spans)
def test_folding_hides_no_run(schedule: Schedule, span: Span) -> None:
    pipeline = a_pipeline(schedule)

    folded = [
        entry
        for _, blocks in by_day(agenda([pipeline], span), fold=True)
        for block in blocks
        for entry in block.entries
    ]

    assert {entry.run.period for entry in folded} == {entry.run.period for entry in agenda([pipeline], span)}
    assert len(folded) == len({entry.run.period for entry in folded})


@given(schedules, spans)
def test_a_plan_does_not_differ_from_itself(schedule: Schedule, span: Span) -> None:
    assert list(changes([a_pipeline(schedule)], [a_pipeline(schedule)], span)) == []


@given(schedules, schedules, spans)
def test_a_difference_read_backwards_swaps_added_and_removed(old: Schedule, new: Schedule, span: Span) -> None:
    forwards = changes([a_pipeline(old)], [a_pipeline(new)], span)
    backwards = changes([a_pipeline(new)], [a_pipeline(old)], span)

    swapped = {DifferenceKind.ADDED: DifferenceKind.REMOVED, DifferenceKind.REMOVED: DifferenceKind.ADDED}
    expected = [(swapped.get(each.kind, each.kind), each.entry.name, each.entry.run.period) for each in forwards]
    assert [(each.kind, each.entry.name, each.entry.run.period) for each in backwards] == expected


@given(crons, spans, st.integers(1, 5))
def test_a_longer_plan_begins_with_the_shorter_one(schedule: Schedule, span: Span, more: int) -> None:
    short = list(agenda([a_pipeline(schedule)], span))
    longer = list(agenda([a_pipeline(schedule)], Span(first=span.first, days=span.days + more)))

    assert longer[: len(short)] == short
    assert all(entry.day > span.first + timedelta(days=span.days - 1) for entry in longer[len(short) :])
