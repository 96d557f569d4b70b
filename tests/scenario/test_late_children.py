"""Children of shards that are begun late, on both kinds of streams: what is gone of them by then is not passed over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

import pytest

from consumers.streams.consumer import ReadPace
from consumers.streams.resync import tell_loss
from consumers.streams.shard_tree import is_ready
from consumers.streams.source import Gap
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Fault, no_faults, on_commit
from tests.support.worlds.shards import MergingWorld, ShardWorld, Worker
from worker.core.membership.liveness import Timing
from worker.core.model.events import EventType
from worker.store.repos.events import Events

SETTLED_S: Final = 30.0
HOUR_S: Final = 3_600.0
IN_TIME_S, TOO_LATE_S = 22 * HOUR_S, 24 * HOUR_S + 60
NAME: Final = "low"
SLOW_ANSWERS: Final = on_commit(Fault(reply_delay_s=0.5))
SLOW_BEATS: Final = Timing(beat_s=120, fence_s=300, kill_s=400, look_s=120)  # a day of others takes long


@dataclass
class Told:
    """What was caught up with, and what people were told."""

    gaps: list[Gap | None] = field(default_factory=list[Gap | None])
    world: ShardWorld | None = None

    async def catch_up(self, gap: Gap | None) -> None:
        assert self.world is not None
        self.gaps.append(gap)
        if gap is not None:
            await tell_loss(self.world.group.store, gap)

    async def events(self) -> list[object]:
        """The sources of all that people were told to be lost."""
        assert self.world is not None
        span = (self.world.clock.now() - timedelta(days=30), self.world.clock.now())
        stored = Events(self.world.group.store).of_type(EventType.DATA_LOSS_SUSPECTED, *span)
        return [each.event.detail["source"] async for each in stored]


def a_dynamodb_stream(told: Told) -> tuple[ShardWorld, Callable[[], str]]:
    """A stream, and a way to end its shards; that says which one goes on."""
    world = ShardWorld(catch_up=told.catch_up, pace=ReadPace(poll_idle_s=60))
    return world, lambda: world.fake.roll(next(iter(world.fake.open_shards())).id).id


def a_kinesis_stream(told: Told) -> tuple[ShardWorld, Callable[[], str]]:
    world = MergingWorld(catch_up=told.catch_up, pace=ReadPace(poll_idle_s=60))
    return world, world.merge


Kind: TypeAlias = Callable[[Told], tuple[ShardWorld, Callable[[], str]]]
on_both = pytest.mark.parametrize("kind", [a_dynamodb_stream, a_kinesis_stream])


def a_world(kind: Kind) -> tuple[ShardWorld, Callable[[], str], Told]:
    told = Told()
    world, end = kind(told)
    told.world = world
    return world, end, told


async def until_born(world: ShardWorld, child: str) -> None:
    """Return when a child may be begun, and nobody has done so."""
    for _ in range(600):
        leases = await world.leases()
        if child in leases and is_ready(leases[child], leases):
            assert not leases[child].is_begun
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{child} did not become ready")


async def a_child_nobody_began(world: ShardWorld, worker: Worker, end: Callable[[], str]) -> str:
    """The worker ends the shard, and freezes before it hears of that."""
    worker.station.tables.choose = SLOW_ANSWERS
    child = end()
    await until_born(world, child)
    worker.station.host.freeze()
    return child


@on_both
@on_virtual_time
async def test_a_child_begun_a_day_late_is_told_and_caught_up_with_once(kind: Kind) -> None:
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    child = await a_child_nobody_began(world, a, end)
    world.write(NAME)
    await asyncio.sleep(TOO_LATE_S)
    world.write(NAME)

    b = world.start("b")
    await asyncio.sleep(SETTLED_S)
    b.station.host.crash()
    world.start("c")
    await asyncio.sleep(SETTLED_S)

    first, _, last = world.written[NAME]
    assert world.values(NAME) == [first, last]
    [gap] = told.gaps
    assert gap is not None
    assert gap.source.endswith(f"/{child}")
    assert await told.events() == [gap.source]


@on_both
@on_virtual_time
async def test_a_child_begun_within_the_day_is_read_whole_and_nothing_is_told(kind: Kind) -> None:
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    await a_child_nobody_began(world, a, end)
    world.write(NAME)
    await asyncio.sleep(IN_TIME_S)
    world.write(NAME)

    world.start("b")
    await asyncio.sleep(SETTLED_S)

    assert world.values(NAME) == world.written[NAME]
    assert told.gaps == []


@on_both
@on_virtual_time
async def test_a_worker_that_paused_for_a_day_between_a_shard_and_its_child_tells_of_it(kind: Kind) -> None:
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    await a_child_nobody_began(world, a, end)
    world.write(NAME)
    await asyncio.sleep(TOO_LATE_S)

    a.station.tables.choose = no_faults
    a.station.host.thaw()
    await asyncio.sleep(SETTLED_S)
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)

    first, _, last = world.written[NAME]
    assert world.values(NAME) == [first, last]
    assert len(told.gaps) == len(await told.events()) == 1


@on_both
@on_virtual_time
async def test_a_worker_that_paused_for_a_day_at_an_empty_child_tells_of_it(kind: Kind) -> None:
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    child = end()
    await asyncio.sleep(600)
    assert child in a.shards

    a.station.host.freeze()
    world.write(NAME)
    await asyncio.sleep(TOO_LATE_S)
    a.station.host.thaw()
    await asyncio.sleep(SETTLED_S)
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)

    first, _, last = world.written[NAME]
    assert world.values(NAME) == [first, last]
    assert told.gaps
    assert len(await told.events()) == 1, "by the reader that does not know yet that it was replaced, or the next"


@on_both
@on_virtual_time
async def test_a_child_is_as_old_as_its_parents_end_and_not_as_the_reading_of_it(kind: Kind) -> None:
    """Both were read by workers that were far behind: the child had filled all the while."""
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    a.station.membership.stop()
    await asyncio.sleep(SETTLED_S)
    child = end()
    world.write(NAME)
    await asyncio.sleep(20 * HOUR_S)

    b = world.start("b")
    b.station.tables.choose = SLOW_ANSWERS
    await until_born(world, child)
    b.station.host.crash()
    await asyncio.sleep(4 * HOUR_S + 60)
    world.start("c")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)

    first, _, last = world.written[NAME]
    assert world.values(NAME) == [first, last]
    [gap] = told.gaps
    assert gap is not None
    assert await told.events() == [gap.source]


@on_both
@on_virtual_time
async def test_empty_shards_in_between_hand_on_how_old_they_are(kind: Kind) -> None:
    """They were begun in time, and say nothing about when the last of them was."""
    world, end, told = a_world(kind)
    a = world.start("a")
    world.write(NAME)
    await asyncio.sleep(SETTLED_S)
    a.station.membership.stop()
    await asyncio.sleep(SETTLED_S)
    middle = end()
    child = _followed(world, middle)
    world.write(NAME)
    await asyncio.sleep(20 * HOUR_S)

    b = world.start("b")
    b.station.tables.choose = SLOW_ANSWERS
    await until_born(world, child)
    b.station.host.crash()
    await asyncio.sleep(4 * HOUR_S + 60)
    world.start("c")
    await asyncio.sleep(SETTLED_S)

    assert any(gap is not None and gap.source.endswith(f"/{child}") for gap in told.gaps)


def _followed(world: ShardWorld, shard: str) -> str:
    """End a shard at once; the one of its children that `NAME` goes to."""
    if isinstance(world, MergingWorld):
        return world.kinesis.split(shard)[0].id
    return world.fake.roll(shard).id


@on_both
@on_virtual_time
async def test_a_quiet_stream_that_rolls_over_for_two_days_is_no_loss(kind: Kind) -> None:
    world, end, told = a_world(kind)
    world.group.timing = SLOW_BEATS
    world.start("a")
    world.write(NAME)
    await asyncio.sleep(HOUR_S)
    for _ in range(8):
        await asyncio.sleep(6 * HOUR_S)
        child = end()
        if isinstance(world, MergingWorld):
            world.low, world.high = world.kinesis.split(child)
    await asyncio.sleep(2 * HOUR_S)
    world.write(NAME)
    await asyncio.sleep(HOUR_S)

    assert told.gaps == []
    assert world.values(NAME) == world.written[NAME]
