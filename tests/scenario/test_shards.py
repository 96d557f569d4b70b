"""A stream of shards that workers share: parents before children, whatever becomes of either."""

import asyncio
import itertools
from datetime import timedelta

from structlog.testing import capture_logs

from consumers.streams.consumer import Beginning, ReadPace
from consumers.streams.memory_budget import MEBIBYTE
from consumers.streams.sharded import AUDIT_EVERY_S
from consumers.streams.source import Gap
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, NO_FAULT, Fault, Operation
from tests.support.worlds.shards import NAME, ShardWorld
from tests.support.worlds.worker_group import GROUP
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.keys import group_pk, lease_sk
from worker.membership.lease_coordinator import Siblings
from worker.store.repos.leases import LeaseStatus
from worker.store.table import Change, Delete, Key, TableName

SETTLED_S = 15.0
KEPT = timedelta(minutes=20)  # by a stream that has little patience


def done(leases: Siblings) -> set[str]:
    return {shard for shard, lease in leases.items() if lease.status is LeaseStatus.DONE}


@on_virtual_time
async def test_a_stream_that_rolls_over_again_and_again_is_read_in_order_and_to_its_end() -> None:
    world = ShardWorld()
    world.start("a")
    await asyncio.sleep(SETTLED_S)
    for _ in range(5):
        world.write("orders", "sales")
        await asyncio.sleep(1)
        world.fake.roll(world.open_shard("orders"))
        world.write("orders", "sales")
    await asyncio.sleep(SETTLED_S)

    assert world.values("orders") == world.written["orders"]
    assert world.values("sales") == world.written["sales"]
    assert len(done(await world.leases())) == 5
    assert len(world.handled) == len(set(world.handled)) == 20, "nothing is handled twice when nothing goes wrong"


@on_virtual_time
async def test_a_child_waits_for_its_parent_however_many_workers_there_are() -> None:
    world = ShardWorld()
    held_back = asyncio.Event()

    async def wait_for_first(change: Change) -> None:
        if change.image is not None and change.image["value"] == 1:
            await held_back.wait()

    world.before = wait_for_first
    world.write("orders")
    world.fake.split(world.open_shard("orders"))
    world.write("orders")
    for name in ("a", "b", "c"):
        world.start(name)
    await asyncio.sleep(30)
    assert world.values("orders") == []
    assert done(await world.leases()) == set()

    held_back.set()
    await asyncio.sleep(SETTLED_S)
    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_shards_are_shared_and_those_of_a_dead_worker_are_read_by_others_within_ten_seconds() -> None:
    world = ShardWorld()
    world.spread(6)
    a, b, c = (world.start(name) for name in "abc")
    await asyncio.sleep(200)
    assert sorted(len(worker.shards) for worker in (a, b, c)) == [2, 2, 2]

    a.station.host.crash()
    names = [f"p{number}" for number in range(30)]
    world.write(*names)
    await asyncio.sleep(10)

    assert {name: world.values(name) for name in names} == {name: world.written[name] for name in names}
    assert b.shards | c.shards == set(world.fake.shards)


@on_virtual_time
async def test_a_shard_that_ends_before_its_children_are_known_is_kept_and_ended_with_them() -> None:
    world = ShardWorld()
    world.start("a")
    await asyncio.sleep(SETTLED_S)
    world.write("orders")
    parent = world.open_shard("orders")
    child = world.fake.roll(parent)
    world.fake.hidden[child.id] = 11  # more listings than are tried at once
    world.write("orders")
    await asyncio.sleep(60)
    assert (await world.leases())[parent].status is LeaseStatus.ENDED
    assert set(await world.leases()) == {parent}

    await asyncio.sleep(AUDIT_EVERY_S + SETTLED_S)

    assert done(await world.leases()) == {parent}
    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_a_worker_that_dies_while_it_waits_for_children_leaves_them_to_the_next() -> None:
    world = ShardWorld()
    a = world.start("a")
    await asyncio.sleep(SETTLED_S)
    parent = world.open_shard("orders")
    child = world.fake.roll(parent)
    world.fake.hidden[child.id] = 12
    world.write("orders")
    await asyncio.sleep(30)
    assert (await world.leases())[parent].status is LeaseStatus.ENDED

    a.station.host.crash()
    world.start("b")
    await asyncio.sleep(AUDIT_EVERY_S)

    assert done(await world.leases()) == {parent}
    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_a_worker_that_stops_leaves_it_to_the_next_to_ask_for_children() -> None:
    world = ShardWorld()
    a = world.start("a")
    await asyncio.sleep(SETTLED_S)
    parent = world.open_shard("orders")
    child = world.fake.roll(parent)
    world.fake.hidden[child.id] = 100
    before = world.fake.calls["DescribeStream"]
    await asyncio.sleep(3)
    asked = world.fake.calls["DescribeStream"]

    a.station.membership.stop()
    await asyncio.sleep(SETTLED_S)

    assert before < asked < before + 8, "it is in the middle of asking"
    assert world.fake.calls["DescribeStream"] - asked <= 1


@on_virtual_time
async def test_an_open_parent_with_a_child_is_read_to_its_end_first() -> None:
    world = ShardWorld()
    world.write("orders")
    parent = world.open_shard("orders")
    world.fake.roll(parent, is_seen=False)
    world.write("orders")

    world.start("a")
    await asyncio.sleep(SETTLED_S)

    assert world.values("orders") == world.written["orders"]
    assert done(await world.leases()) == {parent}


@on_virtual_time
async def test_the_last_shard_of_a_disabled_stream_is_read_and_has_no_children() -> None:
    world = ShardWorld()
    world.start("a")
    await asyncio.sleep(SETTLED_S)
    world.write("orders")
    last = world.open_shard("orders")
    world.fake.disable()

    await asyncio.sleep(AUDIT_EVERY_S + 60)

    lease = (await world.leases())[last]
    assert (lease.status, lease.children) == (LeaseStatus.DONE, frozenset())
    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_a_shard_without_children_is_done_when_its_stream_forgets_it() -> None:
    world = ShardWorld()
    world.fake.keeps = KEPT
    world.start("a")
    await asyncio.sleep(SETTLED_S)
    last = world.open_shard("orders")
    world.fake.close(last)
    await asyncio.sleep(60)
    assert (await world.leases())[last].status is LeaseStatus.ENDED

    await asyncio.sleep(KEPT.total_seconds() + 2 * AUDIT_EVERY_S)

    assert (await world.leases())[last].status is LeaseStatus.DONE


@on_virtual_time
async def test_one_finished_lease_that_cannot_be_cleared_away_keeps_no_other() -> None:
    world = ShardWorld()
    world.fake.keeps = KEPT
    worker = world.start("a")
    await asyncio.sleep(SETTLED_S)
    for _ in range(20):
        world.fake.roll(world.open_shard("orders"))
        await asyncio.sleep(SETTLED_S)
    await asyncio.sleep(60)
    assert len(done(await world.leases())) == 20

    commits = itertools.count(1)

    def every_fourth_commit_is_lost(operation: Operation) -> Fault:
        return DROP_BEFORE if operation is Operation.COMMIT and next(commits) % 4 == 0 else NO_FAULT

    worker.station.tables.choose = every_fourth_commit_is_lost
    with capture_logs() as lines:
        await asyncio.sleep(KEPT.total_seconds() + 3 * AUDIT_EVERY_S)

    assert len(done(await world.leases())) <= 2, "lost twice, and left to the audit after that"
    assert [line for line in lines if line["event"] == "stream.not_audited"] == []


@on_virtual_time
async def test_a_first_start_on_news_passes_over_what_is_there_and_catches_up_once_for_all_shards() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = ShardWorld(begin=Beginning.NEWEST, catch_up=catch_up)
    world.spread(3)
    world.write("orders", "sales")
    world.fake.roll(world.open_shard("orders"))
    await asyncio.sleep(300)
    for name in ("a", "b"):
        world.start(name)
    await asyncio.sleep(60)
    world.write("orders", "sales")
    await asyncio.sleep(SETTLED_S)

    assert asked == [None]
    assert world.values("orders") == world.written["orders"][1:]
    assert world.values("sales") == world.written["sales"][1:]
    assert len(await world.leases()) == 3, "a shard that had ended before is not read"


@on_virtual_time
async def test_what_is_found_after_the_first_start_is_read_from_its_beginning() -> None:
    world = ShardWorld(begin=Beginning.NEWEST)
    a = world.start("a")
    await asyncio.sleep(SETTLED_S)
    a.station.host.crash()
    world.fake.roll(world.open_shard("orders"))
    world.write("orders")

    world.start("b")
    await asyncio.sleep(30)

    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_a_gap_longer_than_the_stream_is_caught_up_with_and_reading_goes_on_in_what_is_left() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = ShardWorld(catch_up=catch_up)
    a = world.start("a")
    await asyncio.sleep(SETTLED_S)
    world.write("orders")
    await asyncio.sleep(SETTLED_S)
    a.station.membership.stop()
    world.fake.keeps = KEPT
    world.write("orders")
    world.fake.roll(world.open_shard("orders"))
    await asyncio.sleep(2 * KEPT.total_seconds())
    world.write("orders")

    world.start("b")
    await asyncio.sleep(AUDIT_EVERY_S)

    first, _, last = world.written["orders"]
    assert world.values("orders") == [first, last]
    [gap] = asked
    assert gap is not None


@on_virtual_time
async def test_a_lease_that_was_deleted_is_found_missing_and_its_shard_is_read_again() -> None:
    world = ShardWorld()
    a = world.start("a")
    await asyncio.sleep(SETTLED_S)
    world.write("orders")
    await asyncio.sleep(SETTLED_S)
    a.station.membership.stop()
    await asyncio.sleep(SETTLED_S)
    [shard] = await world.leases()
    await world.group.store.commit(Delete(TableName.CONTROL, Key(group_pk(GROUP), lease_sk(NAME, shard))))

    world.start("b")
    world.write("orders")
    await asyncio.sleep(SETTLED_S)

    assert [each.value for each in world.handled] == [1, 1, 2]


@on_virtual_time
async def test_leases_of_shards_that_are_gone_are_cleared_away() -> None:
    world = ShardWorld()
    world.start("a")
    await asyncio.sleep(SETTLED_S)
    world.write("orders")
    first = world.open_shard("orders")
    world.fake.roll(first)
    world.write("orders")
    await asyncio.sleep(SETTLED_S)
    assert first in await world.leases()

    world.fake.keeps = KEPT
    await asyncio.sleep(2 * KEPT.total_seconds() + AUDIT_EVERY_S)

    assert first not in await world.leases()
    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_a_listing_that_fails_delays_and_loses_nothing() -> None:
    world = ShardWorld()
    world.fake.fail_next("DescribeStream", *(RetryLater("no answer") for _ in range(5)))
    world.start("a")
    world.write("orders")
    world.fake.roll(world.open_shard("orders"))
    world.write("orders")
    await asyncio.sleep(120)

    assert world.values("orders") == world.written["orders"]


@on_virtual_time
async def test_what_is_read_ahead_of_all_shards_is_bounded_by_its_bytes() -> None:
    stuck = asyncio.Event()

    async def wait(_: Change) -> None:
        await stuck.wait()

    world = ShardWorld(before=wait)
    world.spread(4)
    world.write(*(f"p{number}" for number in range(40)))
    for shard in world.fake.shards.values():
        for entry in shard.entries:
            entry.wire["dynamodb"]["SizeBytes"] = 4 * MEBIBYTE
    worker = world.start("a")
    await asyncio.sleep(SETTLED_S)

    assert worker.consumer.budget.used == worker.consumer.counts.in_flight * 4 * MEBIBYTE
    assert worker.consumer.counts.in_flight == 40, "what one read gives is taken whole"
    world.write("late")
    await asyncio.sleep(SETTLED_S)
    assert worker.consumer.counts.received == 40, "but nothing more is read"

    stuck.set()
    await asyncio.sleep(SETTLED_S)
    assert world.values("late") == world.written["late"]
    assert worker.consumer.budget.used == 0


@on_virtual_time
async def test_a_hundred_idle_shards_cost_no_write_in_an_hour_but_the_heartbeats_of_their_workers() -> None:
    world = ShardWorld(pace=ReadPace(poll_s=60, poll_idle_s=60))
    world.spread(100)
    for name in ("a", "b"):
        world.start(name)
    await asyncio.sleep(600)

    written = await world.writes_during(3600)

    assert {len(worker.shards) for worker in world.workers} == {50}
    assert written.keys() == {keys.SESSION}
    assert written[keys.SESSION] <= 2 * 1_800 + len(world.workers)
