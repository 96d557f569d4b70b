"""A target that does not answer is left alone, and tried now and then."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from tests.support.clock.manual import ManualClock
from worker.targets.circuit_breaker import (
    FAILURES_MAX,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Breaker,
    TargetClosed,
)


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, _facts: Mapping[str, object]) -> None:
        self.events.append(event)


def a_breaker(clock: ManualClock, log: Log | None = None) -> Breaker:
    return Breaker("http:slow.example", clock, log or Log(), jitter=lambda: 1.0)


def fail(breaker: Breaker, times: int = FAILURES_MAX) -> None:
    for _ in range(times):
        is_probe = breaker.admit()
        breaker.failed("no answer")
        breaker.leave(is_probe=is_probe)


def is_closed(breaker: Breaker) -> bool:
    try:
        breaker.check()
    except TargetClosed:
        return True
    return False


def test_failures_that_are_not_in_a_row_close_nothing() -> None:
    breaker = a_breaker(ManualClock())

    for _ in range(3):
        fail(breaker, FAILURES_MAX - 1)
        breaker.answered()

    assert not is_closed(breaker)


def test_a_closed_target_is_told_of_once_and_says_when_it_may_be_asked_again() -> None:
    log = Log()
    breaker = a_breaker(ManualClock(), log)

    fail(breaker)
    breaker.failed("one that was still under way")

    with pytest.raises(TargetClosed, match=r"http:slow\.example does not answer") as closed:
        breaker.check()
    assert closed.value.again_after == timedelta(seconds=FIRST_PAUSE_S)
    assert log.events == ["target.closed"]


def test_after_the_pause_one_call_finds_out_and_the_others_wait_for_it() -> None:
    clock, log = ManualClock(), Log()
    breaker = a_breaker(clock, log)
    fail(breaker)

    clock.advance(timedelta(seconds=FIRST_PAUSE_S))
    is_probe = breaker.admit()
    assert is_probe
    assert is_closed(breaker)
    breaker.answered()
    breaker.leave(is_probe=is_probe)

    assert not is_closed(breaker)
    assert log.events == ["target.closed", "target.reopened"]


def test_a_call_that_finds_out_nothing_leaves_it_to_the_next() -> None:
    clock = ManualClock()
    breaker = a_breaker(clock)
    fail(breaker)
    clock.advance(timedelta(seconds=FIRST_PAUSE_S))

    breaker.leave(is_probe=breaker.admit())

    assert not is_closed(breaker)


def test_the_pauses_grow_to_a_bound_and_are_short_again_after_an_answer() -> None:
    clock = ManualClock()
    breaker = a_breaker(clock)
    fail(breaker)
    pauses: list[float] = []
    for _ in range(6):
        with pytest.raises(TargetClosed) as closed:
            breaker.check()
        pauses.append(closed.value.again_after.total_seconds())
        clock.advance(closed.value.again_after)
        fail(breaker, 1)

    assert pauses == [5, 10, 20, 40, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert breaker.closed_for == timedelta(seconds=sum(pauses))
    breaker.answered()
    assert breaker.closed_for == timedelta()
    fail(breaker)
    with pytest.raises(TargetClosed) as closed:
        breaker.check()
    assert closed.value.again_after == timedelta(seconds=FIRST_PAUSE_S)
