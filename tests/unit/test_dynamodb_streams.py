"""The adapter of DynamoDB Streams, against everything that its service may do."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from consumers.dynamodb_streams import SKEW, DynamoShard, DynamoStream, TableStream, find_stream, listing_budget
from consumers.source import Batch, Gap, Position, Shard
from consumers.streamcalls import ExpiredIterator, NotFound, TrimmedData
from consumers.unreadable import Stray
from tests.fakestreams import ARN, FakeDynamoStreams
from tests.manualclock import NOON, ManualClock
from worker.core.errors import ConfigError, RetryLater
from worker.store.table import Change, ChangeKind, Key, TableName, Value

ROW = Key("PIPELINE#orders", "SENSOR#orders")
DAY = timedelta(hours=24, seconds=1)


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    strays: list[Stray] = field(default_factory=list[Stray])

    def __post_init__(self) -> None:
        self.fake = FakeDynamoStreams(clock=self.clock)
        [self.root] = self.fake.shards
        self.stream = self.restarted()

    def restarted(self) -> DynamoStream:
        """The adapter as another process would make it: it knows nothing of what was before."""
        table = TableStream(name="stream.control", arn=ARN, table=TableName.CONTROL, keep_stray=self.keep)
        return DynamoStream(table, self.fake, self.clock, listing_budget(self.clock))

    async def keep(self, stray: Stray) -> None:
        self.strays.append(stray)

    def reader(self, shard: str | None = None) -> DynamoShard:
        return self.stream.reader(shard or self.root)

    def write(self, *values: int) -> None:
        for value in values:
            self.fake.write(ROW, {"value": value})


def values(batch: Batch) -> list[Value]:
    return [value_of(record.change) for record in batch.records]


def value_of(change: Change) -> Value:
    assert change.image is not None
    return change.image["value"]


async def read_on(reader: DynamoShard, position: Position) -> tuple[list[Value], Position]:
    batch = await reader.read(position)
    return values(batch), batch.read_to


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_change_is_read_with_its_key_kind_image_and_time() -> None:
    world = World()
    world.fake.write(ROW, {"value": 1, "tags": frozenset({"a"})}, ChangeKind.INSERT)
    world.fake.write(ROW, None)
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    inserted, removed = (record.change for record in batch.records)
    assert (inserted.key, inserted.kind, inserted.at) == (ROW, ChangeKind.INSERT, NOON)
    assert inserted.image == {"PK": ROW.pk, "SK": ROW.sk, "value": 1, "tags": frozenset({"a"})}
    assert (removed.key, removed.kind, removed.image) == (ROW, ChangeKind.REMOVE, None)
    assert inserted.position < removed.position


async def test_each_record_comes_once_and_positions_are_in_text_order_over_a_change_of_digits() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    positions: list[Position] = [position]

    for value in range(40):
        world.write(value)
        batch = await reader.read(position)
        seen, position = seen + values(batch), batch.read_to
        positions += [record.position for record in batch.records]

    assert seen == list(range(40))
    assert positions == sorted(set(positions))
    assert position == positions[-1]


async def test_one_iterator_leads_to_the_next_so_that_reading_costs_one_call() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()

    for value in range(5):
        world.write(value)
        position = (await reader.read(position)).read_to

    assert world.fake.calls["GetShardIterator"] == 1
    assert world.fake.calls["GetRecords"] == 5


async def test_another_reader_goes_on_after_any_position() -> None:
    world = World()
    world.write(1, 2, 3)
    reader = world.reader()
    batch = await reader.read(await reader.oldest())

    rest = await world.reader().read(batch.records[0].position)

    assert values(rest) == [2, 3]


async def test_an_empty_read_stays_where_it_is() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())

    assert await reader.read(position) == Batch([], position)


async def test_what_was_asked_for_again_is_read_again() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    oldest = await reader.oldest()
    await reader.read(oldest)

    assert values(await reader.read(oldest)) == [1, 2]


async def test_a_full_answer_is_bounded_and_the_rest_comes_next() -> None:
    world = World()
    world.write(*range(1_500))
    reader = world.reader()

    first = await reader.read(await reader.oldest())
    second = await reader.read(first.read_to)

    assert len(first.records) == 1_000
    assert values(first) + values(second) == list(range(1_500))


async def test_a_throttled_read_is_read_again_and_misses_nothing() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    world.write(1)
    world.fake.throttle_next("GetRecords")

    with pytest.raises(RetryLater):
        await reader.read(position)

    assert values(await reader.read(position)) == [1]


async def test_an_empty_page_before_records_is_no_end() -> None:
    world = World()
    world.write(1)
    world.fake.empty_pages = 2
    reader = world.reader()
    position, batch = await reader.oldest(), None

    for _ in range(3):
        batch = await reader.read(position)
        position = batch.read_to

    assert batch is not None
    assert values(batch) == [1]


# --- iterators that grow old ------------------------------------------------------------------------------------------


async def test_an_iterator_is_renewed_before_it_expires_after_what_was_fetched_last() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())

    world.clock.advance(timedelta(minutes=10, seconds=1))
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]
    assert world.fake.calls["GetShardIterator"] == 2


async def test_an_expired_iterator_is_replaced_within_the_same_read() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())
    world.fake.fail_next("GetRecords", ExpiredIterator("sooner than it should"))
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]
    assert world.fake.calls["GetShardIterator"] == 2


async def test_a_service_whose_iterators_are_always_expired_is_left_alone_for_a_while() -> None:
    world = World()
    reader = world.reader()
    world.fake.fail_next("GetRecords", *(ExpiredIterator("again") for _ in range(2)))

    with pytest.raises(RetryLater, match="expired"):
        await reader.read(await reader.oldest())


# --- only news --------------------------------------------------------------------------------------------------------


async def test_a_reader_of_news_is_not_given_what_was_there_before() -> None:
    world = World()
    world.write(1)
    reader = world.reader()

    position = await reader.newest()
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]


async def test_a_crash_before_the_first_record_loses_nothing_of_what_came_after_the_first_start() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(2)
    world.clock.advance(timedelta(hours=2))
    world.write(3)

    reader = world.restarted().reader(world.root)

    assert (await read_on(reader, position))[0] == [2, 3]


async def test_pages_of_old_records_are_passed_over_in_one_read() -> None:
    world = World()
    world.fake.records_max = 10
    world.write(*range(100))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(100)

    reader = world.restarted().reader(world.root)

    assert (await read_on(reader, position))[0] == [100]


async def test_a_reader_that_comes_a_day_after_a_moment_without_records_is_told_that_some_may_be_gone() -> None:
    world = World()
    position = await world.reader().newest()
    world.clock.advance(timedelta(hours=23, minutes=1))

    with pytest.raises(Gap) as gap:
        await world.reader().read(position)

    assert gap.value.since == NOON - SKEW
    world.write(1)
    assert values(await world.reader().read(gap.value.resume_at)) == [1]


async def test_a_shard_in_which_nothing_came_for_days_is_handed_on_without_a_false_alarm() -> None:
    world = World()
    reader = world.reader()
    position, moved = await reader.newest(), 0
    for _ in range(3 * 24 * 4):
        world.clock.advance(timedelta(minutes=15))
        batch = await reader.read(position)
        position, moved = batch.read_to, moved + (batch.read_to > position)
    world.write(1)

    assert values(await world.reader().read(position)) == [1]
    assert moved <= 6  # each move is a write


async def test_an_empty_page_after_a_night_does_not_pass_over_what_came_in_it() -> None:
    """The service gives empty pages while it walks to where records are: that says nothing of what lies behind."""
    world = World()
    position = await world.reader().newest()
    world.clock.advance(timedelta(hours=2))
    world.write(1)
    world.clock.advance(timedelta(hours=12))
    world.fake.empty_pages = 3
    reader = world.restarted().reader(world.root)
    found: list[Value] = []

    for _ in range(4):
        batch = await reader.read(position)
        found, position = [*found, *values(batch)], batch.read_to

    assert found == [1]


async def test_an_iterator_renewed_among_old_records_goes_on_after_those_that_were_passed_over() -> None:
    """Or a shard with more old records than one read passes over would be begun again for ever."""
    world = World()
    world.fake.records_max = 10
    world.write(*range(300))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(300)
    reader = world.restarted().reader(world.root)
    assert (await read_on(reader, position)) == ([], position)

    world.clock.advance(timedelta(minutes=10, seconds=1))

    assert (await read_on(reader, position))[0] == [300]


async def test_the_start_of_news_is_kept_until_there_is_some() -> None:
    """Passing over old records must not turn the place into one of them: a second crash would read on from there."""
    world = World()
    world.fake.records_max = 10
    world.write(*range(50))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()

    batch = await world.restarted().reader(world.root).read(position)

    assert batch.read_to == position


async def test_an_idle_reader_of_news_whose_iterator_grew_old_still_misses_nothing() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(minutes=5))
    reader = world.reader()
    position = await reader.newest()
    world.write(2)

    world.clock.advance(timedelta(minutes=20))

    assert (await read_on(reader, position))[0] == [2]


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_shard_ends_with_its_last_record_and_again_for_whoever_asks_again() -> None:
    world = World()
    world.write(1)
    child = world.fake.roll(world.root)
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    assert (values(batch), batch.is_end) == ([1], True)
    assert await reader.read(batch.read_to) == Batch([], batch.read_to, is_end=True)
    assert await world.reader().read(batch.read_to) == Batch([], batch.read_to, is_end=True)
    assert await world.stream.children(world.root) == [Shard(child.id, frozenset({world.root}))]


async def test_an_open_shard_has_no_children_and_no_end() -> None:
    world = World()
    reader = world.reader()

    assert not (await reader.read(await reader.oldest())).is_end
    assert await world.stream.children(world.root) == []


async def test_a_split_gives_two_children() -> None:
    world = World()

    children = world.fake.split(world.root)

    assert [shard.id for shard in await world.stream.children(world.root)] == [child.id for child in children]


async def test_children_that_show_late_are_asked_for_again() -> None:
    world = World()
    child = world.fake.roll(world.root)
    world.fake.hidden[child.id] = 2

    answers = [len(await world.stream.children(world.root)) for _ in range(3)]

    assert answers == [0, 0, 1]


async def test_the_stream_of_a_table_that_no_longer_has_one_is_disabled_and_its_shard_has_an_end() -> None:
    world = World()
    assert not await world.stream.is_disabled()
    world.write(1)
    world.fake.disable()
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    assert await world.stream.is_disabled()
    assert (values(batch), batch.is_end) == ([1], True)


# --- listings ---------------------------------------------------------------------------------------------------------


async def test_all_pages_of_a_listing_are_read() -> None:
    world = World()
    world.fake.page_max = 2
    shard = world.root
    for _ in range(6):
        shard = world.fake.roll(shard).id

    found = await world.stream.shards()

    assert [one.id for one in found] == list(world.fake.shards)
    assert found[0].parents == frozenset()
    assert found[1].parents == {found[0].id}


async def test_an_open_parent_beside_its_child_is_listed_as_its_parent() -> None:
    world = World()
    child = world.fake.roll(world.root, is_seen=False)

    assert await world.stream.shards() == [Shard(world.root), Shard(child.id, frozenset({world.root}))]


async def test_a_parent_that_a_listing_leaves_out_is_looked_for_again() -> None:
    """Or its child would be read first: a parent that is not listed counts as gone."""
    world = World()
    child = world.fake.roll(world.root)
    world.fake.hidden[world.root] = 1

    found = await world.stream.shards()

    assert [shard.id for shard in found] == [world.root, child.id]


async def test_a_parent_that_no_listing_shows_holds_the_listing_back() -> None:
    world = World()
    world.fake.roll(world.root)
    world.fake.hidden[world.root] = 10

    with pytest.raises(RetryLater, match="left out"):
        await world.stream.shards()


async def test_a_parent_that_is_trimmed_is_named_and_asked_about_once() -> None:
    world = World()
    child = world.fake.roll(world.root)
    world.clock.advance(DAY)

    first, second = await world.stream.shards(), await world.stream.shards()

    assert first == second == [Shard(child.id, frozenset({world.root}))]
    assert world.fake.calls["GetShardIterator"] == 1


async def test_listings_share_a_budget_of_two_calls_a_second() -> None:
    world = World()
    budget = listing_budget(world.clock)
    table = TableStream(name="s", arn=ARN, table=TableName.CONTROL, keep_stray=world.keep)
    streams = [DynamoStream(table, world.fake, world.clock, budget) for _ in range(5)]
    started = world.clock.monotonic()

    for _ in range(8):
        for stream in streams:
            await stream.shards()

    assert world.clock.monotonic() - started >= (40 - 2) / 2


async def test_a_stream_without_images_is_refused_with_what_to_do() -> None:
    world = World()
    world.fake.view = "KEYS_ONLY"

    with pytest.raises(ConfigError, match="NEW_AND_OLD_IMAGES"):
        await world.stream.shards()


async def test_the_newest_stream_of_a_table_is_found_by_the_tables_name() -> None:
    world = World()

    assert await find_stream(world.fake, "test-control") == ARN


async def test_a_stream_that_is_not_there_is_a_mistake_of_the_settings() -> None:
    world = World()
    world.fake.arn = "arn:another"

    with pytest.raises(ConfigError):
        await world.stream.shards()


# --- what is gone -----------------------------------------------------------------------------------------------------


async def test_trimmed_records_are_a_gap_after_which_all_that_is_left_is_read() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    batch = await reader.read(await reader.oldest())
    world.write(3)
    position = batch.records[0].position
    world.clock.advance(DAY)
    world.write(4, 5)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    assert gap.value.noticed_at == world.clock.now()
    rest = await reader.read(gap.value.resume_at)
    assert values(rest) == [4, 5]
    assert position < gap.value.resume_at < rest.read_to


async def test_after_a_gap_a_crash_before_the_first_record_is_no_second_gap() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    position = (await reader.read(await reader.oldest())).records[0].position
    world.clock.advance(DAY)
    world.write(3)
    with pytest.raises(Gap) as gap:
        await world.reader().read(position)

    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert values(batch) == [3]


async def test_after_a_gap_at_the_start_of_news_all_that_is_left_is_read() -> None:
    world = World()
    reader = world.reader()
    position = await reader.newest()
    world.write(1)
    world.clock.advance(timedelta(hours=1))
    world.fake.fail_next("GetRecords", TrimmedData("something was there"))

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [1]


async def test_a_shard_that_is_gone_is_a_gap_and_then_has_an_end() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    position = await reader.oldest()
    world.fake.roll(world.root)
    world.clock.advance(DAY)

    with pytest.raises(Gap) as gap:
        await reader.read(position)
    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert gap.value.since is None
    assert batch == Batch([], gap.value.resume_at, is_end=True)


async def test_what_is_trimmed_under_a_slow_reader_is_a_gap_too() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    world.clock.advance(timedelta(hours=23, minutes=55))
    world.write(3)
    position = (await reader.read(await reader.oldest())).records[0].position
    await reader.read(position)
    world.clock.advance(timedelta(minutes=9))

    with pytest.raises(Gap):
        await reader.read(position)


# --- what is no change ------------------------------------------------------------------------------------------------


async def test_a_record_that_is_no_change_is_kept_and_the_others_go_on() -> None:
    world = World()
    world.write(1)
    entry = world.fake.write(ROW, {"value": 2})
    del entry.wire["dynamodb"]["NewImage"]
    world.write(3)
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    assert values(batch) == [1, 3]
    [stray] = world.strays
    assert str(entry.sequence) in stray.position
    assert b"SequenceNumber" in stray.body
    assert "NewImage" in stray.reason


async def test_a_record_that_cannot_be_kept_yet_is_not_passed() -> None:
    world = World()
    entry = world.fake.write(ROW, {"value": 2})
    entry.wire["eventName"] = "EXPLODE"
    world.write(3)
    failures = [RetryLater("the store does not answer")]

    async def keep(stray: Stray) -> None:
        if failures:
            raise failures.pop()
        await world.keep(stray)

    table = TableStream(name="s", arn=ARN, table=TableName.CONTROL, keep_stray=keep)
    reader = DynamoStream(table, world.fake, world.clock, listing_budget(world.clock)).reader(world.root)
    position = await reader.oldest()

    with pytest.raises(RetryLater):
        await reader.read(position)
    batch = await reader.read(position)

    assert values(batch) == [3]
    assert len(world.strays) == 1


async def test_strays_alone_move_the_reader_on() -> None:
    world = World()
    world.fake.write(ROW, {"value": 2}).wire["eventName"] = "EXPLODE"
    reader = world.reader()
    oldest = await reader.oldest()

    batch = await reader.read(oldest)

    assert batch.records == []
    assert batch.read_to > oldest


# --- sharing the loop -------------------------------------------------------------------------------------------------


async def test_a_full_answer_is_decoded_in_slices_so_that_others_get_their_turns() -> None:
    world = World()
    world.write(*range(1_000))
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


async def test_the_lag_is_that_of_the_record_read_last_and_then_since_the_last_empty_read() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(minutes=7))
    reader = world.reader()

    _, position = await read_on(reader, await reader.oldest())
    behind = reader.lag
    await reader.read(position)
    caught_up = reader.lag
    world.clock.advance(timedelta(seconds=30))

    assert (behind, caught_up, reader.lag) == (timedelta(minutes=7), timedelta(0), timedelta(seconds=30))


async def test_a_position_of_another_kind_of_stream_is_refused_with_what_to_do() -> None:
    world = World()

    with pytest.raises(ConfigError, match="delete the lease"):
        await world.reader().read(Position("00000000000000000012@1772539200000"))


async def test_a_gone_stream_does_not_pass_for_an_empty_one() -> None:
    world = World()
    world.fake.fail_next("GetShardIterator", NotFound("there is no such stream"))
    reader = world.reader()

    with pytest.raises(Gap):
        await reader.read(await reader.oldest())
