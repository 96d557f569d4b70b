"""One text for one content."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.model.content_hash import canonical_json, content_hash
from worker.core.model.values import Json


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (10, Decimal("10.00")),
        (10, 10.0),
        (Decimal("1E+1"), 10),
        (0.1, Decimal("0.1")),
        (0, Decimal("-0.000")),
        (10**37, Decimal(10**37)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}),
        ([1, "x"], (1, "x")),
    ],
)
def test_the_same_content_has_the_same_hash_however_it_is_written(one: Json, other: Json) -> None:
    assert content_hash(one) == content_hash(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, "1"),
        (0, False),
        (None, "null"),
        ({}, []),
        (1, 10),
        (-1, 1),
        (10**37, 10**37 + 1),
        (Decimal("0.1"), Decimal("0.10000000000000000000000000000000000001")),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        (["a,b"], ["a", "b"]),
        ('"', '\\"'),
    ],
)
def test_another_content_has_another_hash(one: Json, other: Json) -> None:
    assert content_hash(one) != content_hash(other)


def test_a_hash_is_the_same_for_ever() -> None:
    assert content_hash({"count": 3, "ok": True, "names": ["ä", None]}) == "a78afee0f32869d5360f2c94316cda5e"


def test_a_number_is_short_however_large() -> None:
    assert canonical_json(Decimal("-1.50E+125")) == "-15e124"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN")])
def test_what_is_not_a_number_is_refused(value: Json) -> None:
    with pytest.raises(ValueError, match="not a number"):
        canonical_json(value)


@given(st.integers() | st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 5))
def test_zeros_at_the_end_change_nothing(number: int | Decimal, zeros: int) -> None:
    sign, digits, exponent = Decimal(number).as_tuple()

    padded = Decimal((sign, digits + (0,) * zeros, int(exponent) - zeros))

    assert canonical_json(padded) == canonical_json(number)
