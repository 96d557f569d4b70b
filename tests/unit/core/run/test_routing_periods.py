"""Of which period a sensor speaks, and when that is settled once and for all."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.support.builders.values import a_schedule
from worker.core.model.checks import Operator
from worker.core.model.pipeline import Trigger, Undated
from worker.core.model.rules import Rule
from worker.core.run.sensor_match import SensorContent, period_said, triggered
from worker.core.time.periods import Period

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
LATE = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
DAY = Period(date(2026, 3, 10))


@pytest.mark.parametrize(
    ("saying", "period", "is_undated"),
    [
        (SensorContent("orders", {"date": "2026-03-09"}), Period(date(2026, 3, 9)), False),
        (SensorContent("orders", {"date": "20260309", "hour": "07"}), Period(date(2026, 3, 9), 7), False),
        (SensorContent("orders#2026-03-08", {}), Period(date(2026, 3, 8)), False),
        (SensorContent("orders#2026-03-08", {"date": "2026-03-09"}), Period(date(2026, 3, 9)), False),
        (SensorContent("orders", {}), DAY, True),
        (SensorContent("orders", {"date": "soon"}), DAY, True),
    ],
)
def test_a_sensor_speaks_of_its_own_date_then_of_its_keys_then_of_the_day_it_came(
    saying: SensorContent, period: Period, is_undated: bool
) -> None:
    assert period_said(saying, a_schedule(), NOON) == (period, is_undated)


def test_the_day_a_sensor_came_is_that_of_the_schedules_own_clock() -> None:
    tokyo = a_schedule(zone=ZoneInfo("Asia/Tokyo"))

    assert period_said(SensorContent("orders", {}), tokyo, LATE)[0] == Period(date(2026, 3, 11))


def test_a_condition_that_does_not_hold_starts_nothing() -> None:
    rule = Rule(key="orders", check=Operator.EQUALS, field="status", value="done")
    schedule = a_schedule(trigger=Trigger(rule=rule))

    assert triggered(schedule, SensorContent("orders", {"status": "open"}), NOON) is None
    assert triggered(schedule, SensorContent("orders", {"status": "done"}), NOON) is not None


def test_only_an_undated_signal_is_bound_and_only_where_it_counts_once() -> None:
    once, daily = (
        a_schedule(),
        a_schedule(trigger=Trigger(rule=Rule(key="orders", check=Operator.EXISTS), undated=Undated.DAILY)),
    )

    dated = triggered(once, SensorContent("orders#2026-03-10", {}), NOON)
    undated, every_day = (
        triggered(once, SensorContent("orders", {}), NOON),
        triggered(daily, SensorContent("orders", {}), NOON),
    )

    assert dated is not None
    assert undated is not None
    assert every_day is not None
    assert (dated.binds_once, undated.binds_once, every_day.binds_once) == (False, True, False)
