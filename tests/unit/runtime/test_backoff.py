"""Trying again is bounded in number and in time, and spread by full jitter."""

from datetime import timedelta

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.errors import RetryLater
from worker.runtime.backoff import Backoff, RetryLoop

TROUBLE = RetryLater("throttled")


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.1, longest_s=0.5, jitter=lambda: 1.0)

    assert [backoff.wait_s(attempt) for attempt in (1, 2, 3, 4, 5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_wait_is_drawn_from_nothing_to_its_bound() -> None:
    draws = iter([0.0, 0.25])
    backoff = Backoff(first_s=0.4, jitter=lambda: next(draws))

    assert [backoff.wait_s(1), backoff.wait_s(1)] == [0.0, 0.1]


async def test_patience_ends_after_the_last_attempt_and_keeps_the_cause() -> None:
    patience = RetryLoop(Backoff(attempts_max=3), ManualClock())
    await patience.wait(TROUBLE)
    await patience.wait(TROUBLE)

    with pytest.raises(RetryLater, match=r"throttled \(given up after 3 tries") as end:
        await patience.wait(TROUBLE)

    assert end.value.__cause__ is TROUBLE


async def test_patience_ends_when_its_time_is_used_up() -> None:
    clock = ManualClock()
    patience = RetryLoop(Backoff(budget_s=8.0), clock)
    await patience.wait(TROUBLE)
    clock.advance(timedelta(seconds=8))

    with pytest.raises(RetryLater, match="given up after 2 tries in 8"):
        await patience.wait(TROUBLE)


async def test_patience_that_starts_again_has_its_attempts_back() -> None:
    patience = RetryLoop(Backoff(attempts_max=2), ManualClock())
    await patience.wait(TROUBLE)

    patience.restart()

    await patience.wait(TROUBLE)
