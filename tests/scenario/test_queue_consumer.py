"""Consuming a queue: nothing lost, nothing kept from others longer than needed, and accounts that always balance."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from random import Random

import pytest

from consumers.sqs import STUCK_AFTER_S, QueueConsumer, QueuePace
from consumers.sqs_calls import Message, Refusal, Visibility
from consumers.sqs_custody import HELD_MAX_S
from consumers.sqs_polls import Polling
from tests.fakesqs import FakeQueue
from tests.faults import DROP_BEFORE, NO_FAULT, Fault, Operation, RandomFaults, always, no_faults
from tests.queueworld import QueueWorld
from tests.virtualtime import VirtualClock, on_virtual_time
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.store.backoff import Backoff
from worker.store.plain import plain_map
from worker.store.rowcodec import decode_row
from worker.store.table import Put, TableName

FULL_RETRIES = Backoff(attempts_max=5, first_s=2.0, longest_s=10.0, jitter=lambda: 1.0)


def failing(error: Exception, *bodies: str) -> Callable[[Message], Awaitable[None]]:
    async def fail(message: Message) -> None:
        if not bodies or message.body in bodies:
            raise error

    return fail


# --- the ordinary way -------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_each_message_is_handled_once_and_deleted() -> None:
    world = QueueWorld()
    for number in range(250):
        world.queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(5)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(250)]
    assert len(world.queue) == 0
    assert consumer.counts.done == 250


@on_virtual_time
async def test_no_more_is_taken_than_there_is_room_for() -> None:
    world = QueueWorld(pace=QueuePace(in_hand_max=15))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    for number in range(100):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(300)
        assert (world.queue.in_flight, world.handled.at_once_max) == (15, 15)

        may_end.set()
        await world.clock.sleep(60)

    assert len(world.queue) == 0
    assert world.queue.in_flight_most == 15


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


@on_virtual_time
async def test_deletes_share_calls() -> None:
    world = QueueWorld()
    for number in range(100):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(5)

    assert world.queue.calls["delete"] <= 14


@on_virtual_time
async def test_an_idle_queue_is_asked_six_times_a_minute_and_a_full_one_by_many_polls() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(polls_max=4)))

    async with world.consuming() as consumer:
        await world.clock.sleep(600)
        assert world.queue.calls["receive"] <= 61
        assert consumer.polls_at_once == 1

        for number in range(500):
            world.queue.send(str(number))
        await world.clock.sleep(60)
        assert consumer.polls_at_once == 4

        await world.clock.sleep(60)
        world.queue.calls.clear()
        await world.clock.sleep(600)
        assert world.queue.calls["receive"] <= 61


class AnsweredTogether(FakeQueue):
    """Polls that wait for messages are all answered in one step of the loop, as when they were begun at one moment."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.waiting = asyncio.Event()

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        if not len(self):
            await self.waiting.wait()
        return await super().receive(messages_max=messages_max, wait_s=0, visibility_s=visibility_s)

    def answer(self) -> None:
        self.waiting.set()
        self.waiting = asyncio.Event()


@on_virtual_time
async def test_polls_that_come_back_empty_in_one_moment_do_not_all_end() -> None:
    world = QueueWorld()
    world.queue = queue = AnsweredTogether(world.clock)
    for number in range(200):
        queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(5)
        assert consumer.polls_at_once > 1
        for _ in range(30):
            queue.answer()
            await world.clock.sleep(1)
        queue.send("late")
        queue.answer()
        await world.clock.sleep(5)
        assert world.handled.bodies[-1] == "late"

        consumer.stop()
        queue.answer()


@on_virtual_time
async def test_what_a_ledger_knows_is_deleted_and_not_handled() -> None:
    world = QueueWorld()
    known = {"known"}

    class Ledger:
        async def has(self, message: Message) -> bool:
            return message.body in known

        async def add(self, message: Message) -> None:
            known.add(message.body)

    consumer = world.consumer()
    consumer.ledger = Ledger()
    for body in ("known", "new"):
        world.queue.send(body)

    async with world.consuming(consumer):
        await world.clock.sleep(2)

    assert world.handled.bodies == ["new"]
    assert known == {"known", "new"}
    assert len(world.queue) == 0


# --- guarding ---------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_message_that_takes_long_is_kept_from_others_meanwhile() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(3600)
    message = world.queue.send("slow")

    async with world.consuming():
        await world.clock.sleep(3500)
        assert world.queue.receives(message) == 1
        await world.clock.sleep(200)

    assert world.handled.bodies == ["slow"]
    assert world.queue.calls["change_visibility"] == pytest.approx(120, abs=3)


@on_virtual_time
async def test_messages_of_one_time_are_guarded_by_shared_calls() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(100)
    for number in range(30):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(110)

    assert world.queue.calls["change_visibility"] <= 4 * 3 + 3


@on_virtual_time
async def test_a_handler_that_can_no_longer_be_guarded_is_stopped_before_another_begins() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(200)
    world.queue.send("slow")
    world.queue.trouble = lambda operation: RetryLater("away") if operation == "change_visibility" else None

    async with world.consuming():
        await world.clock.sleep(55)
        assert world.handled.at_once == 0  # stopped before the queue shows it again, at 60 s

        world.queue.trouble = lambda _: None
        await world.clock.sleep(300)

    assert world.handled.at_once_max == 1
    assert world.handled.bodies == ["slow"]


class Slow(FakeQueue):
    """Takes long to say anything about messages that are in hand."""

    said_after_s, is_away = 9.0, True

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        await self.clock.sleep(self.said_after_s)
        if self.is_away:
            raise RetryLater("no answer")
        return await super().change_visibility(changes)


@on_virtual_time
async def test_of_many_handlers_none_outlasts_its_guard_while_extensions_take_long_to_fail() -> None:
    world = QueueWorld()
    world.queue = Slow(world.clock)
    world.handled.before = lambda _: world.clock.sleep(1_000)
    for number in range(60):
        world.queue.send(str(number))

    running = asyncio.create_task(world.consumer().run())
    await world.clock.sleep(58)
    assert world.handled.at_once_max == 60
    assert world.handled.at_once == 0
    running.cancel()
    await asyncio.wait([running])


@on_virtual_time
async def test_many_handlers_are_guarded_although_each_extension_takes_long() -> None:
    world = QueueWorld()
    world.queue = queue = Slow(world.clock)
    queue.is_away = False
    world.handled.before = lambda _: world.clock.sleep(200)
    for number in range(60):
        queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(300)
        assert (consumer.counts.done, consumer.counts.repeated) == (60, 0)


@on_virtual_time
async def test_one_refused_extension_costs_nothing_while_there_is_time() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(100)
    message = world.queue.send("slow")
    refusals = [Refusal(0, "InternalError", is_final=False)] * 2
    world.queue.refuses = lambda operation, _: refusals.pop() if operation == "change_visibility" and refusals else None

    async with world.consuming():
        await world.clock.sleep(90)
        assert world.queue.receives(message) == 1
        await world.clock.sleep(20)

    assert world.handled.bodies == ["slow"]


@on_virtual_time
async def test_a_message_is_given_back_before_the_queue_takes_it_back_after_twelve_hours() -> None:
    world = QueueWorld(check_every_s=60)
    message = world.queue.send("endless")
    world.handled.before = lambda _: world.clock.sleep(100 * 3600)

    async with world.consuming() as consumer:
        await world.clock.sleep(HELD_MAX_S + 120)
        assert world.queue.receives(message) == 2
        assert consumer.counts.released == 1

    assert world.handled.at_once_max == 1


@on_virtual_time
async def test_a_message_shown_again_while_in_hand_is_deleted_by_its_newest_handle() -> None:
    world = QueueWorld()
    message = world.queue.send("seen twice")
    world.handled.before = lambda _: world.clock.sleep(10)

    async with world.consuming() as consumer:
        await world.clock.sleep(5)
        world.queue.show(message)
        await world.clock.sleep(20)

        assert world.handled.bodies == ["seen twice"]
        assert len(world.queue) == 0
        assert (consumer.counts.received, consumer.counts.repeated) == (1, 1)


# --- failures ---------------------------------------------------------------------------------------------------------


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
    assert plain_map(decode_row(body)) == {"body": "poison", "receives": 5}
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
async def test_a_queue_that_nobody_asks_any_more_is_not_well_until_something_ends() -> None:
    world = QueueWorld(pace=QueuePace(in_hand_max=2))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    for number in range(3):
        world.queue.send(str(number))
    standing: list[bool] = []

    async with world.consuming() as consumer:
        for _ in range(2):
            await world.clock.sleep(STUCK_AFTER_S - 5)
            standing.append(consumer.is_well)
        may_end.set()
        await world.clock.sleep(5)
        standing.append(consumer.is_well)

    assert standing == [True, False, True]


@on_virtual_time
async def test_a_queue_is_well_while_it_is_idle_in_trouble_itself_or_waits_for_the_store() -> None:
    """None of it is the fault of this process: whoever replaced it would find the same."""
    world = QueueWorld(pace=QueuePace(in_hand_max=1))
    world.handled.before = lambda _: world.tables.ping()
    standing: list[bool] = []

    async with world.consuming() as consumer:
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.queue.trouble = lambda _: RetryLater("no answer")
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.queue.trouble = lambda _: None
        world.tables.choose = always(DROP_BEFORE)
        world.queue.send("waits")
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.tables.choose = no_faults

    assert standing == [True, True, True]


@on_virtual_time
async def test_a_queue_is_well_while_what_it_hands_things_to_is_away_and_for_a_while_after_that() -> None:
    """An alert waits for the chat in its handler. Once the chat is back it has some time left to be told."""
    world = QueueWorld(pace=QueuePace(in_hand_max=1))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    world.queue.send("waits")
    is_away = True
    consumer = world.consumer()
    consumer.is_waiting = lambda: is_away
    standing: list[bool] = []

    async with world.consuming(consumer):
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        is_away = False
        await world.clock.sleep(STUCK_AFTER_S / 2)
        standing.append(consumer.is_well)
        await world.clock.sleep(STUCK_AFTER_S)
        standing.append(consumer.is_well)
        may_end.set()

    assert standing == [True, True, False]


@on_virtual_time
async def test_a_queue_that_was_stopped_is_asked_no_more_and_well() -> None:
    world = QueueWorld()
    async with world.consuming() as consumer:
        await world.clock.sleep(1)
    await world.clock.sleep(2 * STUCK_AFTER_S)

    assert consumer.is_well


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


# --- groups -----------------------------------------------------------------------------------------------------------


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


# --- ending -----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_clean_stop_redelivers_nothing_and_strands_nothing() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(0.3)
    for number in range(400):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(0.5)
    assert world.queue.in_flight == 0
    assert len(world.queue) == 400 - len(world.handled.bodies)
    async with world.consuming():
        await world.clock.sleep(10)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(400)]


@on_virtual_time
async def test_what_a_last_poll_brings_is_handled_so_that_it_is_delivered_once() -> None:
    world = QueueWorld()

    async with world.consuming() as consumer:
        await world.clock.sleep(5)  # a poll waits for messages for 15 s more
        consumer.stop()
        world.queue.send("just in time")
        await world.clock.sleep(1)

    assert world.handled.bodies == ["just in time"]
    assert len(world.queue) == 0
    assert consumer.counts.released == 0


@on_virtual_time
async def test_what_a_last_poll_brings_when_there_is_no_time_left_is_given_back_untouched() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(wait_s=20)))

    async with world.consuming() as consumer:
        await world.clock.sleep(1)  # a poll waits for messages for 19 s more
        consumer.stop()
        await world.clock.sleep(16)
        message = world.queue.send("too late")

    assert world.handled.bodies == []
    assert world.queue.visible_in_s(message) <= 0
    assert consumer.counts.released == 1


@on_virtual_time
async def test_a_stop_takes_at_most_25_seconds_and_gives_back_what_takes_longer() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(1000)
    message = world.queue.send("endless")
    started = 0.0

    async with world.consuming() as consumer:
        await world.clock.sleep(1)
        started = world.clock.monotonic()
    took_s = world.clock.monotonic() - started

    assert 15 <= took_s <= 25
    assert world.queue.visible_in_s(message) <= 0
    assert consumer.counts.released == 1


@on_virtual_time
async def test_a_stop_of_an_idle_consumer_takes_at_most_11_seconds() -> None:
    world = QueueWorld()
    started = 0.0

    async with world.consuming():
        await world.clock.sleep(0.5)
        started = world.clock.monotonic()

    assert world.clock.monotonic() - started <= 11


@on_virtual_time
async def test_a_second_stop_waits_for_no_handler() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(wait_s=1)))
    world.handled.before = lambda _: world.clock.sleep(1000)
    world.queue.send("endless")

    async with world.consuming() as consumer:
        await world.clock.sleep(0.5)
        started = world.clock.monotonic()
        consumer.stop()
        consumer.stop()
    assert world.clock.monotonic() - started < 2


@on_virtual_time
async def test_a_stop_ends_in_time_although_the_queue_does_not_answer() -> None:
    world = QueueWorld()
    for number in range(5):
        world.queue.send(str(number))
    consumer = world.consumer()
    running = asyncio.create_task(consumer.run())
    await world.clock.sleep(0.1)
    world.queue.trouble = lambda operation: None if operation == "receive" else RetryLater("away")
    await world.clock.sleep(1)

    started = world.clock.monotonic()
    consumer.stop()
    await running

    assert world.clock.monotonic() - started <= 25
    assert len(world.queue) == 5  # they come again


@on_virtual_time
async def test_a_poll_that_is_never_answered_does_not_hold_up_a_stop() -> None:
    world = QueueWorld()
    world.queue.latency_s = 1000
    started = 0.0

    async with world.consuming():
        await world.clock.sleep(1)
        started = world.clock.monotonic()

    assert world.clock.monotonic() - started <= 25


@on_virtual_time
async def test_what_a_crash_had_in_hand_comes_again() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(10)
    for number in range(20):
        world.queue.send(str(number))

    await world.consume_and_crash(after_s=5)
    async with world.consuming():
        await world.clock.sleep(120)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(20)]


# --- everything at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_whatever_goes_wrong_every_message_is_handled_or_parked_and_the_accounts_balance(seed: int) -> None:
    @on_virtual_time
    async def soak() -> None:
        random = Random(seed)
        world = QueueWorld(pace=QueuePace(in_hand_max=40), check_every_s=0.05)
        world.queue.trouble = lambda _: RetryLater("away") if random.random() < 0.1 else None
        world.queue.refuses = lambda _o, _h: (
            Refusal(0, "InternalError", is_final=False) if random.random() < 0.1 else None
        )

        async def sometimes(message: Message) -> None:
            await world.clock.sleep(random.expovariate(1 / 5))
            if random.random() < 0.2:
                raise RetryLater("unlucky")

        world.handled.before = sometimes
        sent: list[str] = []
        for _ in range(5):  # workers come and go, one of them in an instant
            async with world.consuming():
                for _ in range(60):
                    sent.append(str(len(sent)))
                    world.queue.send(sent[-1])
                    await world.clock.sleep(random.uniform(0, 0.5))
            await world.consume_and_crash(after_s=random.uniform(0, 5))
        async with world.consuming():
            await world.clock.sleep(900)

        assert len(world.queue) == 0
        parked = {letter.id for letter in await world.letters_kept()}
        lost = [body for body in sent if body not in world.handled.bodies and f"m{int(body) + 1}" not in parked]
        assert lost == []

    soak()


def test_a_consumer_that_was_stopped_before_it_began_takes_nothing() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = QueueWorld()
        world.queue.send("a")
        consumer: QueueConsumer = world.consumer()
        consumer.stop()

        await consumer.run()

        assert world.queue.calls["receive"] == 0

    scenario()
