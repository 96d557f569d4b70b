"""What an installation asks of AWS: in an hour in which nothing happens, and for each run. Counted on the wire.

Real workers, at the pace of production, on an emulator behind a proxy that counts their requests. These are counts, not
speeds: they are the same on any machine. Run it with `python -m bench.costs`, which takes ten minutes: an idle hour is
told from real minutes.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.worlds.aws_workers import PATIENCE_S, Crew, crew
from tests.support.worlds.observer import last_days, wait_until

SETTLED_AFTER_S: Final = 45.0  # readers have come down to their idle pace by then
IDLE_S: Final = 180.0
RUNS: Final = 100
AFTERWARDS_S: Final = 15.0  # until the last event was carried out and told

# What the bill calls them, and the requests that count as each.
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "DynamoDB rows written": frozenset({"PutItem", "UpdateItem", "DeleteItem"}),
    "DynamoDB rows written in transactions": frozenset({"TransactWriteItems"}),
    "DynamoDB reads": frozenset({"GetItem", "BatchGetItem", "Query"}),
    "DynamoDB Streams reads": frozenset({"GetRecords"}),
    "SQS requests": frozenset({"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"}),
    "EventBridge events": frozenset({"PutEvents"}),
    "Step Functions calls": frozenset({"StartExecution", "DescribeExecution", "ListExecutions"}),
}


class Meter:
    """Counts requests; of those that carry several rows or events, each of these."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def observe(self, operation: str, asked: bytes, _answered: bytes) -> None:
        if operation == "TransactWriteItems":
            self.count[operation] += len(json.loads(asked)["TransactItems"])
        elif operation == "PutEvents":
            self.count[operation] += len(json.loads(asked)["Entries"])
        else:
            self.count[operation] += 1

    def by_kind(self) -> dict[str, int]:
        return {kind: sum(self.count[name] for name in names) for kind, names in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Costs:
    """By kind: of an hour without anything to do, and of one run."""

    idle_hour: Mapping[str, float]
    run: Mapping[str, float]


async def measure(names: tuple[str, ...], folder: Path) -> Costs:
    meter = Meter()
    async with crew(folder, *names, timing="default", observe=meter.observe) as group:
        await wait_until(lambda: _all_have_begun(group), within_s=PATIENCE_S, workers=group.workers)
        await asyncio.sleep(SETTLED_AFTER_S)
        idle = await _during(meter, asyncio.sleep(IDLE_S))
        began = asyncio.get_running_loop().time()
        busy = await _during(meter, _live(group))
        busy_s = asyncio.get_running_loop().time() - began
    return Costs(
        idle_hour={kind: count * 3600 / IDLE_S for kind, count in idle.items()},
        run={kind: (count - idle[kind] * busy_s / IDLE_S) / RUNS for kind, count in busy.items()},
    )


async def _during(meter: Meter, what: Awaitable[None]) -> dict[str, int]:
    before = meter.by_kind()
    await what
    return {kind: count - before[kind] for kind, count in meter.by_kind().items()}


async def _live(group: Crew) -> None:
    """Runs that pass their rules at once, and whose jobs take a second and succeed."""
    runs = last_days(RUNS)
    await group.onlooker.say_ready(runs)
    await group.complete(runs)
    await asyncio.sleep(AFTERWARDS_S)


async def _all_have_begun(group: Crew) -> bool:
    return all(worker.has_logged('"session.began"') for worker in group.workers)


def main() -> None:
    with redirect_stdout(StringIO()):
        [one, two] = [_measured(names) for names in (("first",), ("first", "second"))]
    print(f"{'':38} {'an idle hour':>13} {'another worker':>15} {'a run':>7}")
    for kind in KINDS:
        more = two.idle_hour[kind] - one.idle_hour[kind]
        print(f"{kind:38} {one.idle_hour[kind]:13,.0f} {more:15,.0f} {one.run[kind]:7.1f}")


def _measured(names: tuple[str, ...]) -> Costs:
    with TemporaryDirectory() as folder:
        return asyncio.run(measure(names, Path(folder)))


if __name__ == "__main__":
    main()
