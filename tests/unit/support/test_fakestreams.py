"""The fakes keep to what the services do: whatever is proven on them would be worth nothing otherwise."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from consumers.streams.aws.calls import ExpiredIterator, NotFound, Throttled, TrimmedData
from tests.support.clock.manual import ManualClock
from tests.support.fakes.streams import ARN, FakeDynamoStreams, FakeKinesis
from worker.store.table import Key

ROW = Key("PIPELINE#orders", "SENSOR#orders")


def streams() -> tuple[FakeDynamoStreams, ManualClock]:
    clock = ManualClock()
    return FakeDynamoStreams(clock=clock), clock


def kinesis() -> tuple[FakeKinesis, ManualClock]:
    clock = ManualClock()
    return FakeKinesis(clock=clock), clock


async def iterator(fake: FakeDynamoStreams, kind: str = "TRIM_HORIZON", **more: str) -> str:
    [shard, *_] = fake.shards
    asked = {"StreamArn": ARN, "ShardId": shard, "ShardIteratorType": kind, **more}
    return (await fake.call("GetShardIterator", **asked))["ShardIterator"]


async def kinesis_iterator(fake: FakeKinesis, shard: str) -> str:
    asked = {"StreamName": fake.name, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    return (await fake.call("GetShardIterator", **asked))["ShardIterator"]


async def test_a_record_is_given_once_and_the_next_iterator_goes_on_after_it() -> None:
    fake, _ = streams()
    written = fake.write(ROW, {"value": 1})

    first = await fake.call("GetRecords", ShardIterator=await iterator(fake))
    second = await fake.call("GetRecords", ShardIterator=first["NextShardIterator"])

    assert first["Records"] == [written.wire]
    assert second["Records"] == []


async def test_sequence_numbers_soon_have_one_digit_more_so_that_text_order_misleads() -> None:
    fake, _ = streams()

    numbers = [fake.write(ROW, {"value": value}).wire["dynamodb"]["SequenceNumber"] for value in range(40)]

    assert sorted(numbers) != numbers == sorted(numbers, key=int)


async def test_a_closed_shard_ends_with_its_last_record_and_its_child_is_listed() -> None:
    fake, _ = streams()
    [parent] = fake.shards
    fake.write(ROW, {"value": 1})
    child = fake.roll(parent)

    answer = await fake.call("GetRecords", ShardIterator=await iterator(fake))
    asked = {"Type": "CHILD_SHARDS", "ShardId": parent}
    listed = await fake.call("DescribeStream", StreamArn=ARN, ShardFilter=asked)

    assert len(answer["Records"]) == 1
    assert "NextShardIterator" not in answer
    assert [shard["ShardId"] for shard in listed["StreamDescription"]["Shards"]] == [child.id]


async def test_a_listing_can_show_an_open_parent_beside_its_child_or_leave_one_out() -> None:
    fake, _ = streams()
    [parent] = fake.shards
    child = fake.roll(parent, is_seen=False)
    fake.hidden[child.id] = 1

    first = (await fake.call("DescribeStream", StreamArn=ARN))["StreamDescription"]["Shards"]
    second = (await fake.call("DescribeStream", StreamArn=ARN))["StreamDescription"]["Shards"]

    assert [shard["ShardId"] for shard in first] == [parent]
    assert [shard["ShardId"] for shard in second] == [parent, child.id]
    assert "EndingSequenceNumber" not in second[0]["SequenceNumberRange"]


async def test_a_long_listing_has_pages() -> None:
    fake, _ = streams()
    fake.page_max = 2
    [parent] = fake.shards
    for _ in range(4):
        parent = fake.roll(parent).id
    asked: dict[str, Any] = {"StreamArn": ARN}
    found: list[str] = []

    while True:
        description = (await fake.call("DescribeStream", **asked))["StreamDescription"]
        found += [shard["ShardId"] for shard in description["Shards"]]
        if "LastEvaluatedShardId" not in description:
            break
        asked["ExclusiveStartShardId"] = description["LastEvaluatedShardId"]

    assert found == list(fake.shards)
    assert fake.calls["DescribeStream"] == 3


async def test_an_iterator_expires_after_fifteen_minutes() -> None:
    fake, clock = streams()
    given = await iterator(fake)

    clock.advance(timedelta(minutes=15, seconds=1))

    with pytest.raises(ExpiredIterator):
        await fake.call("GetRecords", ShardIterator=given)


async def test_what_is_a_day_old_is_gone_and_said_to_be_gone() -> None:
    fake, clock = streams()
    old = fake.write(ROW, {"value": 1})
    fake.write(ROW, {"value": 2})
    clock.advance(timedelta(hours=24, seconds=1))
    kept = fake.write(ROW, {"value": 3})

    with pytest.raises(TrimmedData):
        await iterator(fake, "AFTER_SEQUENCE_NUMBER", SequenceNumber=str(old.sequence))

    answer = await fake.call("GetRecords", ShardIterator=await iterator(fake))
    assert answer["Records"] == [kept.wire]


async def test_a_shard_that_ended_a_day_ago_is_gone_altogether() -> None:
    fake, clock = streams()
    [parent] = fake.shards
    child = fake.roll(parent)

    clock.advance(timedelta(hours=24, seconds=1))

    with pytest.raises(NotFound):
        await fake.call("GetShardIterator", StreamArn=ARN, ShardId=parent, ShardIteratorType="TRIM_HORIZON")
    assert list(fake.shards) == [child.id]


async def test_more_than_ten_listings_in_a_second_are_throttled() -> None:
    fake, clock = streams()
    for _ in range(10):
        await fake.call("DescribeStream", StreamArn=ARN)

    with pytest.raises(Throttled):
        await fake.call("DescribeStream", StreamArn=ARN)

    clock.advance(timedelta(seconds=1))
    await fake.call("DescribeStream", StreamArn=ARN)


async def test_a_disabled_stream_ends_without_children() -> None:
    fake, _ = streams()
    fake.disable()

    answer = await fake.call("GetRecords", ShardIterator=await iterator(fake))

    assert answer == {"Records": []}


async def test_a_row_stays_with_the_children_of_its_shard() -> None:
    fake, _ = streams()
    [root] = fake.shards
    left, right = fake.split(root)
    rows = [Key(f"PIPELINE#{number}", "SENSOR#s") for number in range(20)]
    in_left = {row for row in rows if fake.write(row, {}) in left.entries}
    assert 0 < len(in_left) < len(rows)

    child = fake.roll(right.id)

    assert {row for row in rows if fake.write(row, {}) in child.entries} == set(rows) - in_left


async def test_an_ended_kinesis_shard_names_its_children_and_a_merged_one_both_its_parents() -> None:
    fake, _ = kinesis()
    [root] = fake.shards
    left, right = fake.split(root)
    merged = fake.merge(left.id, right.id)

    ended = await fake.call("GetRecords", ShardIterator=await kinesis_iterator(fake, root))
    listed = (await fake.call("ListShards", StreamName=fake.name))["Shards"]

    assert "NextShardIterator" not in ended
    assert [child["ShardId"] for child in ended["ChildShards"]] == [left.id, right.id]
    assert listed[-1]["ShardId"] == merged.id
    assert (listed[-1]["ParentShardId"], listed[-1]["AdjacentParentShardId"]) == (left.id, right.id)


async def test_a_kinesis_shard_is_read_five_times_a_second_at_most() -> None:
    fake, _ = kinesis()
    [root] = fake.shards
    given = await kinesis_iterator(fake, root)
    for _ in range(5):
        await fake.call("GetRecords", ShardIterator=given)

    with pytest.raises(Throttled):
        await fake.call("GetRecords", ShardIterator=given)


async def test_changes_reach_kinesis_out_of_order_and_some_twice() -> None:
    fake, _ = kinesis()
    [root] = fake.shards
    changes = [("key", f"change {number}".encode()) for number in range(40)]

    fake.deliver(changes, Random(1))

    arrived = [entry.wire["Data"] for entry in fake.shards[root].entries]
    assert len(arrived) == 50
    assert len(set(arrived)) == 40
    assert arrived != sorted(arrived)
