"""Who is judged dead has stopped by itself: every way in which beats and looks can be late, in whole seconds.

One worker beats, another looks. Beats, their confirmations and looks take any time. What the worker makes of a
confirmation is the shipped `Fence`; what the other makes of a look are the shipped `observe` and `stood_still`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pytest

from tests.modelcheck.explorer import Step, Violation, explore
from tests.support.clock.manual import NOON
from worker.core.membership.liveness import FAST_TIMING, Sighting, Timing, observe, stood_still
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence

ME: Final = SessionId("me")
HORIZON_S: Final = 9
BEATS_MAX: Final = 2  # the last that was confirmed, and one that came to nothing, are all that the promise depends on


@dataclass(frozen=True, slots=True)
class Instant:
    """A clock that stands at one moment."""

    at: float

    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Moment:
    now: int = 0
    fence_until: float = 0.0
    sent: int = 0  # beats so far
    beats: tuple[tuple[int, int], ...] = ()  # on their way: number, and when each was sent
    answers: tuple[int, ...] = ()  # on their way back: when their beats were sent
    row: int = 0  # the counter that everyone sees
    looked: int | None = None  # what a look has read and not yet told
    seen: Sighting | None = None
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class BeatModel:
    timing: Timing

    def start(self) -> Moment:
        return Moment(fence_until=self.timing.fence_s)

    def steps(self, at: Moment) -> Iterator[Step[Moment]]:
        if at.is_dead:
            return
        if at.now < HORIZON_S:
            yield Step("a second passes", replace(at, now=at.now + 1))
        if not self._fence(at).is_down() and at.sent < BEATS_MAX:
            beat = (at.sent + 1, at.now)
            yield Step(f"beat {at.sent + 1} is sent", replace(at, sent=at.sent + 1, beats=(*at.beats, beat)))
        yield from self._arrivals(at)
        if at.looked is None:
            yield Step(f"a look reads {at.row}", replace(at, looked=at.row))
        else:
            yield self._judged(at, at.looked)

    def _arrivals(self, at: Moment) -> Iterator[Step[Moment]]:
        for number, sent_at in at.beats:
            left = tuple(beat for beat in at.beats if beat[0] != number)
            arrived = replace(at, beats=left, row=max(at.row, number))
            yield Step(f"beat {number} arrives", replace(arrived, answers=(*at.answers, sent_at)))
            yield Step(f"beat {number} arrives, and its answer is lost", arrived)
        for sent_at in set(at.answers):
            fence = self._fence(at)
            fence.confirm(sent_at)
            rest = list(at.answers)
            rest.remove(sent_at)
            until = at.fence_until if fence.is_down() else at.now + fence.remaining_s()
            yield Step(f"the beat sent at {sent_at} is confirmed", replace(at, answers=tuple(rest), fence_until=until))

    def _judged(self, at: Moment, beat: int) -> Step[Moment]:
        """The look answers; one whose counter stood still for too long is ended if it still stands there."""
        before = {} if at.seen is None else {ME: at.seen}
        after = observe(before, {ME: beat}, monotonic=float(at.now))
        following = replace(at, looked=None, seen=after[ME])
        if not stood_still(after, self.timing, monotonic=float(at.now)) or at.row != beat:
            return Step("a look has answered", following)
        is_acting = not self._fence(at).is_down()
        return Step(
            "the session is ended",
            replace(following, is_dead=True),
            "it is ended while it may act" if is_acting else "",
        )

    def _fence(self, at: Moment) -> Fence:
        return Fence(ME, Instant(at.now), self.timing, registered_at=at.fence_until - self.timing.fence_s)


def unsafe(fence_s: float, kill_s: float) -> Timing:
    """A timing that `Timing` itself would refuse."""
    timing = Timing(beat_s=FAST_TIMING.beat_s, look_s=FAST_TIMING.look_s)
    object.__setattr__(timing, "fence_s", fence_s)
    object.__setattr__(timing, "kill_s", kill_s)
    return timing


def check(timing: Timing) -> int:
    model = BeatModel(timing)
    return explore(model.start(), model.steps, lambda _: True, states_max=400_000).states


def test_nobody_is_ended_while_it_may_act() -> None:
    assert check(FAST_TIMING) > 5_000


def test_the_check_finds_fence_and_kill_swapped() -> None:
    with pytest.raises(Violation, match="it is ended while it may act"):
        check(unsafe(fence_s=FAST_TIMING.kill_s, kill_s=FAST_TIMING.fence_s))
