"""Which runs a sensor speaks to: by its exact name and period, as a signal, a rule's input and a post-run sensor."""

import pytest

from tests.support.builders.values import NOON, a_pipeline, a_post_run, a_schedule
from worker.core.model.checks import Operator
from worker.core.model.pipeline import Match, Pipeline, StartBy, Trigger
from worker.core.model.rules import Group, Rule
from worker.core.run.sensor_match import Audience, SensorContent, audience, is_trigger, post_run_name, triggered
from worker.core.time.periods import Period

ORDERS = Rule(key="orders", check=Operator.EXISTS)


def watching(*names: str, match: Match = Match.EXACT) -> Pipeline:
    rules = Group(members=tuple(Rule(key=name, check=Operator.EXISTS) for name in names))
    return a_pipeline(post_run=a_post_run(rules=rules, match=match))


@pytest.mark.parametrize("key", ["orders", "orders#2026-03-10", "orders#20260310", "orders#2026-03-10T07"])
def test_a_signal_is_the_trigger_by_its_name_with_or_without_a_period(key: str) -> None:
    assert is_trigger(a_schedule(), key)


@pytest.mark.parametrize("key", ["orders-debug", "order", "orders#debug", "old-orders", "orders#2026-03-10#x", ""])
def test_a_name_that_only_begins_like_the_trigger_is_not_it(key: str) -> None:
    assert not is_trigger(a_schedule(), key)


def test_a_prefix_counts_only_where_it_is_asked_for() -> None:
    by_prefix = a_schedule(trigger=Trigger(rule=ORDERS, match=Match.PREFIX))

    assert is_trigger(by_prefix, "orders-debug")
    assert not is_trigger(by_prefix, "old-orders")


def test_a_signal_starts_nothing_where_only_time_does() -> None:
    assert not is_trigger(a_schedule(start=StartBy.CRON), "orders")


def test_a_signal_whose_condition_does_not_hold_asks_for_no_run() -> None:
    schedule = a_schedule(trigger=Trigger(rule=Rule(key="orders", check=Operator.EQUALS, field="status", value="done")))

    assert triggered(schedule, SensorContent("orders", {"status": "open"}), NOON) is None
    found = triggered(schedule, SensorContent("orders", {"status": "done", "date": "2026-03-09"}), NOON)
    assert found is not None
    assert (found.period, found.is_undated) == (Period.parse("2026-03-09"), False)


def test_a_sensor_may_be_the_trigger_and_watched_after_the_run() -> None:
    pipeline = watching("orders", "out")

    assert is_trigger(pipeline.schedules[0], "orders")
    assert post_run_name(pipeline, "orders") == "orders"


def test_a_post_run_sensor_is_known_by_its_exact_name_and_period() -> None:
    pipeline = watching("out", "out-late")

    assert post_run_name(pipeline, "out#2026-03-10") == "out"
    assert post_run_name(pipeline, "out-late") == "out-late"
    assert post_run_name(pipeline, "out-debug") is None
    assert post_run_name(a_pipeline(), "out") is None


@pytest.mark.parametrize("names", [("out", "out-late"), ("out-late", "out")])
def test_of_several_prefixes_the_longest_counts_whatever_their_order(names: tuple[str, ...]) -> None:
    assert post_run_name(watching(*names, match=Match.PREFIX), "out-late-2") == "out-late"


def test_a_rule_hears_of_its_own_sensor_and_of_no_other() -> None:
    pipeline = a_pipeline()

    assert audience(pipeline, "orders") == Audience(None)
    assert audience(pipeline, "orders#2026-03-10") == Audience(Period.parse("2026-03-10"))
    assert audience(pipeline, "orders-debug") is None
