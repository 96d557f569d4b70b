"""Random storms over three workers: whatever happens, no two act at once, and afterwards everything is held again.

Each seed is one storm: messages late, lost and out of order, workers that freeze, crash, stop and come back, clocks
that drift. The last tests show that these checks find what they are meant to find.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from tests.support.clock.virtual_time import run
from tests.support.fakes.remote_store import DROP_BEFORE, RandomFaults, always, no_faults
from tests.support.worlds.worker_group import Station, WorkerGroup, overlaps
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING, Timing

STORM_S = 45.0
CALM_S = 40.0  # a dead session is found, and the leases are read at the latest after 30 s
SHARDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    timing: Timing
    delay_max_s: float
    stall_max_s: float = 15.0


CALM_PACE = Weather(timing=DEFAULT_TIMING, delay_max_s=0.7)
FAST_PACE = Weather(timing=FAST_TIMING, delay_max_s=0.3)


async def storm(seed: int, weather: Weather) -> WorkerGroup:
    """Three workers in a storm, then a calm."""
    random, group = Random(seed), WorkerGroup(shards=SHARDS, timing=weather.timing)
    stations = [launch(group, name, random, weather) for name in ("a", "b", "c")]
    while asyncio.get_running_loop().time() < STORM_S:
        await asyncio.sleep(random.uniform(1.0, 8.0))
        struck = random.randrange(len(stations))
        stations[struck] = await strike(group, stations[struck], random, weather)
    for station in stations:
        station.tables.choose = no_faults
    await asyncio.sleep(CALM_S)
    return group


def launch(group: WorkerGroup, name: str, random: Random, weather: Weather) -> Station:
    faults = RandomFaults(
        random=Random(random.random()),
        delay_max_s=weather.delay_max_s,
        lost_requests=0.04,
        lost_replies=0.04,
        late_requests=0.02,
    )
    return group.start(name, choose=faults, rate=random.uniform(0.99, 1.01))


async def strike(group: WorkerGroup, station: Station, random: Random, weather: Weather) -> Station:
    """Let something happen to a worker; the answer is who stands in its place."""
    blow = random.choice([freeze, cut_off, crash, stop])
    return await blow(group, station, random, weather)


async def freeze(_: WorkerGroup, station: Station, random: Random, weather: Weather) -> Station:
    station.host.freeze()
    await asyncio.sleep(random.uniform(0.0, weather.stall_max_s))
    station.host.thaw()
    return station


async def cut_off(_: WorkerGroup, station: Station, random: Random, weather: Weather) -> Station:
    """It goes on, but reaches the store no more for a while."""
    before, station.tables.choose = station.tables.choose, always(DROP_BEFORE)
    await asyncio.sleep(random.uniform(0.0, weather.stall_max_s))
    station.tables.choose = before
    return station


async def crash(group: WorkerGroup, station: Station, random: Random, weather: Weather) -> Station:
    station.host.crash()
    return launch(group, station.host.name, random, weather)


async def stop(group: WorkerGroup, station: Station, random: Random, weather: Weather) -> Station:
    station.membership.stop()
    return launch(group, station.host.name, random, weather)


def idle_shards(group: WorkerGroup) -> frozenset[str]:
    """What nobody works on at the end."""
    return group.shards - group.acting(since=STORM_S + CALM_S - 2).keys()


@pytest.mark.parametrize("weather", [CALM_PACE, FAST_PACE], ids=["default", "fast"])
@pytest.mark.parametrize("block", range(6 if os.environ.get("CHAOS_ROUNDS") else 3))
def test_no_two_act_at_once_and_everything_is_held_again_after_any_storm(block: int, weather: Weather) -> None:
    for seed in range(block * 10, (block + 1) * 10):
        group = run(storm(seed, weather))

        assert group.failures() == [], f"seed {seed}"
        assert overlaps(group.acts) == [], f"seed {seed}"
        assert idle_shards(group) == frozenset(), f"seed {seed}"


# --- the checks can fail ----------------------------------------------------------------------------------------------


class Unchecked(Timing):
    """A timing that nobody should use."""

    def __post_init__(self) -> None:
        return


def first_bad_seed(weather: Weather, is_bad: Callable[[WorkerGroup], object], seeds: int) -> int | None:
    return next((seed for seed in range(seeds) if is_bad(run(storm(seed, weather)))), None)


def test_a_group_that_judges_the_dead_too_early_is_caught() -> None:
    hasty = Unchecked(beat_s=2.0, fence_s=7.0, kill_s=4.0, look_s=2.0)

    found = first_bad_seed(Weather(timing=hasty, delay_max_s=0.7), lambda group: overlaps(group.acts), seeds=120)

    assert found is not None


def test_a_group_that_never_judges_anyone_is_caught() -> None:
    lenient = Unchecked(beat_s=2.0, fence_s=5.0, kill_s=10_000.0, look_s=2.0)

    found = first_bad_seed(Weather(timing=lenient, delay_max_s=0.7), idle_shards, seeds=20)

    assert found is not None
