"""Replies, scripts and data that a Redis server loses, and writes that it refuses: no commit is guessed or halved."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.portrows import CONTROL, a_row, stored
from tests.contract.redis_stores import linked, opened
from tests.support.redis_server import (
    RedisServer,
    free_port,
    redis_server,
)
from worker.core.errors import ConfigError, RetryLater
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import Servers
from worker.store.redis.errors import ReplyLost, StoreGone
from worker.store.redis.lane import Command, PipelinedLane
from worker.store.redis.tables import RedisTables
from worker.store.table import (
    Absent,
    Delete,
    Equals,
    Key,
    Put,
    StaleWrite,
)

pytestmark = pytest.mark.xdist_group("redis")


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
