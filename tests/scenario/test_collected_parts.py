"""Many objects, one period: one start once they are complete, and late data for whatever changes afterwards.

CHAOS_ROUNDS asks for 10,000 parts instead of a few hundred.
"""

import asyncio
import os
from collections import deque
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest

from consumers.inbox.collector import Collector
from consumers.inbox.consumer import SensorInbox
from consumers.inbox.rules import Rules
from consumers.inbox.rules_file import rules_of
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.objects import FakeObjects
from tests.support.fakes.remote_store import FaultyTables, RandomFaults
from tests.support.worlds.engine import DAY, World, a_world, run_key
from tests.support.worlds.inbox import an_object, message, notification
from worker.core.collect.collection import CollectedPart, add_parts
from worker.core.collect.collection import Collection as Parts
from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import State
from worker.store.repos.delivery.inbox_ledger import InboxLedger, Known, LedgerEntry
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections
from worker.store.repos.run_data import RunData
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables

MANY: Final = 10_000 if os.environ.get("CHAOS_ROUNDS") else 300
ORDERS: Final = PipelineId("orders")
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: parts, check: equals, field: complete, value: true}
validation:
  rules: [{key: parts, check: gte, field: count, value: 1}]
job:
  type: command
  config: {command: "true"}
"""
RULES: Final = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: COLLECT
"""


def rules(collect: str) -> Rules:
    return rules_of(RULES.replace("COLLECT", collect))


def part(number: int, etag: str = "", sequencer: str = "01") -> dict[str, Any]:
    return an_object(f"orders/{DAY}/part-{number}.csv", etag or f"e{number}", sequencer)


class Inbox:
    """An inbox and its checks, which end with the block as after a crash."""

    def __init__(self, world: World, collect: str, tables: Tables | None = None) -> None:
        self.objects = FakeObjects()
        self.inbox = SensorInbox(tables or world.tables, rules(collect), world.clock, self.objects)
        self._numbers = iter(range(10**6))

    async def __aenter__(self) -> "Inbox":
        self._checks = asyncio.get_running_loop().create_task(self.collector.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._checks.cancel()
        await asyncio.wait([self._checks])

    @property
    def collector(self) -> Collector:
        return self.inbox.collector

    async def arrive(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            await self.inbox.handle(message(notification(each), message_id=f"m{next(self._numbers)}"))


async def sensor(world: World) -> dict[str, Json]:
    found = await Sensors(world.tables).get(ORDERS, f"parts#{DAY}")
    assert found is not None
    return dict(found.data)


async def started_on(world: World) -> dict[str, Json]:
    found = (await RunData(world.tables).inputs([run_key(DAY)]))[run_key(DAY)].inputs[f"parts#{DAY}"].data
    assert found is not None
    return dict(found)


# --- when they are complete -------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_job_starts_once_with_the_last_of_a_number_of_parts() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    async with world.worker(), Inbox(world, "{until: {count: 3}}") as inbox:
        await inbox.arrive(part(2), part(1), part(2))
        await world.wait(minutes=2)
        assert await world.run() is None
        assert (await sensor(world))["missing"] == 1, "the last progress is shown although no part follows"
        await inbox.arrive(part(3))
        await world.settle()

        assert await world.state() is State.POLLING
        inputs = await started_on(world)
        assert [inputs[name] for name in ("complete", "count", "bytes", "missing")] == [True, 3, 36, 0]
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_parts_whose_notifications_follow_that_of_the_marker_belong_to_the_first_start() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    collect = '{until: {object: "orders/${date}/_SUCCESS"}}'
    async with world.worker(), Inbox(world, collect) as inbox:
        await inbox.arrive(part(1), an_object(f"orders/{DAY}/_SUCCESS", "s", "09"))
        await world.wait(seconds=3)
        await inbox.arrive(part(2))
        await world.wait(seconds=4)
        assert await world.run() is None
        await world.wait(seconds=4)

        assert await world.state() is State.POLLING
        assert (await started_on(world))["count"] == 2
        world.runner.finish()
        await world.wait(minutes=2)
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_manifest_decides_in_whatever_order_it_arrives() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    collect = '{until: {manifest: "orders/${date}/manifest.json"}}'
    listed = ",".join(f'{{"url": "s3://landing/orders/{DAY}/part-{number}.csv"}}' for number in range(150))
    manifest = an_object(f"orders/{DAY}/manifest.json", "m1", "01")
    async with world.worker(), Inbox(world, collect) as inbox:
        inbox.objects.put("landing", f"orders/{DAY}/manifest.json", f'{{"entries": [{listed}]}}'.encode())
        await inbox.arrive(*(part(number) for number in range(75)), manifest, manifest)
        await world.settle()
        assert await world.run() is None
        await inbox.arrive(*(part(number) for number in range(75, 150)))
        await world.settle()

        assert await world.state() is State.POLLING
        assert (await started_on(world))["reason"] == "all 150 parts of the manifest arrived"


@on_virtual_time
async def test_a_manifest_that_cannot_be_read_is_a_dead_letter_that_says_what_to_do() -> None:
    world = await a_world()
    async with Inbox(world, '{until: {manifest: "orders/${date}/m.json"}}') as inbox:
        for body in (b"{", b"{}", b'[{"size": 3}]', b'["s3://elsewhere/a"]'):
            inbox.objects.put("landing", f"orders/{DAY}/m.json", body)
            with pytest.raises(Rejected, match="write a JSON list of keys"):
                await inbox.arrive(an_object(f"orders/{DAY}/m.json", "m1", "01"))


@on_virtual_time
async def test_quiet_time_survives_a_restart_and_is_counted_from_the_last_part() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    collect = "{until: {quiet: 10m}}"
    async with world.worker():
        async with Inbox(world, collect) as inbox:
            await inbox.arrive(part(1))
            await world.wait(minutes=9)
            await inbox.arrive(part(2))
        await world.wait(minutes=9)  # nobody is there
        async with Inbox(world, collect):
            await world.wait(seconds=50)
            assert await world.run() is None
            await world.wait(seconds=30)
            assert await world.state() is State.POLLING
    assert (await started_on(world))["count"] == 2


@pytest.mark.parametrize("restarts", [False, True])
@on_virtual_time
async def test_a_clock_that_is_set_back_delays_a_quiet_period_by_no_more_than_itself(*, restarts: bool) -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    collect = "{until: {quiet: 5m}}"
    async with world.worker():
        async with Inbox(world, collect) as inbox:
            await inbox.arrive(part(1))
            await world.wait(minutes=1)
            world.clock.step(timedelta(hours=-1))
            if not restarts:
                await world.wait(minutes=7)
        if restarts:
            async with Inbox(world, collect):
                await world.wait(minutes=7)

        assert (await sensor(world))["complete"] is True


@on_virtual_time
async def test_quiet_time_that_ended_while_nobody_was_there_completes_the_period_at_the_restart() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    async with world.worker():
        async with Inbox(world, "{until: {quiet: 10m}}") as inbox:
            await inbox.arrive(part(1))
        await world.wait(hours=5)
        async with Inbox(world, "{until: {quiet: 10m}}"):
            await world.settle()
            assert await world.state() is State.POLLING


@on_virtual_time
async def test_after_the_latest_time_the_sensor_says_what_is_missing() -> None:
    world = await a_world()
    async with Inbox(world, "{until: {count: 3}, latest: 6h}") as inbox:
        await inbox.arrive(part(1))
        await world.wait(hours=6, seconds=1)

        told = await sensor(world)
        assert (told["complete"], told["reason"]) == (False, "incomplete 6h after the first object: 2 of 3 parts")


# --- what comes later -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [part(3), part(1, "changed", "02")], ids=["another part", "a changed part"])
@pytest.mark.parametrize("runs", [True, False], ids=["under the job", "after the job"])
@on_virtual_time
async def test_a_late_or_changed_part_is_late_data(late: dict[str, Any], *, runs: bool) -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    async with world.worker(), Inbox(world, "{until: {count: 2}}") as inbox:
        await inbox.arrive(part(1), part(2))
        await world.settle()
        if not runs:
            world.runner.finish()
            await world.wait(minutes=2)
        await inbox.arrive(late, late)
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        world.runner.finish()
        await world.wait(minutes=2)

    run, events = await world.run(), await world.events()
    assert run is not None
    assert (run.state, run.attempt) == (State.COMPLETED, 2)
    assert events.count("LATE_DATA_ARRIVAL") == 1
    assert (await started_on(world))["digest"] == (await sensor(world))["digest"]


@on_virtual_time
async def test_what_was_in_the_bucket_before_the_inbox_is_not_collected() -> None:
    world = await a_world()
    entry = LedgerEntry("landing", f"orders/{DAY}/part-1.csv", "parts")
    await InboxLedger(world.tables).add(entry, Known(etag="e1"), world.clock.now())
    async with Inbox(world, "{until: {count: 2}}") as inbox:
        await inbox.arrive(part(1), part(2))

    assert (await sensor(world))["count"] == 1


# --- many parts, two workers, crashes ---------------------------------------------------------------------------------


class Chaos:
    """A queue that delivers at least once, and workers that crash in the middle of what they handle."""

    def __init__(self, world: World, seed: int) -> None:
        self.random, self._world = Random(seed), world
        objects = [part(number) for number in range(MANY)]
        repeats = self.random.sample(objects, MANY // 5)
        self.queue = deque(self.random.sample([*objects, *repeats], len(objects) + len(repeats)))
        self.crashes = 0

    async def work(self, name: str) -> None:
        """Handle messages until none is left; the worker crashes now and then and starts anew."""
        while self.queue:
            faults = RandomFaults(
                random=Random(f"{name}{self.crashes}"), delay_max_s=0.1, lost_requests=0.02, lost_replies=0.02
            )
            tables = FaultyTables(self._world.tables, faults, patience_s=0.5)
            async with Inbox(self._world, f"{{until: {{count: {MANY}}}}}", tables) as inbox:
                hands = [asyncio.get_running_loop().create_task(self._handle(inbox)) for _ in range(16)]
                await asyncio.wait(hands, timeout=self.random.uniform(0.2, 2.0))
                self.crashes += sum(hand.cancel() for hand in hands) > 0
                await asyncio.wait(hands)
                for hand in hands:
                    assert hand.cancelled() or hand.exception() is None

    async def _handle(self, inbox: Inbox) -> None:
        while self.queue:
            each = self.queue.popleft()
            try:
                await inbox.arrive(each)
            except RetryLater:
                self.queue.append(each)
            except asyncio.CancelledError:
                self.queue.append(each)
                raise


@on_virtual_time
async def test_many_parts_in_any_order_with_repeats_from_two_workers_that_crash_are_one_start() -> None:
    world = await a_world()
    await world.deploy(CONFIG)
    chaos = Chaos(world, seed=21)
    async with world.worker():
        await asyncio.gather(chaos.work("one"), chaos.work("two"))
        async with Inbox(world, f"{{until: {{count: {MANY}}}}}"):
            await world.wait(minutes=1)
        for number in range(MANY // 500):  # the world's reader reads a thousand changes for each commit it hears of
            await world.write("other", number=number)
            await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)

    key = CollectionKey(rule="parts", pipeline=ORDERS, sensor=f"parts#{DAY}")
    kept = [each async for each in PartCollections(world.tables).parts(key)]
    inputs, run = await started_on(world), await world.run()
    wanted = [
        CollectedPart(key=f"orders/{DAY}/part-{number}.csv", etag=f"e{number}", size=12) for number in range(MANY)
    ]
    assert chaos.crashes >= 5
    assert run is not None
    assert (run.state, run.attempt, len(world.runner.starts)) == (State.COMPLETED, 1, 1)
    assert (inputs["count"], inputs["bytes"]) == (MANY, MANY * 12)
    assert inputs["digest"] == add_parts(Parts(), {}, wanted, world.clock.now()).collection.digest
    assert {each.key for each in kept} == {each.key for each in wanted}
    assert all(each.version <= int(str(inputs["version"])) for each in kept)
