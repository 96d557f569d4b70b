"""Judging others by durations on our own clock, and the timing that makes that safe."""

import pytest

from worker.core.errors import ConfigError
from worker.core.membership.liveness import (
    DEFAULT_TIMING,
    DRIFT_MAX,
    FAST_TIMING,
    Sighting,
    Timing,
    next_look_s,
    observe,
    stood_still,
)
from worker.core.model.keys import SessionId

A, B = SessionId("a"), SessionId("b")


def test_both_profiles_are_safe_with_the_numbers_they_promise() -> None:
    default, fast = DEFAULT_TIMING, FAST_TIMING

    assert (default.beat_s, default.fence_s, default.kill_s, default.look_s) == (2, 5, 7, 2)
    assert (fast.beat_s, fast.fence_s, fast.kill_s, fast.look_s) == (1, 3, 4, 1)


@pytest.mark.parametrize(
    ("beat_s", "fence_s", "kill_s", "look_s", "complaint"),
    [
        (2, 5, 4, 2, "may still act when others judge it dead"),
        (2, 5, 5 * (1 + 2 * DRIFT_MAX), 2, "may still act"),
        (2, 4, 7, 2, "no time for a second try"),
        (0, 5, 7, 2, "above zero"),
        (2, 5, 7, -1, "above zero"),
    ],
)
def test_a_timing_that_is_not_safe_is_refused(
    beat_s: float, fence_s: float, kill_s: float, look_s: float, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Timing(beat_s=beat_s, fence_s=fence_s, kill_s=kill_s, look_s=look_s)


def test_a_counter_that_moves_is_counted_from_when_its_new_value_was_first_seen() -> None:
    seen = observe({}, {A: 1, B: 7}, monotonic=10.0)
    seen = observe(seen, {A: 2, B: 7}, monotonic=12.0)
    seen = observe(seen, {A: 2, B: 7}, monotonic=14.0)

    assert seen == {A: Sighting(2, 12.0), B: Sighting(7, 10.0)}


def test_a_counter_that_went_away_and_came_back_starts_anew() -> None:
    seen = observe({}, {A: 1}, monotonic=10.0)
    seen = observe(seen, {}, monotonic=12.0)

    assert observe(seen, {A: 1}, monotonic=20.0) == {A: Sighting(1, 20.0)}


def test_a_counter_is_dead_when_it_stood_still_for_the_whole_time() -> None:
    seen = {A: Sighting(3, 10.0), B: Sighting(3, 10.5)}

    assert stood_still(seen, DEFAULT_TIMING, monotonic=16.9) == []
    assert stood_still(seen, DEFAULT_TIMING, monotonic=17.0) == [A]
    assert stood_still(seen, DEFAULT_TIMING, monotonic=17.5) == [A, B]


@pytest.mark.parametrize(
    ("monotonic", "wait_s"),
    [(10.0, 2.0), (15.5, 1.5), (16.95, 0.2), (30.0, 0.2)],
    ids=["usual", "soon", "near", "past"],
)
def test_the_next_look_is_when_someone_will_be_judged_but_never_without_a_pause(
    monotonic: float, wait_s: float
) -> None:
    assert next_look_s({A: Sighting(3, 10.0)}, DEFAULT_TIMING, monotonic=monotonic) == pytest.approx(wait_s)
