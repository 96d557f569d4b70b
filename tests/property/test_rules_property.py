"""Rules hold up against any data: nothing raises, every verdict has its sentence, and opposites are opposites."""

from collections.abc import Mapping
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.core.model.rules import (
    Group,
    GroupResult,
    Json,
    Mode,
    Operator,
    Rule,
    RuleResult,
    evaluate,
    evaluate_rule,
)
from worker.core.model.values import is_same, read_number

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

numbers = st.one_of(
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.decimals(),
    st.decimals(allow_nan=False, places=2),
)
texts = st.one_of(
    st.text(),
    st.text(st.characters(categories=["Cs", "Cc", "Nd"])),
    st.sampled_from(["", "true", "42", "1e3", "1e400", "inf", "nan", "1h", "-5m", "a+", "(", "2026-03-01T11:59:00Z"]),
    st.datetimes().map(lambda instant: instant.isoformat() + "Z"),
    numbers.filter(lambda number: not isinstance(number, int)).map(str),
)


def larger(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4))


scalars: st.SearchStrategy[Json] = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Json] = st.recursive(scalars, larger, max_leaves=8)
fields = st.one_of(st.none(), st.sampled_from(["f", "f.0", "f.a.1", "", "."]), st.text(max_size=4))
rules = st.builds(Rule, key=st.sampled_from(["a", "b"]), check=st.sampled_from(Operator), field=fields, value=values)


def larger_group(inner: st.SearchStrategy[Rule | Group]) -> st.SearchStrategy[Rule | Group]:
    members = st.lists(inner, max_size=4).map(tuple)
    return st.builds(Group, mode=st.sampled_from(Mode), members=members, count=st.integers(-1, 5))


groups = larger_group(st.recursive(rules, larger_group, max_leaves=6)).filter(lambda group: isinstance(group, Group))
data = st.dictionaries(st.one_of(st.just("f"), st.text(max_size=4)), values, max_size=3)
sensors = st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.none(), data))


def rule_results(result: GroupResult) -> list[RuleResult]:
    return [
        leaf
        for member in result.members
        for leaf in ([member] if isinstance(member, RuleResult) else rule_results(member))
    ]


@settings(deadline=None, max_examples=150)
@given(groups, sensors)
def test_any_group_on_any_data_gives_a_verdict_and_sentences_that_can_be_written(
    group: Group, seen: Mapping[str, Mapping[str, Json] | None]
) -> None:
    result = evaluate(group, seen, NOON)

    for leaf in rule_results(result):
        assert leaf.reason.encode()
        assert leaf.wanted.encode()
    assert result.reason.encode()


@settings(deadline=None)
@given(rules, data)
def test_a_verdict_is_the_same_every_time(rule: Rule, seen: Mapping[str, Json]) -> None:
    first, second = evaluate_rule(rule, seen, NOON), evaluate_rule(rule, seen, NOON)

    assert (first.passed, first.reason) == (second.passed, second.reason)


@settings(deadline=None)
@given(values, values)
def test_a_present_field_is_either_equal_or_not_equal(seen: Json, wanted: Json) -> None:
    equal, unequal, one_of = (
        evaluate_rule(Rule(key="a", check=check, field="f", value=value), {"f": seen}, NOON).passed
        for check, value in ((Operator.EQUALS, wanted), (Operator.NOT_EQUALS, wanted), (Operator.IN, [wanted]))
    )

    assert equal is not unequal
    assert equal is one_of


@settings(deadline=None)
@given(values, values)
def test_being_the_same_is_symmetric(left: Json, right: Json) -> None:
    assert is_same(left, right) is is_same(right, left)


@settings(deadline=None)
@given(numbers, numbers)
def test_of_two_numbers_exactly_one_is_less_or_they_are_equal(seen: Json, wanted: Json) -> None:
    below, equal, above = (
        evaluate_rule(Rule(key="a", check=check, field="f", value=wanted), {"f": seen}, NOON).passed
        for check in (Operator.LT, Operator.EQUALS, Operator.GT)
    )

    are_numbers = read_number(seen) is not None and read_number(wanted) is not None
    assert [below, equal, above].count(True) == (1 if are_numbers else 0)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_their_order(left: float, right: float) -> None:
    rule = Rule(key="a", check=Operator.LT, field="f", value=right)

    assert evaluate_rule(rule, {"f": left}, NOON).passed is (left < right)


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=6), st.integers(0, 7))
def test_a_group_agrees_with_counting(passes: list[bool], count: int) -> None:
    members = tuple(Rule(key="here" if holds else "gone", check=Operator.EXISTS) for holds in passes)

    verdicts = [
        evaluate(Group(mode=mode, members=members, count=count), {"here": {}}, NOON).passed
        for mode in (Mode.ALL, Mode.ANY, Mode.AT_LEAST)
    ]

    assert verdicts == [all(passes), any(passes), sum(passes) >= count]
