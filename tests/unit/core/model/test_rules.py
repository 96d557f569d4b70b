"""Rules: every check, what it says about what it saw, and how groups add up."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from worker.core.model.rules import (
    Group,
    Json,
    Mode,
    Operator,
    Rule,
    RuleResult,
    evaluate,
    evaluate_rule,
    keys,
    look_up,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def judge(check: str, value: Json, seen: Json) -> RuleResult:
    """A rule on `orders.it`, held against a sensor whose field `it` is `seen`."""
    return evaluate_rule(Rule(key="orders", check=Operator(check), field="it", value=value), {"it": seen}, NOON)


def exists(key: str) -> Rule:
    return Rule(key=key, check=Operator.EXISTS)


PASSING: list[tuple[str, Json, Json]] = [
    ("equals", "COMPLETE", "COMPLETE"),
    ("equals", 42, "42.0"),
    ("equals", None, None),
    ("not_equals", "FAILED", "DONE"),
    ("not_equals", 1, True),
    ("not_equals", "x", None),
    ("gt", 100, 101),
    ("gt", 2**53, 2**53 + 1),
    ("gte", 100, "1e2"),
    ("gte", "100", 100),
    ("lt", 0.3, 0.1),
    ("lte", 0.1, 0.1),
    ("in", ["a", 42, True], "42"),
    ("in", ["a", 42, True], "true"),
    ("between", [1, 5], 1),
    ("between", [1, 5], 5),
    ("between", ["0.1", 0.3], 0.2),
    ("matches", r"part-\d+", "part-17"),
    ("age_lt", "1h", "2026-03-01T11:00:01Z"),
    ("age_lt", "1h", "2026-03-01T12:05:00Z"),
    ("age_gt", "1h", "2026-03-01T10:59:59Z"),
    ("age_lt", "7d", "2026-02-22T12:00:01Z"),
    ("age_gt", "1w", "2026-02-22T11:59:59Z"),
]
FAILING: list[tuple[str, Json, Json]] = [
    ("equals", "COMPLETE", "PENDING"),
    ("equals", "x", None),
    ("not_equals", 42, "42"),
    ("gt", 100, 100),
    ("gte", 100, 99.999),
    ("lt", 100, 100),
    ("lte", 100, 101),
    ("in", ["a", "b"], "c"),
    ("in", [], "c"),
    ("in", [1], True),
    ("between", [1, 5], 0.999),
    ("between", [1, 5], 5.001),
    ("between", [5, 1], 3),
    ("matches", r"part-\d+", "a part-17"),
    ("age_lt", "1h", "2026-03-01T11:00:00Z"),
    ("age_gt", "1h", "2026-03-01T11:00:00Z"),
]


@pytest.mark.parametrize(("check", "value", "seen"), PASSING)
def test_a_rule_passes(check: str, value: Json, seen: Json) -> None:
    result = judge(check, value, seen)

    assert result.passed
    assert result.seen is seen
    assert result.problem == ""


@pytest.mark.parametrize(("check", "value", "seen"), FAILING)
def test_a_rule_fails(check: str, value: Json, seen: Json) -> None:
    result = judge(check, value, seen)

    assert not result.passed
    assert result.seen is seen
    assert result.problem == ""


@pytest.mark.parametrize(
    ("check", "value", "seen", "reason"),
    [
        ("gte", 1000, 950, "orders.it is 950, which is not at least 1000"),
        ("gte", 1000, "1200", 'orders.it is "1200", which is at least 1000'),
        ("equals", "OK", "BAD", 'orders.it is "BAD", which is not equal to "OK"'),
        ("not_equals", "OK", "OK", 'orders.it is "OK", which is not different from "OK"'),
        ("in", ["a", "b"], "c", 'orders.it is "c", which is not one of ["a", "b"]'),
        ("between", [1, 5], 7, "orders.it is 7, which is not within [1, 5]"),
        ("matches", "[a-z]+", "X", 'orders.it is "X", which is not a full match for "[a-z]+"'),
        (
            "age_lt",
            "2h",
            "2026-03-01T09:30:00Z",
            'orders.it is "2026-03-01T09:30:00Z" (2h30m ago), which is not younger than 2h',
        ),
        (
            "age_lt",
            "2h",
            "2026-03-01T12:03:00Z",
            'orders.it is "2026-03-01T12:03:00Z" (3m ahead), which is younger than 2h',
        ),
        (
            "age_lt",
            "2h",
            "2026-03-01T11:59:14.423047Z",
            'orders.it is "2026-03-01T11:59:14.423047Z" (45s ago), which is younger than 2h',
        ),
    ],
)
def test_the_reason_says_what_was_seen_and_what_was_wanted(check: str, value: Json, seen: Json, reason: str) -> None:
    assert judge(check, value, seen).reason == reason


@pytest.mark.parametrize(
    ("check", "value", "seen", "reason"),
    [
        ("gt", 1, True, "orders.it is true, which is not a number"),
        ("gt", 1, None, "orders.it is null, which is not a number"),
        ("lt", 1, "1,500", 'orders.it is "1,500", which is not a number'),
        ("between", [1, 2], [1], "orders.it is [1], which is not a number"),
        ("matches", "a+", 17, "orders.it is 17, which is not text"),
        ("matches", "a*", "a" * 4097, "which is longer than the 4096 characters a pattern is held against"),
        ("age_lt", "1h", 1772364600, "orders.it is 1772364600, which is not an RFC 3339 time"),
        ("age_gt", "1h", "yesterday", 'orders.it is "yesterday", which is not an RFC 3339 time'),
    ],
)
def test_a_value_of_the_wrong_kind_fails_with_that_reason(check: str, value: Json, seen: Json, reason: str) -> None:
    result = judge(check, value, seen)

    assert not result.passed
    assert reason in result.reason


@pytest.mark.parametrize(
    ("check", "value", "accepted"),
    [
        ("gte", None, "a number"),
        ("gte", True, "a number"),
        ("gte", "many", "a number"),
        ("in", "abc", "a list of accepted values"),
        ("between", [1], "two numbers"),
        ("between", [1, "x"], "two numbers"),
        ("between", 5, "two numbers"),
        ("matches", 5, "a pattern in text"),
        ("matches", "(a", "a pattern that is understood (this group is never closed)"),
        ("age_lt", 3600, "a duration"),
        ("age_lt", "90", "a duration"),
        ("age_gt", None, "a duration"),
    ],
)
def test_a_rule_with_a_value_of_the_wrong_kind_fails_and_asks_to_be_corrected(
    check: str, value: Json, accepted: str
) -> None:
    result = judge(check, value, 5)

    assert not result.passed
    assert accepted in result.reason
    assert result.reason.endswith("correct the rule")


@pytest.mark.parametrize("check", ["age_lt", "age_gt"])
def test_a_time_too_far_in_the_future_satisfies_no_age(check: str) -> None:
    result = judge(check, "-1h", "2026-03-01T12:05:01Z")

    assert not result.passed
    assert result.reason == (
        'orders.it is "2026-03-01T12:05:01Z", which is 5m1s in the future, more than the 5m that clocks may differ'
    )


@pytest.mark.parametrize(("allowed", "passes"), [(timedelta(minutes=30), True), (timedelta(minutes=29), False)])
def test_a_rule_can_allow_more_or_less_of_the_future(allowed: timedelta, passes: bool) -> None:
    rule = Rule(key="orders", check=Operator.AGE_LT, field="at", value="1h", max_future=allowed)

    assert evaluate_rule(rule, {"at": "2026-03-01T12:30:00Z"}, NOON).passed is passes


@pytest.mark.parametrize("check", [check for check in Operator if check is not Operator.MISSING])
@pytest.mark.parametrize("sensors", [{}, {"orders": None}])
def test_without_a_sensor_or_its_data_everything_but_missing_fails(
    check: Operator, sensors: Mapping[str, Mapping[str, Json] | None]
) -> None:
    group = Group(members=(Rule(key="orders", check=check, field="it", value=None),))

    [result] = evaluate(group, sensors, NOON).members

    assert not result.passed
    assert result.reason == "sensor orders is missing or has no data"


@pytest.mark.parametrize("check", [check for check in Operator if check not in (Operator.MISSING, Operator.EXISTS)])
def test_an_absent_field_fails_every_comparison(check: Operator) -> None:
    result = evaluate_rule(Rule(key="orders", check=check, field="it"), {"other": 1}, NOON)

    assert not result.passed
    assert result.seen is None
    assert result.reason == "orders.it is missing: the sensor has no such field"


def test_a_comparison_without_a_field_fails_and_asks_to_be_corrected() -> None:
    result = evaluate_rule(Rule(key="orders", check=Operator.EQUALS, value="x"), {"status": "x"}, NOON)

    assert not result.passed
    assert result.reason == "the rule on sensor orders names no field, but equals looks at one: correct the rule"


@pytest.mark.parametrize("field", [None, "count"])
def test_exists_asks_for_the_sensor_and_ignores_the_field(field: str | None) -> None:
    result = evaluate_rule(Rule(key="orders", check=Operator.EXISTS, field=field), {}, NOON)

    assert result.passed
    assert result.reason == "sensor orders is present"


def test_missing_is_the_opposite_of_exists() -> None:
    missing = Rule(key="orders", check=Operator.MISSING)

    assert evaluate_rule(missing, None, NOON).passed
    assert evaluate_rule(missing, None, NOON).reason == "sensor orders is missing"
    assert not evaluate_rule(missing, {}, NOON).passed
    assert evaluate_rule(missing, {}, NOON).reason == "sensor orders is present"


@pytest.mark.parametrize(("data", "passes"), [(None, True), ({}, True), ({"error": None}, True), ({"error": 0}, False)])
def test_missing_with_a_field_asks_for_the_field(data: Mapping[str, Json] | None, passes: bool) -> None:
    result = evaluate_rule(Rule(key="orders", check=Operator.MISSING, field="error"), data, NOON)

    assert result.passed is passes
    assert result.reason == ("orders.error is missing" if passes else "orders.error is 0, which is not missing")


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("a.b", (True, "literal")),
        ("c.d", (True, 1)),
        ("c.list.1", (True, "second")),
        ("c.list.1.x", (False, None)),
        ("c.list.2", (False, None)),
        ("c.list.-1", (False, None)),
        ("c.list.first", (False, None)),
        ("c.list." + "9" * 5000, (False, None)),
        ("c.7", (True, "by name")),
        ("null", (True, None)),
        ("null.x", (False, None)),
        ("", (True, "empty")),
        ("c.", (False, None)),
        ("nothing", (False, None)),
        (None, (False, None)),
    ],
)
def test_a_field_is_a_name_first_and_a_path_second(field: str | None, found: tuple[bool, Json]) -> None:
    data: Mapping[str, Json] = {
        "a.b": "literal",
        "a": {"b": "path"},
        "c": {"d": 1, "list": ["first", "second"], "7": "by name"},
        "null": None,
        "": "empty",
    }

    assert look_up(data, field) == found


SENSORS: Mapping[str, Mapping[str, Json] | None] = {"a": {}, "b": {}}


@pytest.mark.parametrize(
    ("mode", "count", "names", "passes"),
    [
        (Mode.ALL, 0, "", True),
        (Mode.ALL, 0, "ab", True),
        (Mode.ALL, 0, "abx", False),
        (Mode.ANY, 0, "", False),
        (Mode.ANY, 0, "xa", True),
        (Mode.ANY, 0, "xy", False),
        (Mode.AT_LEAST, 2, "axb", True),
        (Mode.AT_LEAST, 2, "axy", False),
        (Mode.AT_LEAST, 1, "", False),
    ],
)
def test_a_group_passes_by_how_many_of_its_members_hold(mode: Mode, count: int, names: str, passes: bool) -> None:
    group = Group(mode=mode, count=count, members=tuple(exists(name) for name in names))

    result = evaluate(group, SENSORS, NOON)

    assert result.passed is passes
    assert [member.passed for member in result.members] == [name in SENSORS for name in names]


def test_groups_nest() -> None:
    either = Group(mode=Mode.ANY, members=(exists("x"), exists("b")))
    neither = Group(mode=Mode.ANY, members=(exists("x"), exists("y")))

    assert evaluate(Group(members=(exists("a"), either)), SENSORS, NOON).passed
    assert not evaluate(Group(members=(exists("a"), either, neither)), SENSORS, NOON).passed
    assert evaluate(Group(mode=Mode.AT_LEAST, count=2, members=(exists("a"), either, neither)), SENSORS, NOON).passed


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (Group(), "there is no condition"),
        (Group(mode=Mode.ANY), "there is no condition, so none can hold"),
        (Group(members=(exists("a"),)), "1 of 1 conditions hold, all are needed"),
        (
            Group(mode=Mode.AT_LEAST, count=2, members=(exists("a"), exists("x"))),
            "1 of 2 conditions hold, at least 2 are needed: sensor x is missing or has no data",
        ),
        (
            Group(members=(exists("a"), Group(mode=Mode.ANY, members=(exists("x"),)))),
            (
                "1 of 2 conditions hold, all are needed: "
                "0 of 1 conditions hold, one is needed: sensor x is missing or has no data"
            ),
        ),
        (
            Group(mode=Mode.ANY, members=tuple(exists(name) for name in "vwxyz")),
            (
                "0 of 5 conditions hold, one is needed: sensor v is missing or has no data; "
                "sensor w is missing or has no data; sensor x is missing or has no data; and 2 more"
            ),
        ),
    ],
)
def test_a_group_says_how_many_hold_and_what_is_missing(group: Group, reason: str) -> None:
    assert evaluate(group, SENSORS, NOON).reason == reason


def test_a_group_names_each_sensor_once() -> None:
    group = Group(members=(exists("b"), Group(members=(exists("a"), exists("b"))), exists("c")))

    assert list(keys(group)) == ["b", "a", "c"]


def test_data_that_is_not_a_map_counts_as_no_data() -> None:
    result = evaluate_rule(exists("orders"), cast("Any", ["not", "a", "map"]), NOON)

    assert not result.passed
