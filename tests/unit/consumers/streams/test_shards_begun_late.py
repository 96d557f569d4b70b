"""Shards that are begun, or read on, so late that their beginning may be gone: no service says that it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import pytest

from consumers.streams.positions import time_of
from consumers.streams.source import Batch, Gap, Position, Source
from tests.support.builders.stream_values import values
from tests.support.clock.manual import NOON, ManualClock
from tests.support.worlds import dynamodb_stream, kinesis
from worker.store.table import Value

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
IN_TIME, LATE, TOO_LATE = 23 * HOUR - MINUTE, 23 * HOUR + MINUTE, 24 * HOUR + MINUTE


class World(Protocol):
    """A stream of one shard, which `end` ends."""

    clock: ManualClock

    def write(self, *values: int) -> None: ...

    def end(self) -> None: ...

    def another(self, whole_to: datetime | None = NOON) -> Source:
        """A reader as another process would make it: it knows nothing but what is written down."""
        ...


class DynamoWorld(dynamodb_stream.World):
    def end(self) -> None:
        self.fake.roll(self.root)

    def another(self, whole_to: datetime | None = NOON) -> Source:
        return self.restarted().reader(self.root, whole_to)


class KinesisWorld(kinesis.World):
    def write(self, *values: int) -> None:
        self.put(*values)

    def end(self) -> None:
        self.fake.split(self.root)

    def another(self, whole_to: datetime | None = NOON) -> Source:
        return self.restarted().reader(self.root, whole_to)


@pytest.fixture(params=[DynamoWorld, KinesisWorld])
def world(request: pytest.FixtureRequest) -> World:
    made: Callable[[], World] = request.param
    return made()


@dataclass
class Polled:
    """What came of reading a shard every quarter of an hour."""

    position: Position
    moves: int = 0  # each is a write
    found: list[Value] = field(default_factory=list[Value])

    async def go_on(self, world: World, reader: Source, span: timedelta) -> None:
        for _ in range(span // (15 * MINUTE)):
            world.clock.advance(15 * MINUTE)
            batch = await reader.read(self.position)
            self.found += values(batch)
            self.moves += batch.read_to != self.position
            self.position = batch.read_to


# --- begun late -------------------------------------------------------------------------------------------------------


async def test_a_shard_begun_a_day_after_it_came_to_be_has_a_gap_after_which_all_that_is_left_is_read(
    world: World,
) -> None:
    world.write(1)
    world.clock.advance(TOO_LATE)
    world.write(2)
    reader = world.another()
    oldest = await reader.oldest()

    with pytest.raises(Gap) as gap:
        await reader.read(oldest)

    assert (gap.value.asked, gap.value.since, gap.value.noticed_at) == (oldest, NOON, world.clock.now())
    assert values(await reader.read(gap.value.resume_at)) == [2]
    assert values(await world.another().read(gap.value.resume_at)) == [2], "and it is no gap to the next"


async def test_a_shard_of_which_nothing_came_within_a_day_may_have_had_something(world: World) -> None:
    world.clock.advance(LATE)
    reader = world.another()

    with pytest.raises(Gap):
        await reader.read(await reader.oldest())


async def test_a_shard_begun_within_a_day_is_read_whole(world: World) -> None:
    world.write(1)
    world.clock.advance(IN_TIME)
    reader = world.another()

    assert values(await reader.read(await reader.oldest())) == [1]


async def test_a_shard_of_which_nobody_knows_how_old_it_is_is_no_gap(world: World) -> None:
    """As all that are there at a first start, of which nothing was promised before."""
    world.write(1)
    world.clock.advance(TOO_LATE)
    world.write(2)
    reader = world.another(whole_to=None)

    assert values(await reader.read(await reader.oldest())) == [2]


async def test_a_shard_that_has_records_is_judged_by_them_and_not_by_its_age(world: World) -> None:
    world.clock.advance(20 * HOUR)
    world.write(1)
    reader = world.another()
    position = (await reader.read(await reader.oldest())).read_to
    world.clock.advance(20 * HOUR)
    world.write(2)

    assert values(await world.another().read(position)) == [2]


async def test_a_shard_that_is_gone_before_it_was_begun_is_a_gap_since_it_came_to_be(world: World) -> None:
    world.write(1)
    world.end()
    world.clock.advance(TOO_LATE)
    reader = world.another()

    with pytest.raises(Gap) as gap:
        await reader.read(await reader.oldest())

    assert gap.value.since == NOON


# --- begun in time, and quiet -----------------------------------------------------------------------------------------


async def test_a_quiet_shard_is_handed_on_after_days_without_a_false_alarm(world: World) -> None:
    reader = world.another()
    polled = Polled(await reader.oldest())

    await polled.go_on(world, reader, timedelta(days=3))
    world.write(1)

    assert values(await world.another().read(polled.position)) == [1]
    assert polled.moves <= 6


async def test_a_shard_that_fell_quiet_is_handed_on_after_days_without_a_false_alarm(world: World) -> None:
    world.write(1)
    reader = world.another()
    polled = Polled((await reader.read(await reader.oldest())).read_to)

    await polled.go_on(world, reader, timedelta(days=3))
    world.write(2)

    assert values(await world.another().read(polled.position)) == [2]


async def test_a_quiet_shard_that_nobody_read_for_a_day_has_a_gap(world: World) -> None:
    reader = world.another(whole_to=None)
    polled = Polled(await reader.oldest())
    await polled.go_on(world, reader, 13 * HOUR)
    world.write(1)
    world.clock.advance(TOO_LATE)

    with pytest.raises(Gap):
        await world.another(whole_to=None).read(polled.position)


async def test_a_quiet_shard_gives_what_came_while_it_was_handed_on(world: World) -> None:
    reader = world.another()
    polled = Polled(await reader.oldest())
    await polled.go_on(world, reader, 13 * HOUR)
    world.write(1)
    world.clock.advance(20 * HOUR)

    assert values(await world.another().read(polled.position)) == [1]


async def test_a_reader_that_got_no_answer_for_a_day_has_a_gap_although_it_never_stopped(world: World) -> None:
    reader = world.another()
    position = (await reader.read(await reader.oldest())).read_to
    world.write(1)
    world.clock.advance(TOO_LATE)
    world.write(2)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [2]


async def test_a_shard_begun_just_in_time_has_no_gap_while_it_is_looked_at(world: World) -> None:
    world.clock.advance(IN_TIME)
    reader = world.another()
    polled = Polled((await reader.read(await reader.oldest())).read_to)

    await polled.go_on(world, reader, 3 * HOUR)
    world.write(1)
    await polled.go_on(world, reader, HOUR)

    assert polled.found == [1]


# --- what a shard's end says about its children -----------------------------------------------------------------------


async def test_the_end_of_a_shard_has_the_time_of_its_last_record_however_late_it_is_read(world: World) -> None:
    """Its children have filled since then."""
    world.write(1)
    reader = world.another()
    position = (await reader.read(await reader.oldest())).read_to
    world.end()
    world.clock.advance(20 * HOUR)

    batch = await world.another().read(position)

    assert batch.is_end
    assert time_of(batch.read_to) == NOON


async def test_the_end_of_an_empty_shard_has_no_time_of_its_own(world: World) -> None:
    world.end()
    world.clock.advance(20 * HOUR)
    reader = world.another()

    batch = await reader.read(await reader.oldest())

    assert batch.is_end
    assert time_of(batch.read_to) is None


@pytest.mark.parametrize("is_empty", [True, False])
async def test_the_end_of_a_quiet_shard_that_was_read_all_the_time_is_not_old(world: World, is_empty: bool) -> None:
    if not is_empty:
        world.write(1)
    reader = world.another()
    polled = Polled(await reader.oldest())
    await polled.go_on(world, reader, 40 * HOUR)
    world.end()

    batch = await reader.read(polled.position)

    assert batch.is_end
    ended = time_of(batch.read_to)
    assert ended is not None
    assert world.clock.now() - ended <= 13 * HOUR
    assert (await world.another().read(batch.read_to)).is_end, "and whoever comes after a crash finds the same end"


async def test_empty_pages_before_the_end_of_a_shard_do_not_say_that_it_was_open() -> None:
    """The service gives some while it walks to where the end is."""
    world = DynamoWorld()
    world.write(1)
    reader = world.another()
    position = (await reader.read(await reader.oldest())).read_to
    world.end()
    world.clock.advance(20 * HOUR)
    world.fake.empty_pages = 3
    reader, batch = world.another(), Batch([], position)

    while not batch.is_end:
        world.clock.advance(MINUTE)
        batch = await reader.read(batch.read_to)

    assert time_of(batch.read_to) == NOON


# --- pages that are empty by chance -----------------------------------------------------------------------------------


async def test_an_empty_page_after_a_silence_does_not_pass_over_what_came_in_it() -> None:
    """It says nothing about the time without answers, however long pages were empty before that."""
    world = DynamoWorld()
    reader = world.another()
    polled = Polled(await reader.newest())
    await polled.go_on(world, reader, 11 * HOUR)
    world.write(1)
    world.clock.advance(3 * HOUR)
    world.fake.empty_pages = 1

    await polled.go_on(world, reader, HOUR)

    assert polled.found == [1]
