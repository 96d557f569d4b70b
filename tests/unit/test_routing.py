from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.builders import a_pipeline, a_post_run, a_schedule
from worker.core.checks import Check
from worker.core.periods import Period
from worker.core.pipeline import Match, StartBy, Trigger, Undated
from worker.core.routing import Audience, Saying, audience, is_named, is_trigger, period_said, post_run_name, triggered
from worker.core.rules import Group, Rule
from worker.crontext import parse_cron

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
LATE = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
DAY = Period(date(2026, 3, 10))


@pytest.mark.parametrize(
    ("key", "name", "match", "named"),
    [
        ("orders", "orders", Match.EXACT, True),
        ("orders#2026-03-10", "orders", Match.EXACT, True),
        ("orders#20260310T07", "orders", Match.EXACT, True),
        ("orders#2026-03-10", "orders#2026-03-10", Match.EXACT, True),
        ("orders-debug", "orders", Match.EXACT, False),
        ("orders#debug", "orders", Match.EXACT, False),
        ("orders#2026-13-10", "orders", Match.EXACT, False),
        ("orders-debug", "orders", Match.PREFIX, True),
        ("order", "orders", Match.PREFIX, False),
    ],
)
def test_a_sensor_is_named_by_its_key_or_its_key_and_a_period(key: str, name: str, match: Match, named: bool) -> None:
    assert is_named(key, name, match) is named


@pytest.mark.parametrize(
    ("saying", "period", "is_undated"),
    [
        (Saying("orders", {"date": "2026-03-09"}), Period(date(2026, 3, 9)), False),
        (Saying("orders", {"date": "20260309", "hour": "07"}), Period(date(2026, 3, 9), 7), False),
        (Saying("orders#2026-03-08", {}), Period(date(2026, 3, 8)), False),
        (Saying("orders#2026-03-08", {"date": "2026-03-09"}), Period(date(2026, 3, 9)), False),
        (Saying("orders", {}), DAY, True),
        (Saying("orders", {"date": "soon"}), DAY, True),
    ],
)
def test_a_sensor_speaks_of_its_own_date_then_of_its_keys_then_of_the_day_it_came(
    saying: Saying, period: Period, is_undated: bool
) -> None:
    assert period_said(saying, a_schedule(), NOON) == (period, is_undated)


def test_the_day_a_sensor_came_is_that_of_the_schedules_own_clock() -> None:
    tokyo = a_schedule(zone=ZoneInfo("Asia/Tokyo"))

    assert period_said(Saying("orders", {}), tokyo, LATE)[0] == Period(date(2026, 3, 11))


def test_a_condition_that_does_not_hold_starts_nothing() -> None:
    rule = Rule(key="orders", check=Check.EQUALS, field="status", value="done")
    schedule = a_schedule(trigger=Trigger(rule=rule))

    assert triggered(schedule, Saying("orders", {"status": "open"}), NOON) is None
    assert triggered(schedule, Saying("orders", {"status": "done"}), NOON) is not None


def test_only_an_undated_signal_is_bound_and_only_where_it_counts_once() -> None:
    once, daily = (
        a_schedule(),
        a_schedule(trigger=Trigger(rule=Rule(key="orders", check=Check.EXISTS), undated=Undated.DAILY)),
    )

    dated = triggered(once, Saying("orders#2026-03-10", {}), NOON)
    undated, every_day = triggered(once, Saying("orders", {}), NOON), triggered(daily, Saying("orders", {}), NOON)

    assert dated is not None
    assert undated is not None
    assert every_day is not None
    assert (dated.binds_once, undated.binds_once, every_day.binds_once) == (False, True, False)


def test_a_schedule_that_starts_by_cron_alone_is_started_by_no_sensor() -> None:
    schedule = a_schedule(cron=parse_cron("0 6 * * *"), start=StartBy.CRON)

    assert not is_trigger(schedule, "orders")


def test_a_plain_sensor_is_seen_by_every_period_and_a_dated_one_by_its_own() -> None:
    pipeline = a_pipeline()

    assert audience(pipeline, "orders") == Audience(None)
    assert audience(pipeline, "orders#20260310") == Audience(DAY)
    assert audience(pipeline, "orders#debug") is None
    assert audience(pipeline, "others") is None


def test_of_several_post_run_prefixes_the_longest_names_the_sensor() -> None:
    rules = Group(members=tuple(Rule(key=key, check=Check.EXISTS) for key in ("out", "out-count", "other")))
    pipeline = a_pipeline(post_run=a_post_run(rules=rules, match=Match.PREFIX))

    assert post_run_name(pipeline, "out-count-eu") == "out-count"
    assert post_run_name(pipeline, "in") is None
    assert post_run_name(a_pipeline(), "out") is None
