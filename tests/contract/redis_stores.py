"""Stores on Redis as the contract tests open them: with short waits, and behind a link that can fail."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from tests.support.redis_server import made, redis_server
from tests.support.tcp_link import TcpLink, tcp_link
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.url import RedisPlace

SOON = Backoff(attempts_max=4, first_s=0.01, longest_s=0.05, budget_s=5.0)


@asynccontextmanager
async def opened(place: RedisPlace) -> AsyncGenerator[RedisTables]:
    await made(place, SystemClock())
    tables = RedisTables(Servers(place, connect_s=20.0, answer_s=1.0), SystemClock(), backoff=SOON)
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
