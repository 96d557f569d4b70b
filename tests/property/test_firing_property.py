"""However often and however late somebody looks, each cron time has one fate: run, let go, or left out."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Exclusion, reason_excluded
from worker.core.model.pipeline import Misfire, MisfirePolicy, Schedule, ScheduleId, local_date
from worker.core.schedule.due import ON_TIME, due
from worker.core.time.cron import Fire, fires_between

CRONS = ("0 * * * *", "30 2 * * *", "0 6 * * 1-5", "*/20 */2 * * *", "15,45 1,2,3 * * *", "0 0 1 * *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago")
MOMENT = timedelta.resolution


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    lateness = draw(st.timedeltas(timedelta(seconds=1), timedelta(days=4)))
    return Schedule(
        id=ScheduleId("cron"),
        cron=parse_cron(draw(st.sampled_from(CRONS))),
        zone=ZoneInfo(draw(st.sampled_from(ZONES))),
        misfire=MisfirePolicy(policy=draw(st.sampled_from(Misfire)), max_lateness=lateness),
        exclusion=Exclusion(weekends=draw(st.booleans())),
    )


starts = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 1), timezones=st.just(UTC))  # noqa: DTZ001  hypothesis adds it
waits = st.lists(st.timedeltas(timedelta(seconds=1), timedelta(days=3)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(schedules(), starts, waits)
def test_each_time_is_run_or_let_go_or_left_out_and_never_two_of_them(
    schedule: Schedule, start: datetime, steps: list[timedelta]
) -> None:
    considered, now, run, let_go = start, start, list[Fire](), 0
    for step in steps:
        now += step
        while (found := due(schedule, considered, now)) is not None:
            assert considered < found.until <= now
            assert all(now - fire.at <= schedule.misfire.max_lateness for fire in found.fires)
            run += found.fires
            let_go += found.passed.count if found.passed else 0
            considered = found.until

    came = times(schedule, start, now)
    assert [fire.at for fire in run] == sorted({fire.at for fire in run})
    assert set(run) <= {Fire(fire.at, fire.period, fire.note) for fire in came}
    assert len(run) + let_go == len(came)
    assert considered <= now
    assert times(schedule, considered, now) == []


@settings(max_examples=40)
@given(schedules(), starts, st.lists(st.timedeltas(timedelta(seconds=1), ON_TIME), min_size=1, max_size=20))
def test_who_looks_often_enough_runs_everything_whatever_the_policy(
    schedule: Schedule, start: datetime, steps: list[timedelta]
) -> None:
    considered, now, run = start, start, list[datetime]()
    for step in steps:
        now += min(step, schedule.misfire.max_lateness)
        while (found := due(schedule, considered, now)) is not None:
            assert found.passed is None
            run += [fire.at for fire in found.fires]
            considered = found.until

    assert run == [fire.at for fire in times(schedule, start, now)]


def times(schedule: Schedule, after: datetime, until: datetime) -> list[Fire]:
    """The times that a calendar lets run."""
    assert schedule.cron is not None
    fires = fires_between(schedule.cron, schedule.zone, after + MOMENT, until + MOMENT)
    return [fire for fire in fires if reason_excluded(schedule.exclusion, local_date(fire.period, schedule)) is None]
