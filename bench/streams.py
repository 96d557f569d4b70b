"""Reading full shards: our adapters beside a plain loop on aiobotocore and async-kinesis, on the same local server.

The server gives fixed answers of a thousand records, so what is measured is the client. Run it with
`python -m bench.streams`. The peer is installed into an environment of its own the first time. Idle shards are
measured on the fake of DynamoDB Streams and on virtual time, with the consumer and the coordinator that are shipped.
"""

import asyncio
import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

from bench.fixedanswers import fixed_answers
from bench.streamanswers import dynamodb_answers, kinesis_answers
from consumers.stream import Pace
from tests.shardworld import ShardWorld
from tests.virtualtime import run
from worker.core.keys import LEASE

PEERS: Final = Path(__file__).parents[1] / ".venv" / "peers-streams"
PEER: Final = "async-kinesis==3.0.1"
CHILD_S: Final = 300
ROUNDS: Final = 2
IDLE_SHARDS: Final = 10
IDLE_MINUTES: Final = 30
SHARDS_WRITTEN_ABOUT: Final = 100

Figures = Mapping[str, float]


def best(module: str, *arguments: str, python: str = sys.executable) -> Figures:
    """The best of some rounds: whatever else the machine does only ever makes one slower."""
    rounds = [_answer(python, "-m", module, *arguments) for _ in range(ROUNDS)]
    keys = rounds[0]
    return {key: (max if key.endswith("cpu_s") else min)(each[key] for each in rounds) for key in keys}


def peer_python() -> str | None:
    """None if the peer cannot be installed here."""
    python = PEERS / "bin" / "python"
    try:
        if not python.exists():
            venv.create(PEERS, with_pip=True)
        _run(str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", PEER)
    except subprocess.CalledProcessError:
        return None
    return str(python)


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
    world = ShardWorld(pace=Pace(poll_s=60, poll_idle_s=60))  # reading writes nothing, however often
    world.spread(SHARDS_WRITTEN_ABOUT)
    world.start("a")
    await asyncio.sleep(600)
    written = await world.writes_during(3600)
    return written[LEASE] / SHARDS_WRITTEN_ABOUT, written.total() - written[LEASE]


def _answer(*command: str) -> Figures:
    return json.loads(_run(*command).splitlines()[-1])


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=PEERS.parents[1], check=True, capture_output=True, text=True, timeout=CHILD_S)
    return done.stdout


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
        plain = best("bench.streams_worker", "plain-dynamodb", url)
        _print("DynamoDB Streams", best("bench.streams_worker", "our-dynamodb", url), {"plain aiobotocore": plain})
    with fixed_answers(kinesis_answers()) as url:
        peers = {"plain aiobotocore": best("bench.streams_worker", "plain-kinesis", url)}
        if (python := peer_python()) is None:
            print(f"{PEER} could not be installed here: nothing to compare with")
        else:
            peers[PEER] = best("bench.streams_asynckinesis", url, python=python)
        _print("Kinesis", best("bench.streams_worker", "our-kinesis", url), peers)
    with redirect_stdout(StringIO()):  # what the worker logs
        calls = run(idle_calls_per_shard_minute())
        of_shard, of_worker = run(idle_writes_per_hour())
    print(f"an idle shard costs {calls:.1f} calls a minute (target: 30)")
    print(
        f"an hour costs {of_shard:g} writes for an idle shard (target: 0), {of_worker:,g} for a worker (target: 1,800)"
    )


if __name__ == "__main__":
    main()
