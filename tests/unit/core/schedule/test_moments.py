"""Which moments a schedule has, and that whoever opens each vigil in its time misses none."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from worker.config.load import load_text
from worker.core.model.pipeline import Schedule
from worker.core.schedule.checkpoints import CheckKind, DueCheck, GracePeriods, Since, expected_checks_after

MONDAY = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)
AT_ONCE = GracePeriods(begin=timedelta(), signal=timedelta(), watch_ahead=timedelta())


def a_schedule(schedule: str, sla: str = "") -> Schedule:
    text = f"""
pipeline: {{id: orders}}
schedule: {schedule}
{f"sla: {sla}" if sla else ""}
job: {{type: command, config: {{command: "true"}}}}
"""
    pipeline = load_text(text, today=MONDAY.date()).pipeline
    assert pipeline is not None
    return pipeline.schedules[0]


def moments(
    schedule: Schedule, since: datetime = MONDAY, patience: GracePeriods = AT_ONCE, runs: int = 3
) -> list[DueCheck]:
    return [
        moment
        for vigil in islice(expected_checks_after(schedule, Since(since), patience), runs)
        for moment in vigil.moments
    ]


def told(found: list[DueCheck]) -> list[tuple[str, str, CheckKind]]:
    return [(f"{moment.at:%d %H:%M}", str(moment.run.period), moment.concern) for moment in found]


def test_a_cron_has_a_moment_for_each_run_that_must_have_begun() -> None:
    assert told(moments(a_schedule('{cron: "0 8 * * *"}'), runs=2)) == [
        ("10 08:00", "2026-03-10", CheckKind.BEGIN),
        ("11 08:00", "2026-03-11", CheckKind.BEGIN),
    ]


def test_patience_puts_a_beginning_off_and_a_watch_forward() -> None:
    patience = GracePeriods(begin=timedelta(minutes=5), watch_ahead=timedelta(minutes=30))
    schedule = a_schedule('{cron: "0 8 * * *"}', '{deadline: "10:00", expectedDuration: 1h}')

    assert told(moments(schedule, patience=patience, runs=1)) == [
        ("10 08:05", "2026-03-10", CheckKind.BEGIN),
        ("10 08:30", "2026-03-10", CheckKind.WATCH),
    ]


def test_a_trigger_deadline_and_the_sla_are_about_the_same_business_date() -> None:
    schedule = a_schedule('{trigger: {key: ready, check: exists, deadline: "09:00"}}', '{deadline: "10:00"}')

    assert told(moments(schedule, runs=1)) == [
        ("10 09:00", "2026-03-09", CheckKind.SIGNAL),
        ("10 10:00", "2026-03-09", CheckKind.WATCH),
    ]


def test_inclusion_dates_have_a_moment_each_and_then_there_is_no_more() -> None:
    schedule = a_schedule('{include: {dates: ["2026-03-02", "2026-03-10", "2026-03-31"]}, time: "06:30"}')

    assert told(moments(schedule)) == [
        ("10 06:30", "2026-03-10", CheckKind.INCLUDED_DATE),
        ("31 06:30", "2026-03-31", CheckKind.INCLUDED_DATE),
    ]


def test_an_excluded_date_has_no_moment() -> None:
    schedule = a_schedule('{cron: "0 8 * * *", exclude: {dates: ["2026-03-10"]}}')

    assert told(moments(schedule, runs=1)) == [("11 08:00", "2026-03-11", CheckKind.BEGIN)]


def test_data_that_may_come_at_any_time_and_has_no_deadline_is_not_waited_for() -> None:
    assert moments(a_schedule("{trigger: {key: ready, check: exists}}")) == []


def test_a_rare_cron_is_found_without_walking_the_years_day_by_day() -> None:
    found = moments(a_schedule('{cron: "0 3 29 2 *"}'), runs=2)

    assert [moment.at.date().isoformat() for moment in found] == ["2028-02-29", "2032-02-29"]


def test_a_time_to_be_expected_puts_the_beginning_off_over_a_restart() -> None:
    """The fire is before the restart, the moment after it."""
    schedule = a_schedule('{cron: "0 8 * * *", time: "18:00"}')

    assert told(moments(schedule, runs=1)) == [("09 18:00", "2026-03-09", CheckKind.BEGIN)]


@pytest.mark.parametrize("days", [0, 1, 3])
@pytest.mark.parametrize("duration", ["1h", "30h", "60h"])
def test_opened_in_their_time_vigils_miss_no_moment_whenever_one_begins_to_look(days: int, duration: str) -> None:
    """Also where the watch over a run's deadline comes long before the run before it must have begun."""
    schedule = a_schedule(
        '{cron: "0 8 * * *"}', f'{{deadline: "10:00", expectedDuration: {duration}, dayOffset: {days}}}'
    )
    everything = moments(schedule, MONDAY - timedelta(days=30), runs=60)
    end = MONDAY + timedelta(days=10)
    for hours in range(0, 48, 5):
        since = MONDAY + timedelta(hours=hours)

        opened: list[DueCheck] = []
        for vigil in expected_checks_after(schedule, Since(since), AT_ONCE):
            if vigil.opens_at > end:
                break
            opened.extend(moment for moment in vigil.moments if moment.at <= end)

        assert sorted(map(repr, opened)) == sorted(repr(each) for each in everything if since < each.at <= end)


def test_of_a_schedule_that_was_just_deployed_nothing_is_expected_from_before() -> None:
    """Neither a fire that is still within patience, nor one less of the deadlines that come near."""
    patience = GracePeriods(begin=timedelta(minutes=5), watch_ahead=timedelta(minutes=30))
    schedule = a_schedule('{cron: "0 * * * *"}', '{deadline: ":10"}')
    deployed_at = MONDAY + timedelta(seconds=2)

    first = next(iter(expected_checks_after(schedule, Since(deployed_at, is_new=True), patience)))

    assert told(list(first.moments)) == [("09 11:40", "2026-03-09T11", CheckKind.WATCH)]
