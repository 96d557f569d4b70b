"""Positions in a shard: what they stand for comes back, and their text is in the shard's order."""

from datetime import timedelta

import pytest

from consumers.streams.positions import OLDEST, RecordPosition, parse_place, time_of
from tests.support.clock.manual import NOON
from worker.core.errors import ConfigError

DIGITS = 40


def place(sequence: int | str, *, part: int | None = None, is_bridged: bool = False) -> RecordPosition:
    return RecordPosition(sequence=str(sequence), at=NOON, part=part, is_bridged=is_bridged)


NEWS = place("")


@pytest.mark.parametrize(
    "known",
    [
        OLDEST,
        NEWS,
        place(10**39),
        place("0"),
        place("00000000000000000000000000000049"),
        place(7, part=0),
        place("007", part=9_999_999, is_bridged=True),
        place(7, is_bridged=True),
    ],
)
def test_a_place_comes_back_from_its_text(known: RecordPosition) -> None:
    assert parse_place(known.text(DIGITS), DIGITS) == known


def test_text_order_is_the_order_of_the_shard() -> None:
    in_order = [
        OLDEST,
        NEWS,
        place("0000000000000000000000000000000008"),
        place(9),
        place(10, part=0),
        place(10, part=9),
        place(10, part=10),
        place(10),
        place(10).bridged(NOON),
        place(10).bridged(NOON + timedelta(hours=1)),
        place(11),
        place(10**21 - 1),
        place(10**21),
        place(10**40 - 1),
    ]
    texts = [one.text(DIGITS) for one in in_order]

    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)


def test_what_follows_a_gap_is_before_the_next_record_even_inside_an_aggregate() -> None:
    inside = place(10, part=3)

    assert inside.text(DIGITS) < inside.bridged(NOON).text(DIGITS) < place(10).text(DIGITS)


@pytest.mark.parametrize("text", ["", "0@1", f"{7:040d}", f"{7:020d}@1772539200000", f"{7:040d}.1@1772539200000"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="delete the lease"):
        parse_place(text, DIGITS)


@pytest.mark.parametrize("digits", [DIGITS, 64])
@pytest.mark.parametrize("known", [NEWS, place("007", part=3), place(7), place(7, is_bridged=True)])
def test_the_time_of_a_position_is_known_whatever_the_kind_of_its_stream(known: RecordPosition, digits: int) -> None:
    assert time_of(known.text(digits)) == NOON


@pytest.mark.parametrize("text", [OLDEST.text(DIGITS), "begun", "0007"])
def test_the_beginning_and_what_is_no_position_have_no_time(text: str) -> None:
    assert time_of(text) is None
