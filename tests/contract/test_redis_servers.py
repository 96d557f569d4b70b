"""Users, replicas, Sentinels and clusters under a Redis store."""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.contract.portrows import CONTROL, a_row, stored
from tests.contract.redis_stores import opened
from tests.support.redis_server import (
    DURABLE,
    RedisServer,
    eventually,
    free_port,
)
from worker.core.errors import ConfigError, RetryLater
from worker.runtime.clock import SystemClock
from worker.store.redis.admin import RedisAdmin
from worker.store.redis.connections import Servers
from worker.store.redis.keys import StoreKeys, slice_of
from worker.store.redis.notices import ChangeNotices
from worker.store.redis.tables import RedisTables
from worker.store.table import (
    Absent,
    Equals,
    Key,
    Put,
    TableName,
)
from worker.store.url import RedisPlace, locate

pytestmark = pytest.mark.xdist_group("redis")


async def test_a_wrong_password_is_a_persons_business_and_is_not_shown(own_server: RedisServer) -> None:
    own_server.say("ACL", "SETUSER", "worker", "on", ">right", "~{shop}*", "&{shop}*", "+@all")
    place = locate(f"redis://worker:wrong-secret@127.0.0.1:{own_server.port}/0?prefix=shop")
    assert isinstance(place, RedisPlace)

    with pytest.raises(ConfigError, match="does not accept this user") as refused:
        await RedisTables(Servers(place, connect_s=20.0), SystemClock()).start()

    assert "wrong-secret" not in f"{refused.value!r} {place!r} {place.shown}"
    async with opened(replace(place, password="right")) as tables:
        await tables.commit(Put(CONTROL, a_row("PIPELINE#a")))


# As the how-to page on Redis says.
RIGHTS = "+@read +@write +@scripting +@pubsub +@connection +info +wait +time +config|get"


async def test_a_user_with_the_documented_rights_can_do_everything(own_server: RedisServer, pk: str) -> None:
    own_server.say("ACL", "SETUSER", "worker", "on", ">right", "~{shop}*", "&{shop}*", *RIGHTS.split())
    place = locate(f"redis://worker:right@127.0.0.1:{own_server.port}/0?prefix=shop")
    assert isinstance(place, RedisPlace)
    heard = asyncio.Event()

    async with opened(place) as tables, asyncio.TaskGroup() as tasks:
        notices = ChangeNotices(tables.servers, SystemClock())
        listening = tasks.create_task(notices.listen(lambda _table, _number: heard.set()))
        async with asyncio.timeout(20):
            while not heard.is_set():  # it says when it listens, and then of each change
                await tables.commit(Put(CONTROL, a_row(pk, n=1)))
                await asyncio.sleep(0.05)
        listening.cancel()
        await tables.query(CONTROL, pk)
        await tables.changes(CONTROL, slice_of(pk, tables.slices), 0)
        await tables.trim(CONTROL, 0)
        await tables.sweep(SystemClock().now())
        admin = RedisAdmin(Servers(place), SystemClock())

        assert [each for each in await admin.check() if not each.is_sound] == []
        assert await admin.stats()
        await admin.require_writable()


async def test_a_user_that_may_not_use_the_channel_only_gets_no_notices(own_server: RedisServer) -> None:
    own_server.say("ACL", "SETUSER", "worker", "on", ">right", "~{shop}*", "resetchannels", "+@all")
    place = locate(f"redis://worker:right@127.0.0.1:{own_server.port}/0?prefix=shop")
    assert isinstance(place, RedisPlace)

    async with opened(place) as tables:
        await tables.commit(Put(CONTROL, a_row("PIPELINE#a", n=1)))
        found = await RedisAdmin(Servers(place), SystemClock()).check()

        assert await stored(tables, "PIPELINE#a") == a_row("PIPELINE#a", n=1)
        assert [each.subject for each in found if not each.is_sound] == ["rights"]


@pytest.fixture
def replicated() -> Iterator[tuple[RedisServer, RedisServer]]:
    primary = RedisServer().start()
    replica = RedisServer(options=(*DURABLE, "--replicaof", f"127.0.0.1 {primary.port}")).start()
    yield primary, replica
    replica.stop()
    primary.stop()


async def until_online(primary: RedisServer) -> None:
    await eventually(lambda: b"state=online" in primary.say("INFO", "replication"))


async def test_with_wait_a_commit_counts_once_a_replica_has_it(
    replicated: tuple[RedisServer, RedisServer], pk: str
) -> None:
    primary, replica = replicated
    await until_online(primary)
    place = primary.place(options="&wait=1")
    async with opened(place) as tables:
        await tables.commit(Put(CONTROL, a_row(pk, n=1), Absent()))
        key = StoreKeys(place.prefix).row(CONTROL, Key(pk, "ROW"))
        assert replica.say("EXISTS", key) == b":1\r\n"

        replica.kill()
        with pytest.raises(RetryLater, match="0 of 1 replicas confirmed"):
            await tables.commit(Put(CONTROL, a_row(pk, n=2), Equals("n", 1)))

        replica.start()
        await until_online(primary)
        await tables.commit(Put(CONTROL, a_row(pk, n=3), Equals("n", 2)))  # the earlier one was applied all the same
        assert await stored(tables, pk) == a_row(pk, n=3)


async def test_the_primary_is_found_by_sentinels_after_a_failover(
    replicated: tuple[RedisServer, RedisServer], pk: str
) -> None:
    primary, replica = replicated
    await until_online(primary)
    sentinel = RedisServer(options=())
    config = sentinel.folder / "sentinel.conf"
    config.write_text(
        f"sentinel monitor shop 127.0.0.1 {primary.port} 1\nsentinel down-after-milliseconds shop 300\n"
        "sentinel failover-timeout shop 2000\n"
    )
    sentinel.options = ("--sentinel",)
    sentinel.config = config
    sentinel.start()
    try:
        place = locate(f"redis+sentinel://127.0.0.1:{sentinel.port}/0?service=shop&prefix=shop")
        assert isinstance(place, RedisPlace)
        async with opened(place) as tables:
            await tables.commit(Put(CONTROL, a_row(pk, n=1)))
            await eventually(lambda: b"num-slaves\r\n$1\r\n1" in sentinel.say("SENTINEL", "MASTER", "shop"))
            key = StoreKeys(place.prefix).row(CONTROL, Key(pk, "ROW"))
            await eventually(lambda: replica.say("EXISTS", key) == b":1\r\n")
            primary.kill()
            async with asyncio.timeout(40):
                while True:
                    try:
                        await tables.commit(Put(CONTROL, a_row(pk, n=2)))
                        break
                    except RetryLater:
                        await asyncio.sleep(0.2)

            assert await stored(tables, pk) == a_row(pk, n=2)
            assert b"role:master" in replica.say("INFO", "replication")
    finally:
        sentinel.stop()


async def test_a_cluster_keeps_an_installation_on_one_node(pk: str) -> None:
    options = ("--cluster-enabled", "yes", *DURABLE)
    # The server also takes its port plus 10,000, which must be below those that the system gives to clients, too.
    first, second = (RedisServer(port=free_port(10_000, 20_000), options=options).start() for _ in range(2))
    try:
        for start in range(0, 16384, 4096):
            first.say("CLUSTER", "ADDSLOTS", *(str(slot) for slot in range(start, start + 4096)))
        first.say("CLUSTER", "MEET", "127.0.0.1", str(second.port))
        await eventually(
            lambda: all(b"cluster_known_nodes:2" in each.say("CLUSTER", "INFO") for each in (first, second))
        )
        await eventually(lambda: b"cluster_state:ok" in second.say("CLUSTER", "INFO"))
        place = locate(f"redis+cluster://127.0.0.1:{second.port}?prefix=shop")
        assert isinstance(place, RedisPlace)
        async with opened(place) as tables:
            await tables.commit(Put(CONTROL, a_row(pk, n=1)), Put(TableName.EVENTS, a_row(pk)))

            assert await stored(tables, pk) == a_row(pk, n=1)
            assert first.say("DBSIZE") != b":0\r\n"
            assert second.say("DBSIZE") == b":0\r\n"
    finally:
        second.stop()
        first.stop()
