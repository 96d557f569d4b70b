"""What the scripts of a Redis store compute, which must be what Python computes: numbers, slices and expiry."""

import time
from datetime import timedelta
from decimal import Decimal

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.contract.redis_stores import opened
from tests.support.clock.manual import ManualClock
from tests.support.redis_server import (
    eventually,
    redis_server,
)
from worker.runtime.clock import SystemClock
from worker.store.index_entries import number_sort
from worker.store.limits import number_to_text
from worker.store.redis.connections import Servers, ask
from worker.store.redis.keys import StoreKeys, slice_of
from worker.store.redis.scripts import script
from worker.store.redis.tables import KEPT, RedisTables
from worker.store.table import (
    LISTS,
    Key,
    Put,
    Update,
)

pytestmark = pytest.mark.xdist_group("redis")


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

    assert await redis.sweep(clock.now()) == len(partitions)

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
        await tables.sweep(clock.now())
        assert redis_server().say("ZCARD", keys.partition(CONTROL, pk, LISTS)) == b":1\r\n"
        assert redis_server().say("ZCARD", keys.partition(CONTROL, pk, None)) == b":1\r\n"


async def test_a_row_that_no_longer_expires_is_kept(pk: str) -> None:
    place = redis_server().place()
    async with opened(place) as tables:
        await tables.commit(Put(CONTROL, a_row(pk, ttl=int(time.time()))))
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), remove=frozenset({"ttl"})))

        assert redis_server().say("TTL", StoreKeys(place.prefix).row(CONTROL, Key(pk, "ROW"))) == b":-1\r\n"
        assert redis_server().say("ZCARD", StoreKeys(place.prefix).expiries) == b":0\r\n"
