"""Records of DynamoDB Streams that are no change: they are kept, and the others go on."""

import pytest

from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, listing_budget
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.builders.stream_values import ROW, values
from tests.support.fakes.streams import ARN
from tests.support.worlds.dynamodb_stream import World
from worker.core.errors import RetryLater
from worker.store.table import TableName


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

    async def keep(stray: UnreadableRecordLetter) -> None:
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
