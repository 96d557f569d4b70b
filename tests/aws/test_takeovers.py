"""Readers of a stream that die one after another, as real processes on an emulator: each time another goes on in time.

CHAOS_ROUNDS asks for many more deaths than the one below, and at the pace of production: then the slowest of a hundred
counts.
"""

import asyncio
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from tests.support.worlds.aws_load import goes_on, under_load
from tests.support.worlds.aws_workers import Crew, crew
from tests.support.worlds.observer import last_hours
from worker.core.model.keys import RunKey

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
DEATHS: Final = max(1, CHAOS_ROUNDS // 5)
TIMING: Final = "default" if CHAOS_ROUNDS else "fast"
TAKEN_OVER_WITHIN_S: Final = 10.0
RUNS_EACH: Final = 80  # more sensors than are said before one death and until the next
ROUND_MAX_S: Final = 60

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(240 + ROUND_MAX_S * DEATHS)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """`late_s`: how late our own naps were until the other went on. So late was the other, too."""

    took_s: float
    late_s: float
    said: Sequence[RunKey]  # the runs that were asked for meanwhile


async def strike(group: Crew, runs: Sequence[RunKey], chance: random.Random) -> Death:
    """Kill whoever reads, and wait until the other goes on."""
    reader, other = await group.reader_and_other()
    async with under_load(group, runs) as load:
        await asyncio.sleep(chance.uniform(0, 2))  # anywhere between two of its beats
        killed_at, load.late_s = datetime.now(UTC), 0.0
        reader.kill()
        took = await goes_on([other], killed_at)
        late_s = load.late_s
    return Death(took_s=took.total_seconds(), late_s=late_s, said=load.said)


async def test_whenever_the_reader_of_a_stream_is_killed_another_goes_on_and_nothing_is_lost_or_done_twice(
    tmp_path: Path,
) -> None:
    chance, hours = random.Random(DEATHS), last_hours(RUNS_EACH * DEATHS)
    deaths: list[Death] = []
    async with crew(tmp_path, "w0", "w1", timing=TIMING) as group:
        for number in range(DEATHS):
            deaths.append(await strike(group, hours[number * RUNS_EACH : (number + 1) * RUNS_EACH], chance))
            print(f"death {number}: taken over in {deaths[-1].took_s:.1f} s", flush=True)
            if number + 1 < DEATHS:
                group.recruit(f"w{number + 2}")

        took_s, said = [death.took_s for death in deaths], [key for death in deaths for key in death.said]
        print(f"{DEATHS} deaths, {len(said)} runs: p50 {median(took_s):.1f} s, p99 {percentile(took_s, 0.99):.1f} s")
        await group.complete(said)
        await group.assert_each_ran_once(said)
        assert percentile([death.took_s - death.late_s for death in deaths], 0.99) < TAKEN_OVER_WITHIN_S
