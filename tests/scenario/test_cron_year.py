"""More than a year of many schedules, looked at now and then: exactly the runs that a walk through time expects."""

import asyncio
import calendar
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import cycle, islice, product
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.agenda import Agenda, Timed
from tests.support.clock.cron_oracle import Spec, fires
from tests.support.clock.manual import ManualClock
from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.pipeline import Misfire, MisfirePolicy, PipelineId, Schedule, ScheduleId, StartBy
from worker.core.schedule.due import ScheduleKey, due
from worker.store.repos.schedule_marks import ScheduleMark, plan_of

START: Final = datetime(2027, 12, 20, tzinfo=UTC)  # a leap year follows
END: Final = START + timedelta(days=400)
# Looks that are not a whole number of days apart, so that they fall on every time of day.
LOOK_EVERY: Final = timedelta(hours=65)

PARTS: Final = 5
STEPS_OF_A_JOB: Final = 5  # turns of the loop from a job's time to its end

ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour, southern
    "Australia/Sydney",
    "America/Santiago",  # midnight is skipped
    "Pacific/Chatham",  # 45 minutes off the hour
    "America/St_Johns",
    "Africa/Casablanca",  # goes back for a month
    "Asia/Kolkata",
    "UTC",
)

HOLIDAYS: Final = {date(2028, 1, 31): "", date(2028, 2, 29): "", date(2028, 12, 25): "Christmas", date(2029, 1, 1): ""}


def weekday(*wanted: int) -> Callable[[date], bool]:
    return lambda day: day.isoweekday() % 7 in wanted


def last_of_month(day: date) -> bool:
    return day.day == calendar.monthrange(day.year, day.month)[1]


SPECS: Final = (
    Spec(cron="0 6 * * *", minutes=(0,), hours=(6,)),
    Spec(cron="30 2 * * *", minutes=(30,), hours=(2,)),  # skipped and repeated in most zones
    Spec(cron="0 0 * * *", minutes=(0,), hours=(0,)),
    Spec(cron="7 1 * * 1-5", minutes=(7,), hours=(1,), on=weekday(1, 2, 3, 4, 5)),
    Spec(cron="15 2 * * 0", minutes=(15,), hours=(2,), on=weekday(0)),
    Spec(cron="0 3 29 2 *", minutes=(0,), hours=(3,), on=lambda day: (day.month, day.day) == (2, 29)),
    Spec(cron="59 23 31 12 *", minutes=(59,), hours=(23,), on=lambda day: (day.month, day.day) == (12, 31)),
    Spec(cron="0 4 L * *", minutes=(0,), hours=(4,), on=last_of_month),
    Spec(cron="0 5 1,15 * *", minutes=(0,), hours=(5,), on=lambda day: day.day in {1, 15}),
    Spec(cron="0 6,18 * * *", minutes=(0,), hours=(6, 18)),
    Spec(cron="0 1,2,3 * * 0", minutes=(0,), hours=(1, 2, 3), on=weekday(0)),
    Spec(cron="15,45 2 * * 0,6", minutes=(15, 45), hours=(2,), on=weekday(0, 6)),
    Spec(cron="5 2-4/2 * * *", minutes=(5,), hours=(2, 4)),  # a step, and yet fixed hours
    Spec(cron="0 * * * 6,0", minutes=(0,), on=weekday(6, 0), follows_clock=True),
    Spec(cron="20 */4 * * *", minutes=(20,), hours=(0, 4, 8, 12, 16, 20), follows_clock=True),
    Spec(cron="*/30 */6 * * 0", minutes=(0, 30), hours=(0, 6, 12, 18), on=weekday(0), follows_clock=True),
    Spec(cron="0 9 * 3,10,11 1", minutes=(0,), hours=(9,), on=lambda day: day.month in {3, 10, 11} and weekday(1)(day)),
)


@dataclass(frozen=True, slots=True)
class Rest:
    """Days left out: as the configuration says it, and in plain words."""

    exclusion: Exclusion
    is_off: Callable[[date], bool]


def is_workday(day: date) -> bool:
    return day.weekday() < 5 and day not in HOLIDAYS


def is_last_workday(day: date) -> bool:
    days = (day.replace(day=number) for number in range(1, calendar.monthrange(day.year, day.month)[1] + 1))
    return day == [each for each in days if is_workday(each)][-1]


BANK: Final = Calendar(name="bank", dates=HOLIDAYS)
RESTS: Final = (
    Rest(Exclusion(), lambda _: False),
    Rest(Exclusion(weekends=True), lambda day: day.weekday() > 4),
    Rest(Exclusion(calendars=(BANK,)), lambda day: day in HOLIDAYS),
    Rest(Exclusion(calendars=(BANK,), business_days=frozenset({-1})), lambda day: not is_last_workday(day)),
)


@dataclass(frozen=True, slots=True)
class Case:
    key: ScheduleKey
    spec: Spec
    zone: str
    rest: Rest

    def timed(self) -> Timed:
        schedule = Schedule(
            id=self.key.schedule,
            cron=parse_cron(self.spec.cron),
            zone=ZoneInfo(self.zone),
            start=StartBy.CRON,
            exclusion=self.rest.exclusion,
            misfire=MisfirePolicy(policy=Misfire.ALL, max_lateness=timedelta(days=10)),
        )
        return Timed(schedule=schedule, mark=ScheduleMark(key=self.key, considered=START, plan=plan_of(schedule)))

    def expected(self) -> list[tuple[datetime, str]]:
        found = fires(self.spec, self.zone, START + timedelta.resolution, END + timedelta.resolution)
        return [(at, period) for at, period in found if not self.rest.is_off(self._day(at, period))]

    def _day(self, at: datetime, period: str) -> date:
        """By which date a calendar leaves a run out: its own, or that of its hour in the schedule's zone."""
        if "T" not in period:
            return date.fromisoformat(period)
        spoken_of = at if len(period) > len("2028-01-01T00") else at - timedelta(hours=1)
        begins = spoken_of.replace(minute=spoken_of.minute if spoken_of is at else 0)
        return begins.astimezone(ZoneInfo(self.zone)).date()


def cases(count: int) -> Iterator[Case]:
    """Every spec with every zone and rest in turn, until there are enough."""
    zones, rests = cycle(ZONES), cycle((RESTS[0], *RESTS, RESTS[0]))
    for number, spec in enumerate(islice(cycle(SPECS), count)):
        key = ScheduleKey(PipelineId(f"p{number:03d}"), ScheduleId("cron"))
        yield Case(key, spec, next(zones), next(rests))


class Year:
    """What the scheduler does when it looks, without the runs: one job of the library for each schedule."""

    def __init__(self, begin: datetime, scope: JobScope, timed: Iterable[Timed]) -> None:
        self.clock = ManualClock(begin)
        self.jobs = JobScheduler(self.clock, self.clock.now)
        self.agenda = Agenda(self.clock, self.jobs, self._fire)
        self.got: dict[ScheduleKey, list[tuple[datetime, str]]] = {}
        for each in timed:
            self.got[each.key] = []
            self.agenda.replace(each.key.pipeline, [each], scope)

    async def look(self, by: timedelta) -> None:
        """Let time pass at once, then start what is due until nothing is."""
        self.clock.advance(by)
        while any(at <= self.clock.now() for at in map(self._next_time, self.got) if at is not None):
            self.jobs.look()
            for _ in range(STEPS_OF_A_JOB):
                await asyncio.sleep(0)

    def _next_time(self, key: ScheduleKey) -> datetime | None:
        return self.jobs.next_time(str(key))

    async def _fire(self, key: ScheduleKey, now: datetime) -> None:
        timed = self.agenda.take_due(key)
        assert timed is not None
        found = due(timed.schedule, timed.mark.considered, now)
        assert found is not None
        assert found.passed is None
        self.got[key] += [(fire.at, str(fire.period)) for fire in found.fires]
        self.agenda.moved(replace(timed, mark=replace(timed.mark, considered=found.until)))


# In parts, so that none of them takes long on a slow machine.
@pytest.mark.parametrize("part", range(PARTS))
async def test_four_hundred_days_of_two_hundred_schedules_give_exactly_the_expected_runs(part: int) -> None:
    chosen = list(cases(200))[part::PARTS]
    async with asyncio.TaskGroup() as group:
        year = Year(START, JobScope(group, lambda: True), [case.timed() for case in chosen])

        while year.clock.now() < END:
            await year.look(min(LOOK_EVERY, END - year.clock.now()))
        year.jobs.stop()

    for case in chosen:
        assert year.got[case.key] == case.expected(), (case.spec.cron, case.zone, case.rest.exclusion)
    assert sum(map(len, year.got.values())) > 5_000


def odd_days(zone: str) -> list[date]:
    """The days of a year on which the zone's clocks change, the leap day and the last day."""
    clock = ZoneInfo(zone)
    midnights = [datetime(2028, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(366)]
    offsets = [midnight.astimezone(clock).utcoffset() for midnight in midnights]
    changes = [day.date() for day, one, other in zip(midnights, offsets, offsets[1:], strict=False) if one != other]
    return [*changes, date(2028, 2, 29), date(2028, 12, 31)]


@pytest.mark.parametrize("zone", ZONES)
async def test_each_time_is_settled_within_a_quarter_of_an_hour_on_odd_days(zone: str) -> None:
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: True)
        for (number, spec), day in product(enumerate(SPECS), odd_days(zone)):
            case = Case(ScheduleKey(PipelineId(f"p{number}"), ScheduleId("cron")), spec, zone, RESTS[0])
            begin = datetime.combine(day, datetime.min.time(), UTC) - timedelta(days=1)
            timed = case.timed()
            year = Year(begin, scope, [replace(timed, mark=replace(timed.mark, considered=begin))])

            for _ in range(3 * 96):
                known = len(year.got[case.key])
                await year.look(timedelta(minutes=15))
                now, settled = year.clock.now(), year.got[case.key][known:]
                assert all(now - at < timedelta(minutes=15) for at, _ in settled)
            year.jobs.stop()

            expected = fires(spec, zone, begin + timedelta.resolution, year.clock.now() + timedelta.resolution)
            assert year.got[case.key] == expected
