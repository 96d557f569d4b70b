"""What only a store on a Redis server has: lost replies, forgotten scripts, failovers, native expiry."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.portrows import CONTROL, a_row, stored
from tests.support.clock.manual import ManualClock
from tests.support.redis_server import (
    DURABLE,
    RedisServer,
    eventually,
    free_port,
    made,
    redis_server,
    redis_tables,
)
from tests.support.tcp_link import TcpLink, tcp_link
from worker.core.errors import ConfigError, RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.index_entries import number_sort
from worker.store.limits import number_to_text
from worker.store.redis.admin import RedisAdmin
from worker.store.redis.connections import Servers, ask
from worker.store.redis.errors import ReplyLost, StoreGone
from worker.store.redis.keys import StoreKeys, slice_of
from worker.store.redis.lane import Command, PipelinedLane
from worker.store.redis.notices import ChangeNotices
from worker.store.redis.scripts import script
from worker.store.redis.tables import KEPT, RedisTables
from worker.store.table import (
    LISTS,
    Absent,
    Delete,
    Equals,
    Key,
    Put,
    StaleWrite,
    TableName,
    Trimmed,
    Update,
)
from worker.store.url import RedisPlace, locate

pytestmark = pytest.mark.xdist_group("redis")

SOON = Backoff(attempts_max=4, first_s=0.01, longest_s=0.05, budget_s=5.0)


@pytest.fixture(name="redis")
async def redis_fixture(clock: ManualClock) -> AsyncIterator[RedisTables]:
    async with redis_tables(clock) as tables:
        yield tables


@asynccontextmanager
async def opened(place: RedisPlace) -> AsyncGenerator[RedisTables]:
    await made(place, SystemClock())
    tables = RedisTables(Servers(place, answer_s=1.0), SystemClock(), backoff=SOON)
    await tables.start()
    try:
        yield tables
    finally:
        await tables.stop()


@asynccontextmanager
async def linked() -> AsyncGenerator[tuple[RedisTables, TcpLink]]:
    """A store behind a link that can lose what it carries."""
    server = redis_server()
    async with tcp_link(server.port) as link:
        place = await made(server.place(), SystemClock())
        async with opened(replace(place, nodes=(("127.0.0.1", link.port),))) as tables:
            yield tables, link


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


# --- replies and scripts that are lost --------------------------------------------------------------------------------


async def test_a_commit_whose_reply_is_lost_is_recognised_as_applied(pk: str) -> None:
    async with linked() as (tables, link):
        link.loses_answers = 1
        await tables.commit(Put(CONTROL, a_row(pk, n=1), Absent()))

        assert link.lost == 1
        assert await stored(tables, pk) == a_row(pk, n=1)


async def test_a_commit_whose_request_is_lost_is_sent_again(pk: str) -> None:
    async with linked() as (tables, link):
        link.loses_requests = 1
        await tables.commit(Put(CONTROL, a_row(pk, n=1), Absent()))

        assert link.lost == 1
        assert await stored(tables, pk) == a_row(pk, n=1)


class OvertakenLane(PipelinedLane):
    """Loses the first reply, and lets another writer in before the request is sent again."""

    def __init__(self, servers: Servers, other: Callable[[], Awaitable[None]]) -> None:
        super().__init__(servers, "overtaken")
        self._other, self._sent = other, 0

    async def run(self, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
        self._sent += 1
        if self._sent == 2:
            await self._other()
        answer = await super().run(command)
        if self._sent == 1:
            raise ReplyLost("cut")
        return answer


async def test_a_commit_whose_reply_is_lost_and_whose_row_has_changed_since_is_not_guessed(
    redis: RedisTables, pk: str
) -> None:
    servers = redis.servers
    overtaken = OvertakenLane(servers, lambda: redis.commit(Put(CONTROL, a_row(pk, n=2))))
    tables = RedisTables(servers, SystemClock(), lanes=(overtaken, PipelinedLane(servers, "reads")))
    await tables.start()
    try:
        with pytest.raises(RetryLater, match="not known"):
            await tables.commit(Put(CONTROL, a_row(pk, n=1), Absent()))
    finally:
        await tables.stop()

    assert await stored(redis, pk) == a_row(pk, n=2)


async def test_a_refusal_is_a_stale_write_if_no_reply_was_lost(redis: RedisTables, pk: str) -> None:
    await redis.commit(Put(CONTROL, a_row(pk, version=1)))

    with pytest.raises(StaleWrite) as refused:
        await redis.commit(Put(CONTROL, a_row(pk, version=3), Equals("version", 2)))

    assert refused.value.row is not None
    assert refused.value.row["version"] == 1


async def test_scripts_that_the_server_forgot_are_loaded_again(redis: RedisTables, pk: str) -> None:
    redis_server().say("SCRIPT", "FLUSH")

    async with asyncio.TaskGroup() as tasks:
        for n in range(10):
            tasks.create_task(redis.commit(Put(CONTROL, a_row(pk, f"{n}"))))

    assert len((await redis.query(CONTROL, pk)).rows) == 10


async def test_a_server_that_lost_its_data_is_not_taken_for_a_new_store(own_server: RedisServer, pk: str) -> None:
    async with opened(own_server.place()) as tables:
        own_server.say("FLUSHALL")

        with pytest.raises(StoreGone, match="restore"):
            await tables.commit(Put(CONTROL, a_row(pk)))

        assert own_server.say("DBSIZE") == b":0\r\n"


async def test_a_store_that_was_never_made_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="interlock store init"):
        await RedisTables(Servers(redis_server().place()), SystemClock()).start()


async def test_a_server_that_is_not_there_is_tried_again() -> None:
    place = replace(redis_server().place(), nodes=(("127.0.0.1", free_port()),))

    with pytest.raises(RetryLater, match="cannot be reached"):
        await RedisTables(Servers(place), SystemClock()).start()


# --- a server that refuses writes: nothing is applied, not even a part ------------------------------------------------


async def test_a_full_server_refuses_a_commit_whole(own_server: RedisServer, pk: str) -> None:
    async with opened(own_server.place()) as tables:
        await tables.commit(Put(CONTROL, a_row(pk, "first")))
        own_server.say("CONFIG", "SET", "maxmemory", "1")

        with pytest.raises(RetryLater, match="maxmemory"):
            await tables.commit(Put(CONTROL, a_row(pk, "second")), Delete(CONTROL, Key(pk, "first")))

        own_server.say("CONFIG", "SET", "maxmemory", "0")
        assert [row["SK"] for row in (await tables.query(CONTROL, pk)).rows] == ["first"]


async def test_a_server_that_became_a_replica_refuses_a_commit_until_it_is_primary_again(
    own_server: RedisServer, pk: str
) -> None:
    async with opened(own_server.place()) as tables:
        own_server.say("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(RetryLater, match="replica"):
            await tables.commit(Put(CONTROL, a_row(pk)))

        own_server.say("REPLICAOF", "NO", "ONE")
        await tables.commit(Put(CONTROL, a_row(pk)))

        assert await stored(tables, pk) == a_row(pk)


# --- numbers, slices and expiry: what Lua computes must be what Python computes ---------------------------------------


async def test_lua_sorts_numbers_exactly_as_python_does() -> None:
    texts = ["0", "1", "-1", "10", "1.5", "-1.5", "0.001", "-0.001", "1E+30", "9.9E+125", "1E-130", "-1E-130", "255"]
    texts += [
        number_to_text(Decimal(mantissa).scaleb(exponent)) for mantissa in (-7, 12, 99) for exponent in range(-9, 9)
    ]
    connection = await Servers(redis_server().place()).connect()
    try:
        body = "local found = {} for at, text in ipairs(ARGV) do found[at] = number_sort(text) end return found"
        common = script("newest").text.partition("-- Return {position")[0]
        found = await ask(connection, "EVAL", common + body, 0, *texts)
    finally:
        await connection.disconnect()

    assert found == [number_sort(Decimal(text)) for text in texts]


async def test_a_swept_row_is_told_in_the_slice_of_its_partition(
    redis: RedisTables, clock: ManualClock, pk: str
) -> None:
    partitions = [f"{pk}{n}" for n in range(12)]
    for partition in partitions:
        await redis.commit(Put(CONTROL, a_row(partition, ttl=int(clock.now().timestamp()))))
    clock.advance(timedelta(days=2))

    assert await redis.sweep() == len(partitions)

    for partition in partitions:
        changes, _ = await redis.changes(CONTROL, slice_of(partition, redis.slices), 0)
        assert [change.kind.value for change in changes if change.key.pk == partition] == ["INSERT", "REMOVE"]


async def test_the_server_itself_deletes_a_row_that_no_worker_swept(pk: str) -> None:
    place = redis_server().place()
    keys, clock = StoreKeys(place.prefix), SystemClock()
    ttl = int((clock.now() - KEPT).timestamp()) + 1  # the server deletes it in a second
    async with opened(place) as tables:
        await tables.commit(Put(CONTROL, a_row(pk, ttl=ttl, listPk=pk, listSk="x")))
        await tables.commit(Put(CONTROL, a_row(pk, "lasting", listPk=pk, listSk="y")))

        def is_gone() -> bool:
            return redis_server().say("EXISTS", keys.row(CONTROL, Key(pk, "ROW"))) == b":0\r\n"

        await eventually(is_gone)
        assert [row["SK"] for row in (await tables.query(CONTROL, pk)).rows] == ["lasting"]
        assert [row["SK"] for row in (await tables.query(CONTROL, pk, index=LISTS)).rows] == ["lasting"]
        await tables.sweep()
        assert redis_server().say("ZCARD", keys.partition(CONTROL, pk, LISTS)) == b":1\r\n"
        assert redis_server().say("ZCARD", keys.partition(CONTROL, pk, None)) == b":1\r\n"


async def test_a_row_that_no_longer_expires_is_kept(pk: str) -> None:
    place = redis_server().place()
    async with opened(place) as tables:
        await tables.commit(Put(CONTROL, a_row(pk, ttl=int(time.time()))))
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), remove=frozenset({"ttl"})))

        assert redis_server().say("TTL", StoreKeys(place.prefix).row(CONTROL, Key(pk, "ROW"))) == b":-1\r\n"
        assert redis_server().say("ZCARD", StoreKeys(place.prefix).expiries) == b":0\r\n"


# --- changes that a failover lost -------------------------------------------------------------------------------------


async def test_changes_that_a_failover_lost_are_a_gap_and_numbers_go_on_rising(
    own_server: RedisServer, pk: str
) -> None:
    place = own_server.place()
    keys = StoreKeys(place.prefix)
    async with opened(place) as tables:
        number = slice_of(pk, tables.slices)
        for n in range(5):
            await tables.commit(Put(CONTROL, a_row(pk, f"{n}")))
        changes, newest = await tables.changes(CONTROL, number, 0)
        assert newest == 5
        # A replica that had received three changes took over.
        feed = f"control.{number}"
        own_server.say("HSET", keys.meta, feed, "3")
        own_server.say("XDEL", keys.stream(feed), "4-0", "5-0")
        own_server.say("XSETID", keys.stream(feed), "3-0")

        with pytest.raises(Trimmed) as gap:
            await tables.changes(CONTROL, number, 5, at_ms=int(changes[-1].at.timestamp() * 1000))
        assert gap.value.oldest == 5
        await tables.commit(Put(CONTROL, a_row(pk, "new")))

        [change] = (await tables.changes(CONTROL, number, 5, at_ms=int(time.time() * 1000)))[0]
        assert (change.position, change.key.sk) == (6, "new")


async def test_a_position_that_another_change_has_since_is_a_gap(own_server: RedisServer, pk: str) -> None:
    async with opened(own_server.place()) as tables:
        number = slice_of(pk, tables.slices)
        for n in range(3):
            await tables.commit(Put(CONTROL, a_row(pk, f"{n}")))

        with pytest.raises(Trimmed):  # what was read at 2 was made long before what is there now
            await tables.changes(CONTROL, number, 2, at_ms=1_000)


# --- notices ----------------------------------------------------------------------------------------------------------


async def test_a_commit_wakes_the_readers_of_its_slices_and_no_others(redis: RedisTables, pk: str) -> None:
    woken: asyncio.Queue[tuple[TableName, int | None]] = asyncio.Queue()

    def wake(table: TableName, number: int | None) -> None:
        woken.put_nowait((table, number))

    listening = asyncio.create_task(ChangeNotices(redis.servers, SystemClock()).listen(wake))
    try:
        async with asyncio.timeout(20):
            assert {await woken.get() for _ in TableName} == {(table, None) for table in TableName}  # it listens now
            await redis.commit(Put(CONTROL, a_row(pk)), Put(TableName.EVENTS, a_row(pk)))
            number = slice_of(pk, redis.slices)
            assert {await woken.get(), await woken.get()} == {(CONTROL, number), (TableName.EVENTS, number)}
            connection = await redis.servers.connect(for_scripts=False)
            await ask(connection, "PUBLISH", redis.servers.keys.changed, "control.x nothing events.")
            await redis.commit(Delete(CONTROL, Key(pk, str(a_row(pk)["SK"]))))
            assert await woken.get() == (CONTROL, number)
            await connection.disconnect(nowait=True)
    finally:
        listening.cancel()


# --- users, replicas, Sentinels and clusters --------------------------------------------------------------------------


async def test_a_wrong_password_is_a_persons_business_and_is_not_shown(own_server: RedisServer) -> None:
    own_server.say("ACL", "SETUSER", "worker", "on", ">right", "~{shop}*", "&{shop}*", "+@all")
    place = locate(f"redis://worker:wrong-secret@127.0.0.1:{own_server.port}/0?prefix=shop")
    assert isinstance(place, RedisPlace)

    with pytest.raises(ConfigError, match="does not accept this user") as refused:
        await RedisTables(Servers(place), SystemClock()).start()

    assert "wrong-secret" not in f"{refused.value!r} {place!r} {place.shown}"
    async with opened(replace(place, password="right")) as tables:
        await tables.commit(Put(CONTROL, a_row("PIPELINE#a")))


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
