"""The change feed of a Redis store: changes that a failover lost, and notices that wake readers."""

import asyncio
import time

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.contract.redis_stores import opened
from tests.support.redis_server import (
    RedisServer,
)
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import ask
from worker.store.redis.keys import StoreKeys, slice_of
from worker.store.redis.notices import ChangeNotices
from worker.store.redis.tables import RedisTables
from worker.store.table import (
    Delete,
    Key,
    Put,
    TableName,
    Trimmed,
)

pytestmark = pytest.mark.xdist_group("redis")


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
