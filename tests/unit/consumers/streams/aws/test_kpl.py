"""Aggregates are taken apart, and whatever is none, or is damaged, is told apart from one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.aws.kpl import MAGIC, BadAggregate, Part, parts_of
from tests.support.fakes.kpl_aggregates import aggregate, number_field, sealed, text_field

HASHES = st.none() | st.integers(0, 2**128 - 1)
PARTS = st.lists(st.builds(Part, st.binary(max_size=300), st.text(max_size=20), HASHES), max_size=30)


def taken_apart(data: bytes) -> list[Part]:
    parts = parts_of(data)
    assert parts is not None
    return list(parts)


@given(parts=PARTS)
def test_what_was_put_into_an_aggregate_comes_out_with_keys_and_explicit_hash_keys(parts: list[Part]) -> None:
    assert taken_apart(aggregate(parts)) == parts


def test_the_bytes_are_those_of_the_documented_format() -> None:
    """Written out by hand, so that reader and writer cannot share a mistake."""
    message = (
        b"\x0a\x01a"  # partition_key_table: "a"
        b"\x12\x017"  # explicit_hash_key_table: "7"
        b"\x1a\x09\x08\x00\x10\x00\x1a\x03abc"  # records: key 0, hash key 0, data "abc"
        b"\x1a\x06\x08\x00\x1a\x02de"  # records: key 0, data "de"
    )

    assert taken_apart(sealed(message)) == [Part(b"abc", "a", 7), Part(b"de", "a")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain",
        MAGIC,
        MAGIC + b"too short",
        MAGIC + b"its sum is another" + bytes(16),
        b"x" + aggregate([Part(b"abc", "a")]),
        aggregate([Part(b"abc", "a")])[:-1] + b"x",
    ],
)
def test_what_is_no_aggregate_is_an_ordinary_record(data: bytes) -> None:
    assert parts_of(data) is None


@pytest.mark.parametrize(
    "message",
    [
        text_field(3, number_field(1, 0) + text_field(3, b"data")),  # its key is not in the table
        text_field(1, b"a") + text_field(3, number_field(1, 0)),  # no data
        text_field(1, b"a") + text_field(3, text_field(3, b"data")),  # no key
        text_field(1, b"a") + b"\x1a\x7f",  # cut off
        text_field(1, b"a") + b"\x1a",
        text_field(1, b"\xff"),  # no text
        b"\xff" * 11,  # a number without end
        b"\x0b",  # a group, which nobody writes
        text_field(2, b"seven"),
    ],
)
def test_a_damaged_aggregate_is_said_to_be_damaged(message: bytes) -> None:
    with pytest.raises(BadAggregate, match="cannot be taken apart"):
        taken_apart(sealed(message))


def test_what_stands_before_the_damage_is_still_taken_out() -> None:
    parts = parts_of(aggregate([Part(b"1", "a"), Part(b"2", "a")], extra=b"\x1a\x7f"))
    assert parts is not None

    assert [next(parts).data, next(parts).data] == [b"1", b"2"]
    with pytest.raises(BadAggregate, match="after its record 2"):
        next(parts)


def test_fields_of_a_later_version_are_passed_over() -> None:
    later = number_field(9, 5) + text_field(10, b"x") + b"\x59" + bytes(8) + b"\x65" + bytes(4)

    assert taken_apart(aggregate([Part(b"1", "a")], extra=later)) == [Part(b"1", "a")]
