"""Images that are delivered again after their row has moved on to another period."""

from datetime import datetime, timedelta

import pytest

from tests.support.builders.values import MINUTE, NOON
from worker.core.run.post_run import TOLD_AT_MAX, is_old_image, noted
from worker.core.time.skew import SKEW_MAX

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("image_at", "is_old"),
    [(None, False), (NOON - SECOND, True), (NOON, False), (NOON + SECOND, False)],
    ids=["no image", "older", "of the same time", "newer"],
)
def test_an_image_is_old_once_something_written_later_was_told_of_its_sensor(
    image_at: datetime | None, is_old: bool
) -> None:
    assert is_old_image(image_at, read_at=None, told_at=NOON) is is_old


def test_an_image_is_old_if_the_row_was_certainly_read_after_it_was_written() -> None:
    assert is_old_image(NOON - SKEW_MAX - SECOND, read_at=NOON, told_at=None)
    assert not is_old_image(NOON - SKEW_MAX, read_at=NOON, told_at=None)
    assert not is_old_image(NOON - SKEW_MAX - SECOND, read_at=None, told_at=None)


def test_what_is_told_of_a_sensor_never_makes_it_younger_again() -> None:
    told = noted({"out": NOON}, "out", NOON - MINUTE)

    assert told == noted(told, "out", None) == {"out": NOON}
    assert noted(told, "out", NOON + MINUTE) == {"out": NOON + MINUTE}
    assert noted({}, "out", None) == {}


def test_only_so_many_sensors_are_remembered_and_the_last_told_of_are_among_them() -> None:
    told: dict[str, datetime] = {}
    for number in range(TOLD_AT_MAX + 5):
        told = noted(told, f"out-{number}", NOON)

    assert len(told) == TOLD_AT_MAX
    assert f"out-{TOLD_AT_MAX + 4}" in told
