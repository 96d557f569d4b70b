"""What it costs to follow jobs: processor time per status poll of each runner, and of 10,000 running jobs.

The targets are servers on loopback, in a process of their own, that answer with bytes made in advance. A command is a
real process. Lambda is not here: nothing of it is polled over a network. Run it with `python -m bench polls`.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.polls_engine import JOBS, Following, follow
from bench.polls_runners import Cost, costs
from tests.support.clock.virtual_time import run

EVERY_S: Final = 30


def main() -> None:
    with TemporaryDirectory() as folder:
        found = asyncio.run(costs(Path(folder)))
    for cost in found:
        _print(cost)
    following = run(follow(EVERY_S))
    _conclude(following, found)


def _print(cost: Cost) -> None:
    line = f"{cost.name:<15} {cost.alone_ms:>6.2f} ms of CPU, {1e3 / cost.alone_ms:>6,.0f} polls per second and core"
    if cost.listed:
        line += f"; {cost.listed} in one call {cost.list_ms:.1f} ms, {cost.list_ms / cost.listed * 1e3:.0f} us each"
    print(line, flush=True)


def _conclude(following: Following, found: list[Cost]) -> None:
    """The engine's part was measured with a target that costs nothing; the dearest runner's is added."""
    dearest = max(found, key=lambda cost: cost.alone_ms)
    calls = following.polls_per_s * dearest.alone_ms / 1e3
    whole = following.cores + calls
    print(
        f"{JOBS:,} running jobs polled every {EVERY_S} s: {following.polls_per_s:.0f} polls/s; the engine takes "
        f"{following.cores:.2f} of a core ({following.cpu_us_per_poll:.0f} us per poll), the calls one by one at most "
        f"{calls:.2f} ({dearest.name}): {whole:.2f} in all",
        flush=True,
    )
    if whole >= 1:
        raise SystemExit("following 10,000 jobs takes more than one core")


if __name__ == "__main__":
    main()
