"""JSON that is read and written says what it said, and whatever is none is refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.runtime.json_bytes import from_json, to_json
from worker.store.table import TableName

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(value=VALUES, is_sorted=st.booleans())
def test_what_is_written_is_read(value: object, is_sorted: bool) -> None:
    assert from_json(to_json(value, is_sorted=is_sorted)) == value


@given(value=st.dictionaries(TEXTS, st.integers() | st.dictionaries(TEXTS, st.integers(), max_size=3), max_size=5))
def test_sorted_equal_values_are_equal_bytes(value: dict[str, object]) -> None:
    backwards = dict(reversed(value.items()))

    assert to_json(value, is_sorted=True) == to_json(backwards, is_sorted=True)


def test_what_json_has_no_word_for_is_written_as_its_nearest() -> None:
    value = {"bytes": b"\x00\xff", "exact": Decimal("0.10"), "member": TableName.CONTROL, "none": float("nan")}

    assert to_json(value) == b'{"bytes":"AP8=","exact":0.10,"member":"control","none":null}'


def test_of_a_name_that_comes_twice_the_last_one_counts() -> None:
    assert from_json(b'{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b"[1,]",
        b"1e999",
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        b"[" * 9_999,
        '"\ud800"',
    ],
)
def test_what_is_no_json_is_refused(text: bytes | str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, object(), {(1, 2): 3}, {1: 2}])
def test_what_cannot_be_written_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        to_json(value, is_sorted=True)


def test_what_has_no_end_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(ValueError, match="recursion"):
        to_json(endless)
