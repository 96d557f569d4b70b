"""The store's own time, as its answers tell it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.clock.manual import NOON, ManualClock
from worker.membership.clock_guard import ClockGuard
from worker.store.store_clock import StoreTime

AT_NOON = "Tue, 03 Mar 2026 12:00:00 GMT"


def an_answer(date: str | None) -> Mapping[str, Any]:
    return {"Item": {}, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


@pytest.mark.parametrize(("ahead", "is_trusted"), [(timedelta(0), True), (timedelta(minutes=2), False)])
def test_a_clock_that_differs_from_the_date_of_an_answer_is_trusted_no_more(
    ahead: timedelta, *, is_trusted: bool
) -> None:
    clock = ManualClock(NOON + ahead)
    guard = ClockGuard(clock)

    StoreTime(clock, guard.observe).hear(an_answer(AT_NOON), sent=clock.now())

    assert guard.is_trusted is is_trusted


@pytest.mark.parametrize("answer", [{}, an_answer(None), an_answer("soon")])
def test_an_answer_without_a_date_says_nothing(answer: Mapping[str, Any]) -> None:
    clock = ManualClock(NOON + timedelta(days=1))
    guard = ClockGuard(clock)

    StoreTime(clock, guard.observe).hear(answer, sent=clock.now())

    assert guard.is_trusted


def test_dates_are_heeded_once_a_second() -> None:
    heard, clock = list[datetime](), ManualClock()
    time = StoreTime(clock, lambda said, sent, received: heard.append(said))

    for _ in range(8):
        time.hear(an_answer(AT_NOON), sent=clock.now())
        clock.advance(timedelta(seconds=0.25))

    assert heard == [datetime(2026, 3, 3, 12, tzinfo=UTC)] * 2
