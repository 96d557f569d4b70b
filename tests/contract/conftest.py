"""The backends that must all keep the contract of `worker.store.table`."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

import pytest

from tests.simulation.memory_tables import MemoryTables
from tests.support.aws.emulators import DYNAMODB_BACKENDS
from tests.support.clock.manual import ManualClock
from tests.support.redis_server import OneSlice, RedisServer, on_redis, redis_server, redis_tables
from worker.runtime.clock import Clock
from worker.store.redis.tables import RedisTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import ChangeFeed, Tables

Backend: TypeAlias = Callable[[Clock], AbstractAsyncContextManager[Tables]]


@asynccontextmanager
async def sqlite_file(clock: Clock) -> AsyncGenerator[SqliteTables]:
    with TemporaryDirectory() as folder:
        tables = SqliteTables(Path(folder) / "store.db", clock)
        await tables.start()
        yield tables
        await tables.stop()


@asynccontextmanager
async def sqlite_memory(clock: Clock) -> AsyncGenerator[SqliteTables]:
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    yield tables
    await tables.stop()


@asynccontextmanager
async def memory(clock: Clock) -> AsyncGenerator[MemoryTables]:
    """The twin on which simulations are played."""
    yield MemoryTables(clock)


class FeedStore(Tables, ChangeFeed, Protocol):
    """A store that keeps a change feed of its own, which must be trimmed, and rows, which must be swept."""

    async def trim(self, lowest_checkpoint: int = 0, rows_max: int = 1_000_000) -> int: ...

    async def sweep(self, by: datetime, limit: int = 200) -> int: ...


@asynccontextmanager
async def redis_slice(clock: Clock) -> AsyncGenerator[OneSlice]:
    """A store on Redis whose tables have one slice each, so that its changes have one order."""
    async with redis_tables(clock, redis_server(), slices=1) as tables:
        yield OneSlice(tables)


BACKENDS: dict[str, Backend] = {
    "sqlite-file": sqlite_file,
    "sqlite-memory": sqlite_memory,
    "memory": memory,
    "redis": on_redis,
    **DYNAMODB_BACKENDS,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The second opinion is about the port. What stands above it is asked of one emulator only: it costs minutes."""
    items[:] = [item for item in items if not ("test_stores_" in item.nodeid and "[dynamodb-moto" in item.nodeid)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# A group for each emulator: it is started by one test process only.
@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.xdist_group(name)] if name in DYNAMODB_BACKENDS else [])
        for name in BACKENDS
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend under test, for the rare test that must know how much it can bear."""
    return str(request.param)


@pytest.fixture
async def tables(backend: str, clock: ManualClock) -> AsyncIterator[Tables]:
    async with BACKENDS[backend](clock) as tables:
        yield tables


@pytest.fixture
def pk() -> str:
    """A partition of the test's own: backends may keep their tables from one test to the next."""
    return f"PIPELINE#{uuid.uuid4().hex}"


@pytest.fixture(params=["sqlite-file", "sqlite-memory"])
async def sqlite(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[SqliteTables]:
    """Both forms of the backend that keeps a change feed of its own."""
    async with {"sqlite-file": sqlite_file, "sqlite-memory": sqlite_memory}[str(request.param)](clock) as tables:
        yield tables


@pytest.fixture
async def redis(clock: ManualClock) -> AsyncIterator[RedisTables]:
    """A store on the server that the tests of a process share."""
    async with redis_tables(clock) as tables:
        yield tables


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may configure and kill."""
    server = RedisServer().start()
    yield server
    server.stop()


FEEDS: dict[str, Callable[[Clock], AbstractAsyncContextManager[FeedStore]]] = {
    "sqlite-file": sqlite_file,
    "sqlite-memory": sqlite_memory,
    "redis": redis_slice,
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in FEEDS])
async def feed(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[FeedStore]:
    """Every backend that keeps a change feed of its own."""
    async with FEEDS[str(request.param)](clock) as tables:
        yield tables
