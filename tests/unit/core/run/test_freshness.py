"""When a sensor last changed, in every spelling producers use, and whether a rerun may find anything new."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.builders.values import HOUR, NOON
from worker.core.model.values import Json
from worker.core.run.drift import changed_at, is_fresh

SECONDS = int(NOON.timestamp())


def in_text(at: datetime) -> Json:
    return at.isoformat()


def in_seconds(at: datetime) -> Json:
    return int(at.timestamp())


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-10T12:00:00Z",
        "2026-03-10T13:00:00+01:00",
        SECONDS,
        str(SECONDS),
        SECONDS * 1000,
        str(SECONDS * 1000),
    ],
)
def test_one_instant_is_the_same_in_every_spelling(written: Json) -> None:
    assert changed_at({"updatedAt": written}) == NOON


def test_seconds_and_milliseconds_are_told_apart_by_their_size() -> None:
    assert changed_at({"updatedAt": 10**11}) == datetime.fromtimestamp(10**11, UTC)
    assert changed_at({"updatedAt": 10**12}) == datetime.fromtimestamp(10**9, UTC)


@pytest.mark.parametrize("written", [None, "", "yesterday", "12:00", True, -1, 0, 10**12 - 1, 10**14, {"at": SECONDS}])
def test_what_is_no_time_says_nothing(written: Json) -> None:
    assert changed_at({"updatedAt": written}) is None


@pytest.mark.parametrize("spelled", [in_text, in_seconds])
def test_a_sensor_that_changed_since_the_success_makes_a_rerun_worth_while(spelled: Callable[[datetime], Json]) -> None:
    old, new = ({"updatedAt": spelled(NOON + shift)} for shift in (-HOUR, timedelta(seconds=1)))

    assert is_fresh([old, new], NOON)
    assert not is_fresh([old, {"updatedAt": spelled(NOON)}], NOON)


def test_where_no_sensor_tells_a_rerun_is_not_held_back() -> None:
    assert is_fresh([], NOON)
    assert is_fresh([{"count": 5}, {"updatedAt": "soon"}], NOON)
