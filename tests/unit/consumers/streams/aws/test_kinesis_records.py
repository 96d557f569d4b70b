"""What records of Kinesis may hold: aggregates, damage, and what is no change at all."""

import json
from datetime import timedelta

import pytest

from consumers.streams.aws.kinesis_records import decode_answer
from tests.support.builders.stream_values import values
from tests.support.worlds.kinesis import World, positions, read_all
from worker.store.table import Value


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
