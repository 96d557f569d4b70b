"""Messages that fail and queues in trouble: tried again with patience, parked at last, and nobody else delayed."""

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from consumers.queues.consumer import QueuePace
from consumers.queues.queue import Message, Refusal
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import (
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    Operation,
    RandomFaults,
    always,
    no_faults,
)
from tests.support.worlds.queue import QueueWorld
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.runtime.backoff import Backoff
from worker.store.row_codec import decode_row
from worker.store.rows import to_json_map
from worker.store.table import Put, TableName

FULL_RETRIES = Backoff(attempts_max=5, first_s=2.0, longest_s=10.0, jitter=lambda: 1.0)


def failing(error: Exception, *bodies: str) -> Callable[[Message], Awaitable[None]]:
    async def fail(message: Message) -> None:
        if not bodies or message.body in bodies:
            raise error

    return fail


@on_virtual_time
async def test_a_failure_comes_back_later_each_time_and_is_parked_whole_at_last() -> None:
    world = QueueWorld(pace=QueuePace(retries=FULL_RETRIES))
    message = world.queue.send("poison")
    tried_at: list[float] = []

    async def fail(_: Message) -> None:
        tried_at.append(world.clock.monotonic())
        raise RetryLater("no answer")

    world.handled.before = fail
    async with world.consuming() as consumer:
        await world.clock.sleep(60)

    waits = [later - earlier for earlier, later in pairwise(tried_at)]
    assert waits == pytest.approx([2, 4, 8, 10], abs=0.5)
    [letter] = await world.letters_kept()
    assert letter.id == message
    assert "failed 5 times, last: no answer" in letter.reason
    body = await world.letters.body(letter)
    assert body is not None
    assert to_json_map(decode_row(body)) == {"body": "poison", "receives": 5}
    assert len(world.queue) == 0
    assert (consumer.counts.failed, consumer.counts.parked) == (4, 1)


@on_virtual_time
async def test_a_message_that_deployments_gave_back_is_not_parked_at_its_first_failure() -> None:
    """What the queue counts are receipts: those of workers that were stopped say nothing about the message."""
    world = QueueWorld(pace=QueuePace(finish_s=0, retries=FULL_RETRIES))
    message = world.queue.send("slow")
    world.handled.before = lambda _: world.clock.sleep(600)
    for _ in range(6):
        async with world.consuming():
            await world.clock.sleep(1)
    assert world.queue.receives(message) == 6
    failures = 0

    async def fail_twice(_: Message) -> None:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise RetryLater("no answer")

    world.handled.before = fail_twice
    async with world.consuming() as consumer:
        await world.clock.sleep(30)

    assert (consumer.counts.failed, consumer.counts.done) == (2, 1)
    assert await world.letters_kept() == []


@on_virtual_time
async def test_failures_are_counted_over_all_workers() -> None:
    world = QueueWorld(pace=QueuePace(retries=FULL_RETRIES))
    world.queue.send("poison")
    world.handled.before = failing(RetryLater("no answer"))

    for _ in range(3):
        async with world.consuming():
            await world.clock.sleep(10)

    [letter] = await world.letters_kept()
    assert "failed 5 times" in letter.reason


@on_virtual_time
async def test_poison_delays_nobody_else() -> None:
    world = QueueWorld()
    world.handled.before = failing(RetryLater("no"), "poison")
    world.queue.send("poison")
    for number in range(50):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(1)

    assert len(world.handled.bodies) == 50


@on_virtual_time
async def test_what_can_never_be_handled_is_parked_at_once() -> None:
    world = QueueWorld()
    world.handled.before = failing(Rejected("not JSON"))
    world.queue.send("{")

    async with world.consuming():
        await world.clock.sleep(2)

    assert [letter.reason for letter in await world.letters_kept()] == ["not JSON"]
    assert len(world.queue) == 0


@on_virtual_time
async def test_without_dead_letters_the_queues_own_redrive_takes_poison_away() -> None:
    world = QueueWorld(receives_max=4, pace=QueuePace(retries=FULL_RETRIES))
    world.handled.before = failing(RetryLater("no"))
    world.queue.send("poison")
    consumer = world.consumer()
    consumer.park = None

    async with world.consuming(consumer):
        await world.clock.sleep(120)

    assert world.queue.redriven == ["poison"]


@on_virtual_time
async def test_while_the_store_is_away_nothing_is_held_against_a_message() -> None:
    world = QueueWorld()

    async def needs_store(_: Message) -> None:
        await world.tables.ping()

    world.handled.before = needs_store
    message = world.queue.send("patient")
    world.tables.choose = always(DROP_BEFORE)

    async with world.consuming() as consumer:
        await world.clock.sleep(3 * 3600)
        assert world.queue.receives(message) == 1

        world.tables.choose = no_faults
        await world.clock.sleep(30)

    assert world.handled.bodies == ["patient"]
    assert consumer.counts.failed == 0
    assert await world.letters_kept() == []


@on_virtual_time
async def test_messages_outlast_a_store_that_loses_every_fourth_call_and_answers_pings() -> None:
    world = QueueWorld()
    faults = RandomFaults(random=Random(7), lost_requests=0.25)

    def choose(call: Operation) -> Fault:
        return NO_FAULT if call is Operation.PING else faults(call)

    async def needs_store(message: Message) -> None:
        for number in range(10):
            await world.watched.commit(Put(TableName.CONTROL, {"PK": message.body, "SK": str(number)}))

    world.tables.choose, world.handled.before = choose, needs_store
    for number in range(50):
        world.queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(3600)

    assert consumer.counts.done == len(world.handled.bodies) == 50
    assert await world.letters_kept() == []


@on_virtual_time
async def test_a_delete_that_fails_in_part_is_repeated_for_that_part() -> None:
    world = QueueWorld()
    refused: Counter[str] = Counter()

    def refuse(operation: str, handle: str) -> Refusal | None:
        refused[handle] += operation == "delete"
        return Refusal(0, "InternalError", is_final=False) if 0 < refused[handle] < 3 and handle < "m3" else None

    world.queue.refuses = refuse
    for number in range(10):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(30)
        assert len(world.queue) == 0

    assert len(world.handled.bodies) == 10
    assert refused["m9/1"] == 1


@on_virtual_time
async def test_a_queue_in_trouble_is_asked_again_with_patience() -> None:
    world = QueueWorld()
    world.queue.trouble = lambda _: RetryLater("OverLimit")
    world.queue.send("late")

    async with world.consuming():
        await world.clock.sleep(600)
        assert world.queue.calls["receive"] < 200

        world.queue.trouble = lambda _: None
        await world.clock.sleep(30)

    assert world.handled.bodies == ["late"]


@on_virtual_time
async def test_a_queue_that_is_not_there_ends_the_consumer() -> None:
    world = QueueWorld()
    world.queue.trouble = lambda _: ConfigError("there is no such queue")

    with pytest.RaisesGroup(ConfigError):
        await world.consumer().run()


@on_virtual_time
async def test_a_group_keeps_its_order_over_failures_and_other_groups_go_on() -> None:
    world = QueueWorld(pace=QueuePace(retries=FULL_RETRIES))
    failures = ["a1"]

    async def fail_once(message: Message) -> None:
        await world.clock.sleep(0.1)
        if message.body in failures:
            failures.remove(message.body)
            raise RetryLater("once")

    world.handled.before = fail_once
    for number in range(4):
        world.queue.send(f"a{number}", group="a")
        world.queue.send(f"b{number}", group="b")

    async with world.consuming() as consumer:
        await world.clock.sleep(1.5)
        assert sorted(world.handled.bodies) == ["a0", "b0", "b1", "b2", "b3"]
        await world.clock.sleep(20)

    assert [body for body in world.handled.bodies if body.startswith("a")] == ["a0", "a1", "a2", "a3"]
    assert (consumer.counts.failed, consumer.counts.released) == (1, 2)
    assert len(world.queue) == 0
