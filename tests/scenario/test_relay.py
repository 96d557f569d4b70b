"""The relay: each event of the outbox over every route that wants it, in order per pipeline, none lost."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import structs

from consumers.delivery.retry import RetryPolicy
from consumers.outbox.bus import Entry, EventBus
from consumers.outbox.patterns import parse_pattern
from consumers.outbox.relay import Relay, dead_letter_source
from consumers.outbox.routes import Route
from consumers.streams.consumer import ReadPace, StreamConsumer
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.lazy_row import LazyRow
from consumers.streams.parking import Parking
from consumers.streams.source import Batch, Position, Record
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.stream import FULL_WAITS, STREAM, World
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event, EventType
from worker.core.model.keys import pipeline_pk, stamped_sk
from worker.store.repos.events import Events, event_write
from worker.store.row_codec import decode_row
from worker.store.table import Delete, Key, TableName, Update

EVERYTHING = parse_pattern({"source": ["interlock"]})


class Inbox:
    """A target that remembers, and fails as often as it is told to."""

    def __init__(self, *, failures: int = 0, error: Exception | None = None) -> None:
        self.got: list[Event] = []
        self._failures, self._error = failures, error or RetryLater("the chat is down")

    async def deliver(self, event: Event) -> None:
        if self._failures:
            self._failures -= 1
            raise self._error
        self.got.append(event)

    @property
    def messages(self) -> list[str]:
        return [event.message for event in self.got]


class RelayWorld(World):
    def route(self, *routes: Route) -> None:
        self.routes = routes
        self.events = Events(self.tables)
        self.source = TableFeed(self.store, TableName.EVENTS, self.clock)
        self.pace, self.sent = ReadPace(), 0
        self.relay = Relay(
            routes,
            events=self.events,
            letters=self.letters,
            tries=RetryPolicy(self.clock, self.tables.ping, FULL_WAITS),
            clock=self.clock,
            on_sent=self._count,
        )

    def _count(self) -> None:
        self.sent += 1

    def consumer(self) -> StreamConsumer:
        assert self.source is not None
        return StreamConsumer(
            source=self.source,
            subscription=self.relay.subscription(),
            parking=Parking(stream=STREAM, letters=self.letters, keys=self.parked, clock=self.clock),
            tries=RetryPolicy(self.clock, self.tables.ping, FULL_WAITS),
            clock=self.clock,
            pace=self.pace,
        )

    async def tell(self, message: str, *, pipeline: str = "orders", event_type: str = EventType.JOB_FAILED) -> Event:
        """Decide something, as the engine does."""
        event = Event(id=message, type=event_type, at=self.clock.now(), pipeline=pipeline, message=message)
        await self.store.commit(event_write(event))
        return event

    @asynccontextmanager
    async def relaying(self, session: str = "a") -> AsyncGenerator[None]:
        async with self.consuming(session):
            yield


def world_with(**inboxes: Inbox) -> RelayWorld:
    world = RelayWorld()
    world.route(*(Route(name, EVERYTHING, inbox.deliver) for name, inbox in inboxes.items()))
    return world


@on_virtual_time
async def test_what_was_decided_before_the_relay_was_there_is_told_too() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    await world.tell("before")

    async with world.relaying():
        await world.tell("after")
        await world.clock.sleep(3)

    assert inbox.messages == ["before", "after"]


@on_virtual_time
async def test_an_event_that_no_route_takes_is_passed_over_without_being_handled() -> None:
    failures, starts = Inbox(), Inbox()
    world = RelayWorld()
    world.route(
        Route("failures", parse_pattern({"detail-type": ["JOB_FAILED"]}), failures.deliver),
        Route("starts", parse_pattern({"detail-type": [{"prefix": "JOB_TRIGG"}]}), starts.deliver),
    )
    for number in range(2):
        await world.tell(f"failed {number}")
        await world.tell(f"began {number}", event_type=EventType.JOB_TRIGGERED)
        await world.tell(f"passed {number}", event_type=EventType.VALIDATION_PASSED)

    async with world.consuming() as reader:
        await world.clock.sleep(3)

    assert failures.messages == ["failed 0", "failed 1"]
    assert starts.messages == ["began 0", "began 1"]
    assert (reader.counts.received, reader.counts.done) == (4, 4)


@on_virtual_time
async def test_an_event_counts_as_sent_once_if_a_route_that_sends_has_delivered_it() -> None:
    refusing, counted = Inbox(failures=2, error=Rejected("no such channel")), Inbox()
    of_orders = parse_pattern({"detail": {"pipelineId": ["orders"]}})
    world = RelayWorld()
    world.route(
        Route("chat", parse_pattern({"detail-type": ["JOB_FAILED"]}), refusing.deliver),
        Route("bus", of_orders, Inbox().deliver),
        Route("targets", of_orders, Inbox().deliver),
        Route("meters", EVERYTHING, counted.deliver, only_counts=True),
    )
    await world.tell("over two routes of three")
    await world.tell("refused by its only route", pipeline="payments")
    await world.tell("only counted", pipeline="payments", event_type=EventType.JOB_TRIGGERED)

    async with world.relaying():
        await world.clock.sleep(3)

    assert (len(counted.got), world.sent) == (3, 1)


@on_virtual_time
async def test_a_route_that_tests_more_than_the_type_is_asked_about_each_event() -> None:
    inbox = Inbox()
    world = RelayWorld()
    orders_only = parse_pattern({"detail-type": ["JOB_FAILED"], "detail": {"pipelineId": ["orders"]}})
    world.route(Route("chat", orders_only, inbox.deliver))
    await world.tell("one")
    await world.tell("two", pipeline="invoices")

    async with world.relaying():
        await world.clock.sleep(3)

    assert inbox.messages == ["one"]


@on_virtual_time
async def test_a_successor_repeats_nothing_that_was_checkpointed() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    await world.tell("one")
    async with world.relaying():
        await world.clock.sleep(3)
    async with world.relaying("b"):
        await world.tell("two")
        await world.clock.sleep(3)

    assert inbox.messages == ["one", "two"]


@on_virtual_time
async def test_only_inserted_events_of_our_own_leave() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    ours = await world.tell("ours")
    foreign = Event(id="f", type="JOB_FAILED", at=world.clock.now(), pipeline="orders", message="foreign")
    await world.events.put_foreign(foreign)
    thread = Key(pipeline_pk("orders"), "THREAD#daily#2026-03-03")
    await world.store.commit(Update(table=TableName.EVENTS, key=thread, set={"out": True, "threadTs": "1"}))
    where = Key(pipeline_pk("orders"), stamped_sk(ours.at, ours.type, ours.id))
    await world.store.commit(Update(table=TableName.EVENTS, key=where, set={"seen": True}))
    await world.store.commit(Delete(TableName.EVENTS, where))

    async with world.relaying():
        await world.clock.sleep(3)

    assert inbox.messages == ["ours"]


@on_virtual_time
async def test_each_route_carries_what_its_pattern_wants() -> None:
    failures, orders = Inbox(), Inbox()
    world = RelayWorld()
    world.route(
        Route("failures", parse_pattern({"detail-type": [{"prefix": "JOB_F"}]}), failures.deliver),
        Route("orders", parse_pattern({"detail": {"pipelineId": ["orders"]}}), orders.deliver),
    )
    await world.tell("a", event_type=EventType.JOB_COMPLETED)
    await world.tell("b")
    await world.tell("c", pipeline="payments")

    async with world.relaying():
        await world.clock.sleep(3)

    assert failures.messages == ["b", "c"]
    assert orders.messages == ["a", "b"]


@on_virtual_time
async def test_events_of_one_pipeline_keep_their_order_while_its_route_is_in_trouble_and_others_go_on() -> None:
    class FirstOfOrdersFails(Inbox):
        async def deliver(self, event: Event) -> None:
            if event.pipeline == "orders" and self._failures:
                self._failures -= 1
                raise RetryLater("the chat is down")
            self.got.append(event)

    inbox = FirstOfOrdersFails(failures=3)
    world = world_with(chat=inbox)
    async with world.relaying():
        for number in range(3):
            await world.tell(f"o{number}")
        await world.tell("p", pipeline="payments")
        await world.clock.sleep(1)
        assert inbox.messages == ["p"]
        await world.clock.sleep(10)

    assert inbox.messages == ["p", "o0", "o1", "o2"]


@on_virtual_time
async def test_a_route_that_gives_up_keeps_the_event_and_no_other_route_repeats_it() -> None:
    broken, fine = Inbox(failures=5), Inbox()
    world = world_with(broken=broken, fine=fine)
    async with world.relaying():
        event = await world.tell("one")
        await world.clock.sleep(60)
        await world.tell("two")
        await world.clock.sleep(3)

    [letter] = await world.letters.list(dead_letter_source("broken"))
    body = decode_row(await world.letters.body(letter) or b"")
    assert (letter.id, letter.history) == (event.id, ("the chat is down",) * 5)
    assert body["detail-type"] == "JOB_FAILED"
    assert fine.messages == ["one", "two"]
    assert broken.messages == ["two"]


@on_virtual_time
async def test_an_event_that_can_never_be_delivered_is_kept_at_once() -> None:
    refusing = Inbox(failures=1, error=Rejected("no such channel"))
    world = world_with(chat=refusing)
    async with world.relaying():
        await world.tell("one")
        await world.tell("two")
        await world.clock.sleep(1)

        assert refusing.messages == ["two"]
    assert [letter.reason for letter in await world.letters.list(dead_letter_source("chat"))] == ["no such channel"]


class Damaged(TableFeed):
    """Whether its events are to be sent is said by no value, as a foreign producer may write it to a stream."""

    async def read(self, after: Position) -> Batch:
        batch = await super().read(after)
        return Batch([_damaged(record) for record in batch.records], batch.read_to, batch.is_end)


def _damaged(record: Record) -> Record:
    key = record.change.key
    if key.pk != pipeline_pk("orders"):  # dead letters are in the same table
        return record
    image = LazyRow({"PK": {"S": key.pk}, "SK": {"S": key.sk}, "out": {"NONSENSE": 1}})
    return Record(record.position, structs.replace(record.change, image=image))


@on_virtual_time
async def test_a_record_of_which_nobody_can_say_whether_it_is_to_be_sent_is_kept_and_ends_no_worker() -> None:
    world = world_with(console=Inbox())
    world.source = Damaged(world.store, TableName.EVENTS, world.clock)
    async with world.relaying():
        await world.tell("n1")
        await world.clock.sleep(5)

    [letter] = await world.letters.list(STREAM)
    assert "'out' is no value of a row" in letter.reason


@on_virtual_time
async def test_a_crash_before_the_checkpoint_delivers_again_under_the_same_id() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    world.pace = ReadPace(checkpoint_s=60)
    await world.tell("one")

    await world.consume_and_crash(after_s=3)
    async with world.relaying("b"):
        await world.clock.sleep(3)

    assert [event.id for event in inbox.got] == ["one", "one"]


@on_virtual_time
async def test_what_the_feed_lost_is_sent_from_the_index_in_order() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    await world.tell("old")
    async with world.relaying():
        await world.clock.sleep(3)
    await world.clock.sleep(timedelta(hours=1).total_seconds())
    await world.tell("lost-1")
    await world.clock.sleep(1)
    await world.tell("lost-2", event_type=EventType.JOB_COMPLETED)
    await world.clock.sleep(timedelta(hours=3).total_seconds())
    await world.tell("lost-3")
    foreign = Event(id="f", type="JOB_FAILED", at=world.clock.now(), pipeline="orders", message="foreign")
    await world.events.put_foreign(foreign)
    await world.store.trim(await world.store.last_position())

    async with world.relaying("b"):
        await world.clock.sleep(3)
        await world.tell("new")
        await world.clock.sleep(3)

    assert inbox.messages[0] == "old"
    assert [message for message in inbox.messages[1:] if message != "old"] == ["lost-1", "lost-2", "lost-3", "new"]


@on_virtual_time
async def test_a_bus_that_is_away_delays_events_and_its_reader_does_not_pass_for_stuck() -> None:
    world = RelayWorld()
    taken: list[Entry] = []
    back_at = world.clock.monotonic() + 3_600

    async def put(entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
        if world.clock.monotonic() < back_at:
            raise RetryLater("the bus is away")
        taken.extend(entries)
        return [{} for _ in entries]

    bus = EventBus(put, "interlock-events", world.clock)
    world.route(Route("bus", EVERYTHING, bus.deliver, bus.is_waiting))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bus.run())
        async with world.consuming() as reader:
            await world.tell("first")
            await world.tell("second")
            await world.clock.sleep(3_500)
            assert reader.is_well
            assert reader.counts.returned == 0
            await world.clock.sleep(200)
            assert not bus.is_waiting()
        running.cancel()

    assert [json.loads(entry["Detail"])["message"] for entry in taken] == ["first", "second"]
