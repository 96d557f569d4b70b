"""Values: what counts as a number, when two values are the same, and how a sentence shows one."""

from decimal import Decimal
from typing import Any, cast

import pytest

from worker.core.model.values import Json, is_same, read_number, show


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (42, 42),
        (0.1, Decimal("0.1")),
        (1e23, 10**23),
        (Decimal("0.1"), Decimal("0.1")),
        ("42", 42),
        ("+5", 5),
        ("-.5e1", -5),
        ("1e3", 1000),
        ("1E-0003", Decimal("0.001")),
        ("5.", 5),
        (2**53 + 1, 2**53 + 1),
        ("9007199254740993", 2**53 + 1),
        (1.7976931348623157e308, Decimal("1.7976931348623157e308")),
    ],
)
def test_a_number_is_read_exactly(value: Json, number: Decimal | int) -> None:
    assert read_number(value) == number


NO_NUMBERS: list[Json] = [
    *("", " ", " 150 ", "1,500", "1_000", "0x10", "1e", "e5", ".", "+", "--1", "1e400", "-1e400", "1e99999", "٤٢", "½"),
    *("inf", "Infinity", "nan", "NaN", "1" * 600),
    *(True, False, None, [], [1], {}, {"count": 1}),
    *(float("inf"), float("-inf"), float("nan"), 2**1024, -(2**1024)),
    *(Decimal("Infinity"), Decimal("NaN"), Decimal("sNaN"), Decimal("1e309")),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=show)
def test_what_no_finite_double_can_be_is_not_a_number(value: Json) -> None:
    assert read_number(value) is None


SAME: list[tuple[Json, Json]] = [
    (42, 42.0),
    (42, "42.0"),
    (1000000, "1e+06"),
    (0.1, Decimal("0.1")),
    (0.1, "0.10"),
    (2**53 + 1, Decimal(2**53 + 1)),
    (True, True),
    (True, "true"),
    (False, "false"),
    (None, None),
    ("", ""),
    ([1, "2"], ["1", 2.0]),
    ([], ()),
    ({"a": [1, {"b": None}]}, {"a": ["1", {"b": None}]}),
]
DIFFERENT: list[tuple[Json, Json]] = [
    ("42", "42.0"),
    ("COMPLETE", "complete"),
    (2**53, 2**53 + 1),
    (float(2**53), 2**53 + 1),
    (True, 1),
    (False, 0),
    (True, "True"),
    (True, "1"),
    (None, ""),
    (None, "null"),
    (None, 0),
    (None, False),
    ([1, 2], "[1 2]"),
    ([1, 2], [2, 1]),
    ([1], [1, 1]),
    ([1], 1),
    ({}, []),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": None}),
    (float("nan"), float("nan")),
    (Decimal("sNaN"), 1),
]


@pytest.mark.parametrize(("left", "right"), SAME, ids=show)
def test_values_that_mean_the_same_are_the_same_both_ways(left: Json, right: Json) -> None:
    assert is_same(left, right)
    assert is_same(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=show)
def test_values_that_differ_are_different_both_ways(left: Json, right: Json) -> None:
    assert not is_same(left, right)
    assert not is_same(right, left)


def nested(depth: int, core: Json) -> Json:
    value = core
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_deeper_than_the_interpreter_recurses_is_compared_and_shown() -> None:
    assert is_same(nested(50_000, 1), nested(50_000, "1"))
    assert not is_same(nested(50_000, 1), nested(50_000, 2))
    assert show(nested(50_000, 1)) == "[[[…]]]"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ready", '"ready"'),
        ('say "hi"\n', r'"say \"hi\"\n"'),
        ("\ud800", r'"\ud800"'),
        (True, "true"),
        (None, "null"),
        (950, "950"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        ([1, "a", None], '[1, "a", null]'),
        ([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, …]"),
        ({"a": {"b": {"c": {}}}}, '{"a": {"b": {"c": …}}}'),
        ([], "[]"),
        (cast("Any", b"x"), "a bytes"),
    ],
)
def test_a_value_is_shown_like_json(value: Json, shown: str) -> None:
    assert show(value) == shown


def test_an_integer_with_more_digits_than_python_writes_is_shown_by_its_size() -> None:
    assert show(10**5000) == "a whole number of 16610 bits"


LARGE: dict[str, Json] = {
    "text": "x" * 10**6,
    "list": ["x" * 70] * 10**5,
    "map": {"k" * 10**5: 1},
    "number": Decimal("1" * 300),
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE.keys())
def test_a_large_value_is_shown_short(value: Json) -> None:
    assert len(show(value)) == 80
    assert show(value).endswith("…")
