"""Liveness: who is alive, judged by durations on one machine; no two clocks are compared.

A worker stops acting by itself `fence_s` after it *sent* the last heartbeat that was confirmed. Another worker
considers it dead `kill_s` after it first *saw* that heartbeat, which cannot have been earlier. `kill_s` is longer, by
more than two clocks can drift apart in that time. So the first worker has stopped before the second one takes over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from worker.core.errors import ConfigError
from worker.core.model.keys import SessionId

DRIFT_MAX: Final = 0.05  # far above the drift of any real clock, or of a virtual machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timing: the intervals of a group. All its workers must use the same. Raises `ConfigError` if unsafe."""

    beat_s: float = 2.0  # between two heartbeats
    fence_s: float = 5.0  # stop acting after so long without a confirmed heartbeat
    kill_s: float = 7.0  # a session whose counter did not change for so long is dead
    look_s: float = 2.0  # between two reads of the other sessions
    stall_s: float = 15.0  # a loop that has not ticked for so long does no work: let another worker take over

    def __post_init__(self) -> None:
        if min(self.beat_s, self.look_s) <= 0:
            raise ConfigError(f"beat and look intervals must be above zero, not {self.beat_s} s and {self.look_s} s")
        if self.fence_s <= 2 * self.beat_s:
            raise ConfigError(
                f"self-fence after {self.fence_s} s leaves no time for a second try: make it more than twice the "
                f"beat of {self.beat_s} s"
            )
        least_s = self.fence_s * (1 + 2 * DRIFT_MAX)
        if self.kill_s <= least_s:
            raise ConfigError(
                f"a worker may still act when others judge it dead after {self.kill_s} s: make that more than "
                f"{least_s:g} s, or the self-fence of {self.fence_s} s shorter"
            )

    @property
    def pace(self) -> str:
        """Return the part of the timing that all workers must share: heartbeat, fence and kill times."""
        return f"{self.beat_s:g}/{self.fence_s:g}/{self.kill_s:g}"


DEFAULT_TIMING: Final = Timing()
FAST_TIMING: Final = Timing(beat_s=1.0, fence_s=3.0, kill_s=4.0, look_s=1.0)
_NAMES: Final = {DEFAULT_TIMING.pace: "default", FAST_TIMING.pace: "fast"}


def name_of_pace(pace: str) -> str:
    """Return the name of the setting for this pace, or the pace itself."""
    return _NAMES.get(pace, pace)


def kill_s_of(pace: str) -> float:
    """Return after how long workers of this pace consider another dead; 0 if the text is no pace."""
    try:
        return float(pace.split("/")[2])
    except (IndexError, ValueError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """Holds a counter value and when this worker first saw it, on its own monotonic clock."""

    beat: int
    since: float


Sightings: TypeAlias = Mapping[SessionId, Sighting]


def observe(before: Sightings, beats: Mapping[SessionId, int], *, monotonic: float) -> Sightings:
    """Return the sightings after one more read. Take `monotonic` *after* the read has answered."""
    return {
        session: seen if (seen := before.get(session)) and seen.beat == beat else Sighting(beat, monotonic)
        for session, beat in beats.items()
    }


def stood_still(seen: Sightings, timing: Timing, *, monotonic: float) -> list[SessionId]:
    """Return the sessions whose counter has not changed for too long."""
    return [session for session, sighting in seen.items() if monotonic - sighting.since >= timing.kill_s]


def next_look_s(seen: Sightings, timing: Timing, *, monotonic: float) -> float:
    """Return when to read again: after `look_s`, or sooner if a session will be dead by then."""
    verdicts = [sighting.since + timing.kill_s - monotonic for sighting in seen.values()]
    soonest = min(verdicts, default=timing.look_s)
    return min(timing.look_s, max(soonest, timing.look_s / 10))
