"""Rights that a store takes away and gives back: at the start a person must act, later the worker waits for them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.contract.redis_stores import opened
from tests.support.aws.emulators import use_test_credentials
from tests.support.clock.manual import ManualClock
from tests.support.fakes.http_target import WebServer, a_web_server, answer
from tests.support.redis_server import RedisServer
from worker.core.errors import ConfigError, RetryLater
from worker.core.membership.liveness import Timing
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.heartbeat import Heart, Pulse
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.availability import StoreAvailability, StoreBack, StoreDown, StoreNotice
from worker.store.dynamodb.tables import DynamoTables
from worker.store.failure_counter import count_failures
from worker.store.proven_access import ProvenAccess
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.table import Absent, Key, Put, StaleWrite, TableName
from worker.store.url import RedisPlace, locate

KEY: Final = Key("p", "s")
ALLOWED: Final = answer(200, {}, x_amzn_RequestId="1")
DENIED: Final = answer(400, {"__type": "AccessDeniedException", "message": "not authorized to perform"})


async def outcome(call: Callable[[], Awaitable[object]]) -> type[Exception] | None:
    try:
        await call()
    except (ConfigError, RetryLater) as error:
        return ConfigError if isinstance(error, ConfigError) else RetryLater
    return None


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    use_test_credentials()
    async with a_web_server() as server:
        yield server


def dynamo(server: WebServer, proven: ProvenAccess | None = None) -> DynamoTables:
    settings = ClientSettings(endpoint=server.url("").rstrip("/"), read_s=5.0)
    names = dict.fromkeys(TableName, "t")
    return DynamoTables(names, SystemClock(), settings, backoff=Backoff(attempts_max=1), proven=proven)


async def test_a_policy_that_never_allowed_a_call_is_a_persons_business(server: WebServer) -> None:
    tables = dynamo(server)
    await tables.open()
    server.behaviour = ALLOWED
    await tables.get(CONTROL, KEY)
    server.behaviour = DENIED

    assert await outcome(lambda: tables.commit(Put(CONTROL, a_row("p")))) is ConfigError

    await tables.stop()


async def test_a_policy_that_is_replaced_while_a_worker_runs_is_waited_for(server: WebServer) -> None:
    told: list[StoreNotice] = []
    clock = ManualClock()
    dynamo_tables = dynamo(server)
    await dynamo_tables.open()
    tables = count_failures(dynamo_tables).report_to(StoreAvailability(clock, told.append), clock)
    found: list[type[Exception] | None] = []

    for behaviour in (ALLOWED, DENIED, DENIED, ALLOWED, DENIED):
        server.behaviour = behaviour
        found += [await outcome(lambda: tables.get(CONTROL, KEY))]
        found += [await outcome(lambda: tables.commit(Put(CONTROL, a_row("p"))))]
        clock.advance(timedelta(seconds=5))

    assert found == [None, None, RetryLater, RetryLater, RetryLater, RetryLater, None, None, RetryLater, RetryLater]
    [down, back] = told
    assert isinstance(down, StoreDown)
    assert "not authorized to perform" in down.reason
    assert isinstance(back, StoreBack)
    await dynamo_tables.stop()


async def test_a_condition_that_does_not_hold_proves_that_the_write_is_allowed(server: WebServer) -> None:
    tables = dynamo(server)
    await tables.open()
    server.behaviour = answer(400, {"__type": "ConditionalCheckFailedException", "message": "no"})
    with pytest.raises(StaleWrite):
        await tables.commit(Put(CONTROL, a_row("p"), Absent()))
    server.behaviour = DENIED

    assert await outcome(lambda: tables.commit(Put(CONTROL, a_row("p"), Absent()))) is RetryLater

    await tables.stop()


async def test_a_heartbeat_that_is_no_longer_allowed_lets_the_fence_fall_and_ends_nothing_else(
    server: WebServer,
) -> None:
    proven = ProvenAccess()
    first, second = dynamo(server, proven), dynamo(server, proven)  # the second is the heartbeat's own
    server.behaviour = ALLOWED
    await first.open()
    await second.open()
    proven.prove("UpdateItem")
    clock = SystemClock()
    timing = Timing(beat_s=0.1, fence_s=0.3, kill_s=1.0, look_s=0.1)
    fence = Fence(SessionId("session"), clock, timing, registered_at=clock.monotonic())
    server.behaviour = DENIED

    await Heart("group", fence, Pulse(clock, timing), clock, timing).beat(second)

    assert fence.is_down()
    await first.stop()
    await second.stop()


# --- Redis ------------------------------------------------------------------------------------------------------------


def shop(server: RedisServer) -> RedisPlace:
    server.say("ACL", "SETUSER", "worker", "on", ">right", "~{shop}*", "&{shop}*", "+@all")
    place = locate(f"redis://worker:right@127.0.0.1:{server.port}/0?prefix=shop")
    assert isinstance(place, RedisPlace)
    return place


@pytest.mark.xdist_group("redis")
@pytest.mark.parametrize(
    ("take", "give"),
    [
        (("-@all",), ("+@all",)),
        (("resetkeys",), ("~{shop}*",)),
        (("-evalsha", "-get"), ("+@all",)),
    ],
)
async def test_rights_that_a_redis_server_takes_away_are_waited_for(
    own_server: RedisServer, take: tuple[str, ...], give: tuple[str, ...]
) -> None:
    async with opened(shop(own_server)) as tables:
        calls = [lambda: tables.get(CONTROL, KEY), lambda: tables.commit(Put(CONTROL, a_row("p")))]
        before = [await outcome(call) for call in calls]
        own_server.say("ACL", "SETUSER", "worker", *take)
        meanwhile = [await outcome(call) for call in calls]
        own_server.say("ACL", "SETUSER", "worker", *give)
        after = [await outcome(call) for call in calls]

    assert before == after == [None, None]
    assert meanwhile == [RetryLater, RetryLater]


@pytest.mark.xdist_group("redis")
async def test_a_password_that_changes_is_waited_for_by_every_connection_of_the_process(
    own_server: RedisServer,
) -> None:
    place = shop(own_server)
    async with opened(place) as tables:
        await tables.get(CONTROL, KEY)
        own_server.say("ACL", "SETUSER", "worker", "resetpass", ">other")
        own_server.say("CLIENT", "KILL", "USER", "worker")
        same = RedisTables(Servers(place, connect_s=20.0, proven=tables.servers.proven), SystemClock())
        new = RedisTables(Servers(place, connect_s=20.0), SystemClock())

        assert await outcome(lambda: tables.get(CONTROL, KEY)) is RetryLater
        assert await outcome(same.start) is RetryLater
        assert await outcome(new.start) is ConfigError

        own_server.say("ACL", "SETUSER", "worker", "resetpass", ">right")
        assert await outcome(lambda: tables.get(CONTROL, KEY)) is None


@pytest.mark.xdist_group("redis")
async def test_a_user_that_never_had_a_right_is_a_persons_business(own_server: RedisServer) -> None:
    place = shop(own_server)
    async with opened(place) as tables:
        own_server.say("ACL", "SETUSER", "worker", "-mget")

        assert await outcome(lambda: tables.get_many(CONTROL, [KEY])) is ConfigError
