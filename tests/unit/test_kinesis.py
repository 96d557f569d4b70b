"""The adapter of Kinesis, against everything that its service may do."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from consumers.kinesis import DeliveryStream, KinesisShard, KinesisStream
from consumers.kinesis_items import decode_answer
from consumers.kpl import Part
from consumers.source import Batch, Gap, Position, Shard
from consumers.streamcalls import ExpiredIterator
from consumers.unreadable import Stray
from tests.aggregates import aggregate
from tests.fakestreams import FakeKinesis, change_record
from tests.manualclock import NOON, ManualClock
from worker.core.errors import ConfigError, RetryLater
from worker.store.table import Change, Key, TableName, Value

ROW = Key("PIPELINE#orders", "SENSOR#orders")
DAY = timedelta(hours=24, seconds=1)


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    strays: list[Stray] = field(default_factory=list[Stray])

    def __post_init__(self) -> None:
        self.fake = FakeKinesis(clock=self.clock)
        [self.root] = self.fake.shards
        self.stream = self.restarted()

    def restarted(self) -> KinesisStream:
        """The adapter as another process would make it: it knows nothing of what was before."""
        stream = DeliveryStream(
            name="kinesis.control",
            kinesis_name=self.fake.name,
            tables={"test-control": TableName.CONTROL},
            keep_stray=self.keep,
        )
        return KinesisStream(stream, self.fake, self.clock)

    async def keep(self, stray: Stray) -> None:
        self.strays.append(stray)

    def reader(self, shard: str | None = None) -> KinesisShard:
        return self.stream.reader(shard or self.root)

    def record(self, value: int) -> bytes:
        return change_record(ROW, {"value": value}, self.clock.now())

    def put(self, *values: int) -> None:
        for value in values:
            self.fake.put(self.record(value))

    def put_aggregate(self, *values: int, extra: bytes = b"") -> None:
        self.fake.put(aggregate([Part(self.record(value), "key") for value in values], extra=extra))


def values(batch: Batch) -> list[Value]:
    return [value_of(record.change) for record in batch.records]


def value_of(change: Change) -> Value:
    assert change.image is not None
    return change.image["value"]


def positions(batch: Batch) -> Sequence[Position]:
    return [record.position for record in batch.records]


async def read_all(reader: KinesisShard) -> Batch:
    return await reader.read(await reader.oldest())


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_changes_delivered_by_dynamodb_are_read_with_their_own_time() -> None:
    world = World()
    made_at = world.clock.now()
    record = world.record(1)
    world.clock.advance(timedelta(minutes=3))
    world.fake.put(record)

    batch = await read_all(world.reader())

    [found] = batch.records
    assert (found.change.key, found.change.table, found.change.at) == (ROW, TableName.CONTROL, made_at)
    assert values(batch) == [1]


async def test_each_record_comes_once_and_positions_are_in_text_order_over_a_change_of_digits() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    all_positions = [position]

    for value in range(0, 80, 2):
        world.put(value)
        world.put_aggregate(value + 1, value + 2)
        batch = await reader.read(position)
        seen, position = seen + values(batch), batch.read_to
        all_positions += positions(batch)

    assert seen == [value for start in range(0, 80, 2) for value in (start, start + 1, start + 2)]
    assert all_positions == sorted(set(all_positions))
    assert position == all_positions[-1]
    assert world.fake.calls["GetShardIterator"] == 1


async def test_changes_out_of_order_and_repeated_are_all_given_and_none_is_lost() -> None:
    world = World()
    delivered = [("key", world.record(value)) for value in range(40)]

    world.fake.deliver(delivered, Random(4))

    found = Counter(values(await read_all(world.reader())))
    assert set(found) == set(range(40))
    assert sum(found.values()) == 50


async def test_a_change_of_another_table_is_passed_over() -> None:
    world = World()
    world.fake.put(change_record(ROW, {}, NOON, table="another"))
    reader = world.reader()
    oldest = await reader.oldest()

    batch = await reader.read(oldest)

    assert batch.records == []
    assert batch.read_to > oldest
    assert world.strays == []


async def test_a_shard_is_asked_no_more_often_than_it_allows() -> None:
    """The fake refuses the sixth read in a second; a busy reader is slower than that by itself."""
    world = World()
    reader = world.reader()
    position = await reader.oldest()

    for value in range(20):
        world.put(value)
        position = (await reader.read(position)).read_to

    assert world.clock.monotonic() >= 19 / 4


async def test_a_throttled_read_is_read_again_and_misses_nothing() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    world.fake.throttle_next("GetRecords")

    with pytest.raises(RetryLater):
        await read_all(reader)

    assert values(await read_all(reader)) == [1]


async def test_empty_pages_are_passed_in_one_read_while_there_is_more() -> None:
    world = World()
    world.put(1)
    world.clock.advance(timedelta(seconds=1))
    world.fake.empty_pages = 3

    assert values(await read_all(world.reader())) == [1]


async def test_an_expired_iterator_is_replaced_within_the_same_read() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    world.fake.fail_next("GetRecords", ExpiredIterator("sooner than it should"))
    world.put(2)

    assert values(await reader.read(position)) == [2]


# --- aggregates -------------------------------------------------------------------------------------------------------


async def test_a_reader_that_stopped_inside_an_aggregate_goes_on_there() -> None:
    world = World()
    world.put_aggregate(1, 2, 3, 4)
    world.put(5)
    batch = await read_all(world.reader())

    rests: list[list[Value]] = []
    for after in positions(batch):
        world.clock.advance(timedelta(seconds=1))
        rests.append(values(await world.restarted().reader(world.root).read(after)))

    assert rests == [[2, 3, 4, 5], [3, 4, 5], [4, 5], [5], []]


async def test_a_checkpoint_inside_an_aggregate_is_before_its_end() -> None:
    world = World()
    world.put_aggregate(*range(12))

    batch = await read_all(world.reader())

    assert positions(batch) == sorted(positions(batch))
    assert batch.read_to == positions(batch)[-1]


async def test_an_empty_aggregate_is_passed() -> None:
    world = World()
    world.put_aggregate()
    world.put(1)

    assert values(await read_all(world.reader())) == [1]


async def test_of_a_damaged_aggregate_what_can_be_read_is_given_and_all_of_it_is_kept() -> None:
    world = World()
    world.put_aggregate(1, 2, extra=b"\x1a\x7f")
    world.put(3)

    batch = await read_all(world.reader())

    assert values(batch) == [1, 2, 3]
    [stray] = world.strays
    assert "cannot be taken apart" in stray.reason
    assert positions(batch)[1] < stray.position < positions(batch)[2]


async def test_a_record_that_is_no_change_is_kept_with_its_body_and_the_others_go_on() -> None:
    world = World()
    world.put(1)
    world.fake.put(b"hello")
    world.put(2)

    batch = await read_all(world.reader())

    assert values(batch) == [1, 2]
    [stray] = world.strays
    assert (stray.body, stray.source) == (b"hello", f"kinesis.control/{world.root}")


async def test_a_record_with_a_damaged_image_is_kept_when_it_is_read() -> None:
    """Not when somebody looks at it, which may be never."""
    world = World()
    damaged = world.record(1).replace(b'"value"', b'"\xff"')
    world.fake.put(damaged)
    world.put(2)

    batch = await read_all(world.reader())

    assert values(batch) == [2]
    [stray] = world.strays
    assert stray.body == damaged
    assert "utf-8" in stray.reason


def test_an_answer_is_read_as_far_as_anybody_looks_at_it() -> None:
    record = {"SequenceNumber": "49", "ApproximateArrivalTimestamp": 1772539200, "Data": "AP8=", "PartitionKey": "key"}
    body = json.dumps({"Records": [record], "NextShardIterator": None, "Unknown": {"deep": [1]}}).encode()

    answer = decode_answer(body)

    [found] = answer.pop("Records")
    assert (found.sequence, found.arrived_millis, found.data) == ("49", 1_772_539_200_000, b"\x00\xff")
    assert answer == {"NextShardIterator": None}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"Records": [{}]}', b'{"Records": null}', b'{"Records": [], '])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_answer(body)


# --- only news --------------------------------------------------------------------------------------------------------


async def test_a_reader_of_news_loses_nothing_by_a_crash_before_the_first_record() -> None:
    world = World()
    world.put(1)
    world.clock.advance(timedelta(minutes=10))
    position = await world.reader().newest()
    world.put(2)
    world.clock.advance(timedelta(hours=3))
    world.put(3)

    batch = await world.restarted().reader(world.root).read(position)

    assert values(batch) == [2, 3]


# --- ends, splits and merges ------------------------------------------------------------------------------------------


async def test_an_ended_shard_says_its_children_without_another_listing() -> None:
    world = World()
    world.put(1)
    left, right = world.fake.split(world.root)

    batch = await read_all(world.reader())

    assert (values(batch), batch.is_end) == ([1], True)
    parents = frozenset({world.root})
    assert await world.stream.children(world.root) == [Shard(left.id, parents), Shard(right.id, parents)]
    assert world.fake.calls["ListShards"] == 0


async def test_the_children_of_a_shard_that_another_has_read_are_listed() -> None:
    world = World()
    left, right = world.fake.split(world.root)

    children = await world.restarted().children(world.root)

    assert [child.id for child in children] == [left.id, right.id]


async def test_children_that_show_late_are_asked_for_again() -> None:
    world = World()
    left, right = world.fake.split(world.root)
    world.fake.hidden.update({left.id: 2, right.id: 2})

    await read_all(world.reader())

    assert [len(await world.stream.children(world.root)) for _ in range(2)] == [0, 2]


async def test_a_merged_shard_has_two_parents() -> None:
    world = World()
    left, right = world.fake.split(world.root)
    merged = world.fake.merge(left.id, right.id)

    listed = {shard.id: shard.parents for shard in await world.stream.shards()}
    await read_all(world.reader(left.id))

    assert listed[merged.id] == {left.id, right.id}
    assert await world.stream.children(left.id) == [Shard(merged.id, frozenset({left.id, right.id}))]


async def test_all_pages_of_a_listing_are_read() -> None:
    world = World()
    world.fake.page_max = 2
    shard = world.root
    for _ in range(3):
        shard = world.fake.split(shard)[0].id

    assert [one.id for one in await world.stream.shards()] == list(world.fake.shards)


async def test_a_stream_that_is_not_there_is_a_mistake_of_the_settings() -> None:
    world = World()
    world.fake.name = "another"

    with pytest.raises(ConfigError):
        await world.stream.shards()


# --- what is gone -----------------------------------------------------------------------------------------------------


async def test_a_place_as_old_as_the_stream_keeps_anything_is_a_gap_although_the_service_is_silent() -> None:
    world = World()
    world.put(1, 2)
    position = positions(await read_all(world.reader()))[0]
    world.clock.advance(DAY)
    world.put(3)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    rest = await reader.read(gap.value.resume_at)
    assert values(rest) == [3]
    assert position < gap.value.resume_at < rest.read_to


async def test_a_reader_in_the_middle_of_old_records_has_no_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(hours=23, minutes=30))
    reader = world.reader()

    first = await read_all(reader)
    second = await reader.read(first.read_to)

    assert (values(first), values(second)) == ([1], [2])


async def test_a_reader_that_falls_behind_while_it_reads_has_a_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(hours=2))
    world.put(3)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    for _ in range(23):  # it waits for its handlers, and is the same reader all the time
        world.clock.advance(timedelta(hours=1))

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    assert values(await reader.read(gap.value.resume_at)) == [3]


async def test_a_reader_that_is_ever_further_behind_tells_of_a_gap_once_for_all_it_covers() -> None:
    """After a gap everything is looked at: what is lost of what came before that is no news."""
    world = World()
    world.fake.records_max = 1
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    gaps: list[Gap] = []

    for value in range(6 * 24 * 4):
        world.put(value)
        world.clock.advance(timedelta(minutes=10))
        if value % 2:
            continue
        try:
            batch = await reader.read(position)
            seen, position = seen + values(batch), batch.read_to
        except Gap as gap:
            gaps.append(gap)
            position = gap.resume_at

    lost = [value for value in range(int(str(seen[-1]))) if value not in seen]
    assert lost
    assert all(any(NOON + timedelta(minutes=10) * value <= gap.noticed_at for gap in gaps) for value in lost)
    assert all(later.noticed_at - gap.noticed_at > timedelta(hours=23) for gap, later in pairwise(gaps))


async def test_a_reader_that_was_caught_up_a_moment_ago_asks_nothing_more() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    for _ in range(20):
        world.clock.advance(timedelta(hours=2))
        position = (await reader.read(position)).read_to
    world.put(2)

    assert values(await reader.read(position)) == [2]
    assert world.fake.calls["GetRecords"] == 22


async def test_a_service_that_does_not_say_what_is_left_is_a_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    world.clock.advance(timedelta(hours=23, minutes=30))
    world.fake.empty_pages = 10

    with pytest.raises(Gap):
        await reader.read(position)


async def test_a_gap_at_the_start_of_news_is_followed_by_everything_that_is_left() -> None:
    world = World()
    position = await world.reader().newest()
    world.put(1)
    world.clock.advance(timedelta(hours=23, minutes=30))
    world.put(2)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [1, 2]


async def test_a_stream_that_keeps_records_for_a_week_has_a_gap_after_a_week() -> None:
    world = World()
    world.fake.keeps = timedelta(days=7)
    world.put(1, 2)
    position = positions(await read_all(world.reader()))[0]
    world.clock.advance(timedelta(days=6))

    assert values(await world.restarted().reader(world.root).read(position)) == [2]


async def test_a_quiet_shard_is_no_gap_and_moves_its_place_twice_a_day() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    moves = 0

    for _ in range(3 * 24 * 6):
        world.clock.advance(timedelta(minutes=10))
        batch = await reader.read(position)
        moves, position = moves + (batch.read_to != position), batch.read_to
    batch = await world.restarted().reader(world.root).read(position)

    assert batch.records == []
    assert 4 <= moves <= 6


async def test_a_shard_that_was_empty_has_a_gap_if_records_came_and_went_since() -> None:
    world = World()
    position = (await read_all(world.reader())).read_to
    world.put(1)
    world.clock.advance(DAY)

    with pytest.raises(Gap):
        await world.restarted().reader(world.root).read(position)


async def test_a_shard_that_was_empty_gives_all_that_came_since() -> None:
    world = World()
    position = (await read_all(world.reader())).read_to
    world.put(1)
    world.clock.advance(timedelta(hours=3))

    assert values(await world.restarted().reader(world.root).read(position)) == [1]


async def test_a_shard_that_is_gone_is_a_gap_and_then_has_an_end() -> None:
    world = World()
    world.put(1)
    position = await world.reader().oldest()
    world.fake.split(world.root)
    world.clock.advance(DAY)

    with pytest.raises(Gap) as gap:
        await world.reader().read(position)
    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert batch == Batch([], gap.value.resume_at, is_end=True)


async def test_a_stream_that_was_made_anew_under_its_name_is_a_gap_and_read_from_its_beginning() -> None:
    world = World()
    world.put(1)
    position = (await read_all(world.reader())).read_to
    world.fake.shards[world.root].entries.clear()
    world.fake.sequence = 10**20
    world.put(2)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [2]


# --- sharing the loop -------------------------------------------------------------------------------------------------


async def test_a_full_answer_is_decoded_in_slices_so_that_others_get_their_turns() -> None:
    world = World()
    world.put(*range(500))
    world.put_aggregate(*range(500))
    reader = world.reader()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(others())
        batch = await reader.read(await reader.oldest())
        waiting.cancel()

    assert len(batch.records) == 1_000
    assert turns >= 9


# --- how far behind ---------------------------------------------------------------------------------------------------


async def test_the_lag_is_what_the_service_says_and_the_time_since() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(minutes=7))
    reader = world.reader()

    batch = await read_all(reader)
    behind = reader.lag
    await reader.read(batch.read_to)
    caught_up = reader.lag
    world.clock.advance(timedelta(seconds=30))

    assert (behind, caught_up, reader.lag) == (timedelta(minutes=7), timedelta(0), timedelta(seconds=30))
