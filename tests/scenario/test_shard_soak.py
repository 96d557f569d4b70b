"""Eight workers and two hundred shards that roll over every minute, while workers crash, leave and come back.

One virtual minute here; `make chaos` makes an hour of them (SOAK_MINUTES=60).
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Final

import pytest

from consumers.streams.consumer import ReadPace
from consumers.streams.memory_budget import MEBIBYTE
from consumers.streams.settle import Counts
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import RandomFaults
from tests.support.worlds.shards import NAME, ShardWorld, Worker, name_of, region
from worker.core.errors import Rejected
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.leases import LeaseStatus
from worker.store.row_codec import decode_row
from worker.store.table import Change

MINUTES: Final = float(os.environ.get("SOAK_MINUTES", "1"))
WORKERS: Final = 8
SHARDS: Final = 200
BURSTS_PER_S: Final = 4  # to so many shards, each to several of its rows at once
BURST: Final = 6
NAMES: Final = [f"p{number}" for number in range(2_000)]
POISON: Final = frozenset({"bad", "worse"})  # what they say is refused, always
KEPT: Final = timedelta(minutes=1.5)  # so that shards are also forgotten, by the stream and then by us
SETTLED_S: Final = 60.0


async def take_time(change: Change) -> None:
    """Handling takes up to three seconds: when a worker crashes, some of a burst is done, and some is in hand."""
    await asyncio.sleep((change.position % 10) / 3)
    if name_of(change) in POISON:
        raise Rejected("not a known event")


def out_of_balance(counts: Counts) -> int:
    """What was received and is neither done, kept, given back, nor in hand."""
    return counts.received - counts.done - counts.failed - counts.parked - counts.returned - counts.in_flight


class Soak:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ShardWorld(before=take_time, pace=ReadPace(poll_s=0.5, poll_idle_s=4.0))
        self.world.spread(SHARDS)
        self.world.fake.keeps = KEPT
        by_region: dict[int, list[str]] = defaultdict(list)
        for name in NAMES:
            by_region[region(name, SHARDS)].append(name)
        self.rows = [by_region[number] for number in sorted(by_region)]  # that share a shard, and its successors
        self.workers = [self._worker(number) for number in range(WORKERS)]
        self._started = WORKERS
        self.rolled = 0

    def _worker(self, number: int) -> Worker:
        worker = self.world.start(f"w{number}")
        worker.station.tables.choose = RandomFaults(random=Random(number), lost_requests=0.005, lost_replies=0.005)
        return worker

    async def run(self, tell: Callable[[str], None]) -> None:
        for second in range(int(MINUTES * 60)):
            for rows in self.random.choices(self.rows, k=BURSTS_PER_S):
                self.world.write(*self.random.choices(rows, k=BURST))
            self.world.write(*POISON)
            for _ in range(self.random.choice([3, 3, 4])):
                self._roll()
            if second % 20 == 15:
                self._replace(is_crash=second % 40 == 15)
            self.check()
            await asyncio.sleep(1)
            if second % 60 == 59:
                tell(self.progress(second // 60 + 1))

    def progress(self, minutes: int) -> str:
        world = self.world
        return (
            f"{minutes} of {MINUTES:g} min, {time.process_time():.0f} s CPU: {len(world.handled)} handled, "
            f"{self.rolled} shards ended, {len(world.fake.shards)} known to the stream, {self._started} workers so far"
        )

    def _roll(self) -> None:
        self.rolled += 1
        self.world.fake.roll(self.random.choice(self.world.fake.open_shards()).id)

    def _replace(self, *, is_crash: bool) -> None:
        """One goes, with or without a word, and another comes."""
        leaving = self.workers.pop(0)
        if is_crash:
            leaving.station.host.crash()
        else:
            leaving.station.membership.stop()
        self.workers.append(self._worker(self._started))
        self._started += 1

    def check(self) -> None:
        """In every process, at any time, everything that was received is accounted for."""
        for worker in self.world.workers:
            for consumer in worker.consumers:
                assert out_of_balance(consumer.counts) == 0, f"{worker.station.host.name}: {consumer.counts}"
                assert consumer.counts.in_flight >= 0
                assert consumer.budget.used <= 64 * MEBIBYTE


@on_virtual_time
async def test_a_soak_of_rolling_shards_loses_nothing_keeps_order_and_accounts_for_everything(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def tell(progress: str) -> None:
        with capfd.disabled():  # an hour of this takes a while: say that it goes on, without the workers' logs
            print(progress, flush=True)

    soak = Soak(seed=1)
    await asyncio.sleep(30)
    await soak.run(tell)
    await asyncio.sleep(SETTLED_S)

    soak.check()
    world = soak.world
    assert world.group.failures() == []
    handled: dict[str, list[int]] = defaultdict(list)
    for each in world.handled:
        handled[each.name].append(each.value)
    for name in set(world.written) - POISON:
        assert list(dict.fromkeys(handled[name])) == world.written[name], name
    assert set(handled).isdisjoint(POISON)
    assert await kept(world) == sorted(value for name in POISON for value in world.written[name])
    done = [lease for lease in (await world.leases()).values() if lease.status is LeaseStatus.DONE]
    assert len(done) >= min(MINUTES, KEPT.total_seconds() / 60 - 1) * SHARDS * 0.75
    assert len(world.fake.shards) < SHARDS + soak.rolled, "the stream has forgotten some meanwhile"
    repeated = len(world.handled) - sum(len(world.written[name]) for name in set(world.written) - POISON)
    assert repeated <= 0.05 * len(world.handled), "only what was in hand when a worker crashed comes again"


async def kept(world: ShardWorld) -> list[int]:
    """What is a dead letter, by value."""
    letters = DeadLetters(world.group.store)
    limit = sum(len(world.written[name]) for name in POISON) + 1
    bodies = [decode_row(await letters.body(letter) or b"") for letter in await letters.list(NAME, limit)]
    return sorted({int(str(image["value"])) for body in bodies if isinstance(image := body["image"], dict)})
