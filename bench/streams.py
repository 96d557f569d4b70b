"""Reading full shards: our adapters beside a plain loop on aiobotocore, async-kinesis and the KCL.

The server gives fixed answers of a thousand records, so what is measured is the client; the KCL needs an emulator, see
`bench/streams_kcl.py`. Run it with `python -m bench streams`. Peers are installed into an environment of their own the
first time. Idle shards are measured on the fake of DynamoDB Streams and on virtual time, with the consumer and the
coordinator that are shipped.
"""

import asyncio
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Final

from bench.children import Contestant, Figures, best_of_each, python_with
from bench.fixedanswers import fixed_answers
from bench.streamanswers import dynamodb_answers, kinesis_answers
from bench.streams_kcl import KCL, PEERS, Missing, compare
from consumers.streams.consumer import ReadPace
from tests.support.clock.virtual_time import run
from tests.support.worlds.shards import ShardWorld
from worker.core.model.keys import LEASE

OURS: Final = "ours"
PLAIN: Final = "plain aiobotocore"
PEER: Final = "async-kinesis==3.0.1"
IDLE_SHARDS: Final = 10
IDLE_MINUTES: Final = 30
SHARDS_WRITTEN_ABOUT: Final = 100


async def idle_calls_per_shard_minute() -> float:
    world = ShardWorld()
    world.spread(IDLE_SHARDS)
    world.start("a")
    await asyncio.sleep(120)
    world.fake.calls.clear()
    await asyncio.sleep(60 * IDLE_MINUTES)
    return sum(world.fake.calls.values()) / IDLE_SHARDS / IDLE_MINUTES


async def idle_writes_per_hour() -> tuple[float, float]:
    """Of one shard, and of one worker for all that it has."""
    world = ShardWorld(pace=ReadPace(poll_s=60, poll_idle_s=60))  # reading writes nothing, however often
    world.spread(SHARDS_WRITTEN_ABOUT)
    world.start("a")
    await asyncio.sleep(600)
    written = await world.writes_during(3600)
    return written[LEASE] / SHARDS_WRITTEN_ABOUT, written.total() - written[LEASE]


def _reader(name: str, url: str) -> Contestant:
    return Contestant("bench.streams_worker", (name, url))


def _compare(stream: str, contestants: Mapping[str, Contestant]) -> None:
    figures = best_of_each(contestants)
    _print(stream, figures.pop(OURS), figures)


def _print(stream: str, ours: Figures, peers: Mapping[str, Figures]) -> None:
    print(f"{stream}: {ours['records_per_cpu_s']:,.0f} records per CPU second (target: 25,000)")
    for name, figures in peers.items():
        ratio = ours["records_per_cpu_s"] / figures["records_per_cpu_s"]
        print(f"  beside {name}: {ratio:.1f} times ({figures['records_per_cpu_s']:,.0f})")
    print(
        f"  one full answer holds the loop up for {ours['stall_median_ms']:.1f} ms of CPU, "
        f"p95 {ours['stall_p95_ms']:.1f} ms (target: 25)",
        flush=True,
    )


def main() -> None:
    with fixed_answers(dynamodb_answers()) as url:
        _compare("DynamoDB Streams", {OURS: _reader("our-dynamodb", url), PLAIN: _reader("plain-dynamodb", url)})
    with fixed_answers(kinesis_answers()) as url:
        contestants = {OURS: _reader("our-kinesis", url), PLAIN: _reader("plain-kinesis", url)}
        if (python := python_with(PEERS, PEER)) is None:
            print(f"{PEER} could not be installed here: nothing to compare with")
        else:
            contestants[PEER] = Contestant("bench.streams_asynckinesis", (url,), python)
        _compare("Kinesis", contestants)
    try:
        ours, kcl = compare()
    except Missing as missing:
        print(f"no comparison with the KCL: {missing}")
    else:
        _print("Kinesis, on an emulator", ours, {KCL: kcl})
    with redirect_stdout(StringIO()):  # what the worker logs
        calls = run(idle_calls_per_shard_minute())
        of_shard, of_worker = run(idle_writes_per_hour())
    print(f"an idle shard costs {calls:.1f} calls a minute (target: 30)")
    print(
        f"an hour costs {of_shard:g} writes for an idle shard (target: 0), {of_worker:,g} for a worker (target: 1,800)"
    )


if __name__ == "__main__":
    main()
