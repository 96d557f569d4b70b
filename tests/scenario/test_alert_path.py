"""Both ends of the way that probes take, and how far a feed's readers are behind."""

from datetime import timedelta

from consumers.alerts.probe import answering_probes
from consumers.alerts.slack import CALL_S
from consumers.streams.embedded.feed import FeedPosition, feed_name
from consumers.streams.embedded.lag import FeedLags
from consumers.streams.progress import STUCK_AFTER_S
from scheduler.watchdog.heartbeat_ping import pinging
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.http_target import a_web_server, answer
from tests.support.worlds.engine import a_world
from worker.core.errors import RetryLater
from worker.core.model.events import Event, EventType
from worker.core.model.keys import SessionId
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.store.repos.delivery.alert_probe import AlertPath, AlertProbe, sent_write
from worker.store.repos.leases import Lease, Leases
from worker.store.table import TableName


@on_virtual_time
async def test_a_probe_is_answered_and_every_other_event_is_handed_on() -> None:
    world = await a_world()
    path, shown = AlertPath(world.tables), list[Event]()

    async def show(event: Event) -> None:
        shown.append(event)

    deliver = answering_probes(show, path, world.clock)
    probe = Event(id="probe-1", type=EventType.ALERT_PATH_CHECK, at=world.clock.now())
    alert = Event(id="alert-1", type=EventType.SLA_BREACH, at=world.clock.now())
    for event in (probe, alert, probe):
        await deliver(event)

    assert shown == [alert]
    assert (await path.load()).arrived == "probe-1"


@on_virtual_time
async def test_a_probe_is_let_go_unanswered_while_people_cannot_be_reached() -> None:
    """It would become a dead letter with every quarter of an hour that the chat is away, and say nothing any more."""
    world = await a_world()
    path = AlertPath(world.tables)

    async def show(_: Event) -> None:
        return

    async def unreachable() -> None:
        raise RetryLater("the chat does not answer")

    deliver = answering_probes(show, path, world.clock, unreachable)
    began = world.clock.monotonic()
    await deliver(Event(id="probe-1", type=EventType.ALERT_PATH_CHECK, at=world.clock.now()))

    assert (await path.load()).arrived is None
    assert world.clock.monotonic() - began < STUCK_AFTER_S - CALL_S


@on_virtual_time
async def test_a_probe_is_answered_when_people_are_reached_after_a_moment() -> None:
    world = await a_world()
    path, tries = AlertPath(world.tables), 0

    async def show(_: Event) -> None:
        return

    async def reached_at_last() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RetryLater("the chat does not answer")

    deliver = answering_probes(show, path, world.clock, reached_at_last)
    await deliver(Event(id="probe-1", type=EventType.ALERT_PATH_CHECK, at=world.clock.now()))

    assert (await path.load()).arrived == "probe-1"


@on_virtual_time
async def test_a_probe_that_comes_after_a_later_one_does_not_take_back_that_one_has_arrived() -> None:
    world = await a_world()
    path, now = AlertPath(world.tables), world.clock.now()

    async def show(_: Event) -> None:
        return

    for probe_id in ("probe-1", "probe-2"):
        probe = AlertProbe(id=probe_id, sent_at=now, waiting_since=now)
        await world.tables.commit(sent_write(await path.load(), probe))
    deliver = answering_probes(show, path, world.clock)
    for probe_id in ("probe-2", "probe-1"):
        await deliver(Event(id=probe_id, type=EventType.ALERT_PATH_CHECK, at=now))

    assert (await path.load()).is_answered


@on_virtual_time
async def test_a_reader_is_as_far_behind_as_the_oldest_change_it_has_not_read_is_old() -> None:
    world = await a_world()
    leases = Leases(world.tables, "g")
    lags = FeedLags(world.tables, leases, world.clock, [TableName.CONTROL])
    stream = feed_name(TableName.CONTROL)
    assert await lags() == {stream: timedelta()}

    await world.write("ready", status="done")
    await world.wait(minutes=10)
    behind = (await lags())[stream]
    assert behind >= timedelta(minutes=10)

    await leases.create(Lease(stream=stream, shard="0"))
    seen = await leases.get(stream, "0")
    assert seen is not None
    held = await leases.take_free(seen, SessionId("w1"))
    assert held is not None
    await leases.checkpoint(held, FeedPosition(await world.tables.last_position(), world.clock.now()).text())
    # The note of it is a change as well, and just as old as it is.
    assert (await lags())[stream] == timedelta()


async def test_the_heartbeats_address_is_asked_for_and_what_it_answers_is_told_without_it() -> None:
    async with a_web_server(answer(200)) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        assert await pinging(client, server.url("/ping/secret"))() is None
    async with a_web_server(answer(503)) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        said = await pinging(client, server.url("/ping/secret"))()

    assert said == "the heartbeat's address answered 503"


async def test_the_heartbeats_address_may_not_lie_in_our_own_network() -> None:
    async with a_web_server(answer(200)) as server, HttpClient(AddressPolicy.parse([])) as client:
        said = await pinging(client, server.url("/ping/secret"))()

        assert said is not None
        assert "secret" not in said
        assert server.received == []
