from tests.support.builders.values import KEY, NOON, a_pipeline, a_post_run, a_schedule
from worker.core.model.checks import Operator
from worker.core.model.pipeline import Pipeline, PostRun
from worker.core.model.rules import Group, Rule, at_once
from worker.core.run.evaluation import baseline, evaluate_rules, for_start, post_run_sensors, required_sensors
from worker.core.run.facts import RulesHeld, RulesNotHeld, SensorReading


def counting(*, at_least: int = 100, post_run: PostRun | None = None) -> Pipeline:
    rule = Rule(key="count", check=Operator.GTE, field="rows", value=at_least)
    return a_pipeline(rules=Group(members=(rule,)), post_run=post_run)


READINGS = {"orders": SensorReading({}, "h1"), "count": SensorReading({"rows": 100}, "h2")}


def test_a_pass_needs_the_triggers_sensor_and_every_rules_each_once() -> None:
    assert required_sensors(counting(), a_schedule()) == ("orders", "count")
    assert required_sensors(a_pipeline(), a_schedule()) == ("orders",)
    assert required_sensors(counting(), a_schedule(trigger=None)) == ("count",)


def test_rules_that_hold_come_with_what_was_seen_and_the_baseline_of_what_is_watched_on() -> None:
    rules = Group(members=tuple(Rule(key=key, check=Operator.EXISTS) for key in ("count", "out")))
    pipeline = counting(post_run=a_post_run(rules=rules))

    fact = at_once(evaluate_rules(pipeline, READINGS, 2, NOON))

    assert fact == RulesHeld(
        attempt=2, saw={"orders": "h1", "count": "h2"}, baseline={"count": {"rows": 100}}, readings=READINGS
    )
    assert post_run_sensors(pipeline) == ("count", "out")


def test_rules_that_do_not_hold_come_with_what_was_seen_and_why() -> None:
    fact = at_once(evaluate_rules(counting(at_least=101), READINGS, 1, NOON))

    assert isinstance(fact, RulesNotHeld)
    assert fact.saw == {"orders": "h1", "count": "h2"}
    assert "100" in fact.reason


def test_a_sensor_that_is_not_there_fails_its_rule_and_was_not_seen() -> None:
    fact = at_once(evaluate_rules(counting(), {}, 1, NOON))

    assert isinstance(fact, RulesNotHeld)
    assert fact.saw == {}


def test_a_pipeline_that_watches_nothing_has_no_baseline() -> None:
    assert baseline(counting(), READINGS) == {}


def test_what_only_post_run_rules_name_is_no_input_while_it_is_for_another_period() -> None:
    rules = Group(members=tuple(Rule(key=key, check=Operator.EXISTS) for key in ("out", "audit", "plain")))
    pipeline = counting(post_run=a_post_run(rules=rules))
    another, own = {"date": "2026-03-09"}, {"date": "2026-03-10"}
    readings = {
        "orders": SensorReading(another, "h1", "orders"),
        "out": SensorReading(another, "h2", "out"),
        "audit": SensorReading(own, "h3", "audit"),
        "plain": SensorReading({}, "h4", "plain"),
    }

    kept = for_start(pipeline, a_schedule(), KEY.period, readings)

    assert set(kept) == {"orders", "audit", "plain"}
