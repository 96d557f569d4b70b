"""Who is alive, judged by durations on one machine only: no two clocks are ever compared.

A worker stops acting by itself `fence_s` after it *sent* the last beat that was confirmed. Another judges it dead
`kill_s` after it first *saw* that beat, which cannot have been earlier. Since `kill_s` is longer, by more than two
clocks may drift apart meanwhile, the one has stopped before the other begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from worker.core.errors import ConfigError
from worker.core.model.keys import SessionId

DRIFT_MAX: Final = 0.05  # far beyond any real clock, and beyond what a virtual machine makes of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The pace of a group. All workers of a group must agree on it. Raises `ConfigError` if it is not safe."""

    beat_s: float = 2.0  # from one beat to the next
    fence_s: float = 5.0  # without a confirmed beat for so long, stop acting
    kill_s: float = 7.0  # a counter that stood still for so long belongs to the dead
    look_s: float = 2.0  # from one look at the others to the next
    stall_s: float = 15.0  # a loop that has not ticked for so long does no work: let another take over

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
        """What the others must have as well: how fast it beats, stops acting, and takes another for dead."""
        return f"{self.beat_s:g}/{self.fence_s:g}/{self.kill_s:g}"


DEFAULT_TIMING: Final = Timing()
FAST_TIMING: Final = Timing(beat_s=1.0, fence_s=3.0, kill_s=4.0, look_s=1.0)
_NAMES: Final = {DEFAULT_TIMING.pace: "default", FAST_TIMING.pace: "fast"}


def name_of_pace(pace: str) -> str:
    """Return what a person sets to get this pace, or the pace itself."""
    return _NAMES.get(pace, pace)


def kill_s_of(pace: str) -> float:
    """Return after how long workers of this pace take another for dead; 0 if it is no pace."""
    try:
        return float(pace.split("/")[2])
    except (IndexError, ValueError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """A counter as we first saw it at that value, on our own monotonic clock."""

    beat: int
    since: float


Sightings: TypeAlias = Mapping[SessionId, Sighting]


def observe(before: Sightings, beats: Mapping[SessionId, int], *, monotonic: float) -> Sightings:
    """What we have seen of the others after one more look. `monotonic` is read *after* the look has answered."""
    return {
        session: seen if (seen := before.get(session)) and seen.beat == beat else Sighting(beat, monotonic)
        for session, beat in beats.items()
    }


def stood_still(seen: Sightings, timing: Timing, *, monotonic: float) -> list[SessionId]:
    """Whose counter has not moved for too long."""
    return [session for session, sighting in seen.items() if monotonic - sighting.since >= timing.kill_s]


def next_look_s(seen: Sightings, timing: Timing, *, monotonic: float) -> float:
    """When to look again: as usual, or the moment someone will have stood still for too long, if that is sooner."""
    verdicts = [sighting.since + timing.kill_s - monotonic for sighting in seen.values()]
    soonest = min(verdicts, default=timing.look_s)
    return min(timing.look_s, max(soonest, timing.look_s / 10))
