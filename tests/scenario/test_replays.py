"""Replaying dead letters while workers run: in order, once more through the same handling, and nothing overtaken."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.outbox.dead_letter_replay import LOOK_EVERY_S, Replayer, Way, delivered, handled, sent_back
from consumers.outbox.relay import dead_letter_source
from consumers.outbox.routes import envelope
from consumers.streams.lazy_row import LazyRow
from consumers.streams.parking import Parking
from consumers.streams.source import Position, Record
from consumers.streams.unreadable import UnreadableRecordLetter, UnreadableRecordLetters
from tests.support.builders.values import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.stream import FULL_WAITS, GROUP, STREAM, UNFENCED, World
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter
from worker.store.repos.leases import Lease
from worker.store.row_codec import encode
from worker.store.table import Change, ChangeKind, Key, TableName

SERVED_S: Final = LOOK_EVERY_S * 3


class Fixable:
    """A handler that refuses what some sensors say until it is mended."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)

    async def __call__(self, change: Change) -> None:
        if change.key.sk.removeprefix("SENSOR#") in self.refused:
            raise Rejected("not understood by this version")


class ReplayWorld(World):
    """A consumer, and beside it whoever replays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.requests = Replays(self.tables, GROUP)
        self.ways: dict[str, Way] = {STREAM: handled(self.seen.handle)}

    async def ask(self, letter: DeadLetter) -> None:
        await self.requests.ask(letter, self.clock.now())

    @asynccontextmanager
    async def replaying(self, *, is_lost: bool = False) -> AsyncGenerator[Replayer]:
        replayer = Replayer(
            self.ways,
            requests=self.requests,
            letters=self.letters,
            keys=self.parked,
            tries=RetryPolicy(self.clock, self.tables.ping, FULL_WAITS),
        )
        await self.leases.create(Lease(stream="replays", shard="0"))
        free = await self.leases.get("replays", "0")
        assert free is not None
        taken = await self.leases.take_free(free, SessionId("replayer"))
        assert taken is not None
        fence = Fence(SessionId("replayer"), self.clock, UNFENCED, registered_at=self.clock.monotonic())
        held = HeldLease(taken, self.leases, fence, self.clock)
        held.is_over = is_lost
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replayer.hold(held))
            yield replayer
            held.stop(next_owner=None)
        await held.give_up()


@on_virtual_time
async def test_after_a_fix_a_replay_handles_the_record_and_those_of_its_key_that_followed_in_order() -> None:
    world = ReplayWorld()
    world.seen.before = mendable = Fixable("bad")
    async with world.consuming() as consumer, world.replaying():
        for value in (1, 2, 3):
            await world.sensor("bad", value)
            await world.sensor("good", value)
        await world.clock.sleep(2)
        assert consumer.counts.parked == 3

        mendable.refused.clear()
        await world.ask((await world.letters_kept())[-1])  # whichever is named, the oldest goes first
        await world.clock.sleep(SERVED_S)
        await world.sensor("bad", 4)
        await world.clock.sleep(2)

    assert world.seen.of("bad") == [1, 2, 3, 4]
    assert await world.letters_kept() == []
    assert await world.parked.list(STREAM) == []
    assert await world.requests.list() == []


@on_virtual_time
async def test_what_fails_again_stays_with_what_was_said_this_time_and_its_key_stays_parked() -> None:
    world = ReplayWorld()
    world.seen.before = Fixable("bad")
    async with world.consuming(), world.replaying():
        await world.sensor("bad", 1)
        await world.sensor("bad", 2)
        await world.clock.sleep(2)
        for letter in await world.letters_kept():
            await world.ask(letter)
        await world.clock.sleep(SERVED_S)

    first, second = await world.letters_kept()
    assert first.history == ("not understood by this version",) * 2
    assert second.history == (), "it was not tried: it must not overtake the first"
    assert len(await world.parked.list(STREAM)) == 1
    assert await world.requests.list() == [], "a person asks again when something has changed"


@on_virtual_time
async def test_records_that_follow_while_their_key_is_replayed_are_neither_lost_nor_overtaken() -> None:
    world = ReplayWorld()
    world.seen.before = mendable = Fixable("bad")

    async def slowly(change: Change) -> None:
        await world.clock.sleep(0.7)
        await mendable(change)

    async with world.consuming(), world.replaying():
        await world.sensor("bad", 1)
        await world.clock.sleep(2)
        mendable.refused.clear()
        world.seen.before = slowly
        await world.ask((await world.letters_kept())[0])
        for value in range(2, 30):
            await world.sensor("bad", value)
            await world.clock.sleep(1)
        await world.clock.sleep(60)

    assert world.seen.of("bad") == list(range(1, 30))
    assert await world.letters_kept() == []


@on_virtual_time
async def test_letters_of_a_key_that_is_parked_no_more_are_replayed_up_to_the_one_that_was_named() -> None:
    world = ReplayWorld()
    world.seen.before = mendable = Fixable("bad")
    async with world.consuming(), world.replaying():
        for value in (1, 2, 3):
            await world.sensor("bad", value)
            await world.clock.sleep(1)
        [parked] = await world.parked.list(STREAM)
        await world.parked.release(STREAM, parked.key_hash)
        mendable.refused.clear()
        _, second, third = await world.letters_kept()
        await world.ask(second)
        await world.clock.sleep(SERVED_S)

    assert world.seen.of("bad") == [1, 2]
    assert await world.letters_kept() == [third]


@on_virtual_time
async def test_trouble_that_passes_is_waited_out() -> None:
    world = ReplayWorld()
    world.seen.before = mendable = Fixable("bad")
    troubles = iter([RetryLater("throttled")] * 3)

    async def throttled_at_first(_: Change) -> None:
        for trouble in troubles:
            raise trouble

    async with world.consuming(), world.replaying():
        await world.sensor("bad", 1)
        await world.clock.sleep(2)
        mendable.refused.clear()
        world.seen.before = throttled_at_first
        await world.ask((await world.letters_kept())[0])
        await world.clock.sleep(SERVED_S)

    assert world.seen.of("bad") == [1]


@on_virtual_time
async def test_a_record_that_cannot_be_looked_at_is_not_replayed_as_if_it_had_said_nothing() -> None:
    world = ReplayWorld()
    image = LazyRow({"value": {"NONSENSE": 1}})
    key = Key("PIPELINE#orders", "SENSOR#a")
    change = Change(position=1, table=TableName.CONTROL, key=key, kind=ChangeKind.MODIFY, image=image, at=NOON)
    parking = Parking(stream=STREAM, letters=world.letters, keys=world.parked, clock=world.clock)
    await parking.put(Record(Position("1"), change), GivenUp("cannot be looked at", ()), "lane")
    [letter] = await world.letters_kept()

    async with world.replaying():
        await world.ask(letter)
        await world.clock.sleep(SERVED_S)

    [kept] = await world.letters_kept()
    assert "'value' is no value of a row" in kept.reason
    assert world.seen.values == []


@on_virtual_time
async def test_messages_go_back_to_their_queue_and_events_over_their_route() -> None:
    world = ReplayWorld()
    sent: list[tuple[str, str | None]] = []
    told: list[Event] = []

    async def send(body: str, group: str | None) -> None:
        sent.append((body, group))

    async def deliver(event: Event) -> None:
        told.append(event)

    world.ways |= {"queue.alerts": sent_back(send), dead_letter_source("console"): delivered(deliver)}
    event = Event(id="e1", type="SLA_MET", at=NOON, pipeline="orders", schedule="daily", detail={"late": False})
    message = DeadLetter(id="m1", source="queue.alerts", at=NOON, reason="no")
    route = DeadLetter(id="e1", source=dead_letter_source("console"), at=NOON, reason="no")
    await world.letters.put(message, encode({"body": "{}", "group": "g", "receives": 7}), now=NOON)
    await world.letters.put(route, encode(envelope(event)), now=NOON)
    async with world.replaying():
        await world.ask(message)
        await world.ask(route)
        await world.clock.sleep(SERVED_S)

    assert sent == [("{}", "g")]
    assert told == [event]
    assert await world.letters.list("queue.alerts") == await world.letters.list(route.source) == []


@on_virtual_time
async def test_a_letter_whose_source_nobody_reads_says_so() -> None:
    world = ReplayWorld()
    letter = DeadLetter(id="m1", source="queue.old", at=NOON, reason="no")
    await world.letters.put(letter, b"", now=NOON)
    async with world.replaying():
        await world.ask(letter)
        await world.clock.sleep(SERVED_S)

    [kept] = await world.letters.list("queue.old")
    assert kept.reason == "no worker reads queue.old any more; drop the dead letter"
    assert await world.letters.sources() == ["queue.old"]


@on_virtual_time
async def test_a_record_that_was_no_change_of_a_row_cannot_be_replayed_and_says_so() -> None:
    world = ReplayWorld()
    stray = UnreadableRecordLetter(
        source="shard-1", position=Position("1"), at=NOON, body=b"hello", reason="it is not JSON"
    )
    await UnreadableRecordLetters(world.letters, STREAM, world.clock).keep(stray)
    [letter] = await world.letters_kept()
    async with world.replaying():
        await world.ask(letter)
        await world.clock.sleep(SERVED_S)

    [kept] = await world.letters_kept()
    assert "there is nothing to handle; drop the dead letter" in kept.reason
    assert world.seen.values == []


@on_virtual_time
async def test_whoever_has_lost_the_duty_replays_nothing_more() -> None:
    world = ReplayWorld()
    world.seen.before = mendable = Fixable("bad")
    async with world.consuming():
        await world.sensor("bad", 1)
        await world.clock.sleep(2)
        mendable.refused.clear()
        [letter] = await world.letters_kept()
        with pytest.RaisesGroup(LeaseLost):
            async with world.replaying(is_lost=True):
                await world.ask(letter)
                await world.clock.sleep(SERVED_S)

    assert world.seen.of("bad") == []
    assert await world.letters_kept() == [letter]
