"""The smallest change that makes rules hold."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from worker.core.model.checks import Operator
from worker.core.model.rules import Group, Mode, Rule, evaluate
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.operations.explain.remedies import smallest_changes

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
UTC_ZONE = ZoneInfo("UTC")
PERIOD = Period(NOON.date())
STAMP = "2026-03-03T11:30:00Z"


def changes(group: Group, sensors: dict[str, dict[str, Json]] | None = None) -> tuple[str, ...]:
    return smallest_changes(evaluate(group, sensors or {}, NOON), PERIOD, UTC_ZONE)


def rule(check: Operator, value: Json = None, field: str | None = "count") -> Rule:
    return Rule(key="orders", field=field, check=check, value=value)


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        (rule(Operator.GTE, 1000), "write orders.count >= 1000 for 2026-03-03"),
        (rule(Operator.GT, 1000), "write orders.count > 1000 for 2026-03-03"),
        (rule(Operator.LT, 1), "write orders.count < 1 for 2026-03-03"),
        (rule(Operator.LTE, 1), "write orders.count <= 1 for 2026-03-03"),
        (rule(Operator.EQUALS, "done"), 'write orders.count = "done" for 2026-03-03'),
        (rule(Operator.NOT_EQUALS, 5), "write orders.count as anything but 5 for 2026-03-03"),
        (rule(Operator.IN, [1, 2]), "write orders.count as one of [1, 2] for 2026-03-03"),
        (rule(Operator.BETWEEN, [1, 2]), "write orders.count within [1, 2] for 2026-03-03"),
        (rule(Operator.MATCHES, "v.*"), 'write orders.count so that it matches "v.*" for 2026-03-03'),
        (rule(Operator.MISSING), "write orders without count for 2026-03-03"),
        (rule(Operator.MISSING, field=None), "remove sensor orders of 2026-03-03"),
        (
            rule(Operator.AGE_GT, "45m", field="at"),
            "wait until 2026-03-03 12:15 UTC, when orders.at is older than 45m",
        ),
        (rule(Operator.AGE_LT, "15m", field="at"), "write orders.at with a time less than 15m ago for 2026-03-03"),
        (rule(Operator.AGE_GT, "45m"), "write orders.count with a time more than 45m ago for 2026-03-03"),
    ],
)
def test_each_check_says_what_to_write(wanted: Rule, change: str) -> None:
    assert changes(Group(members=(wanted,)), {"orders": {"count": 5, "at": STAMP}}) == (change,)


def test_a_sensor_that_must_exist_is_written() -> None:
    assert changes(Group(members=(rule(Operator.EXISTS, field=None),))) == ("write sensor orders for 2026-03-03",)


def test_every_check_has_words() -> None:
    for check in Operator:
        assert changes(Group(members=(rule(check, 1),)), {}) or check is Operator.MISSING


A, B, C = (Rule(key=key, check=Operator.EXISTS) for key in "abc")
A_AND_B = Group(members=(A, B))


def written(*keys: str) -> tuple[str, ...]:
    return tuple(f"write sensor {key} for 2026-03-03" for key in keys)


@pytest.mark.parametrize(
    ("group", "there", "needed"),
    [
        (Group(members=(A, B, C)), "", written("a", "b", "c")),
        (Group(members=(A, B, C)), "b", written("a", "c")),
        (Group(mode=Mode.ANY, members=(A, B)), "", written("a")),
        (Group(mode=Mode.ANY, members=(A, B)), "b", ()),
        (Group(mode=Mode.ANY, members=(A_AND_B, C)), "", written("c")),
        (Group(mode=Mode.ANY, members=(A_AND_B, C)), "b", written("a")),
        (Group(mode=Mode.AT_LEAST, count=2, members=(A, B, C)), "", written("a", "b")),
        (Group(mode=Mode.AT_LEAST, count=2, members=(A, B, C)), "a", written("b")),
        (Group(mode=Mode.AT_LEAST, count=2, members=(A_AND_B, B, C)), "", written("b", "c")),
        (Group(mode=Mode.AT_LEAST, count=2, members=(A, B, C)), "ac", ()),
    ],
)
def test_of_alternatives_those_with_the_fewest_changes_are_named(
    group: Group, there: str, needed: tuple[str, ...]
) -> None:
    assert changes(group, {key: {} for key in there}) == needed


def test_a_group_that_can_never_hold_asks_for_its_rules_to_be_corrected() -> None:
    impossible = Group(mode=Mode.ANY, members=())

    assert changes(Group(members=(impossible,))) == ("correct the rules: there is no condition, so none can hold",)


def test_making_the_changes_makes_the_group_hold() -> None:
    group = Group(mode=Mode.AT_LEAST, count=2, members=(A_AND_B, Group(mode=Mode.ANY, members=(B, C)), C))

    named = [change.split()[2] for change in changes(group)]

    assert evaluate(group, {key: {} for key in named}, NOON).passed
