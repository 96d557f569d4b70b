"""Redis administration: creates, checks and measures an installation on a server."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio.connection import Connection
from redis.exceptions import ResponseError

from worker.core.errors import ConfigError
from worker.runtime.clock import Clock
from worker.store.admin import Figure, Migration, StoreFinding
from worker.store.redis.connections import Servers, ask, ask_or_error
from worker.store.redis.durability import Durability, Replica, durability_findings, require_no_eviction
from worker.store.redis.errors import CONNECTION_ERRORS, StoreGone, answered, lost
from worker.store.redis.keys import SLICES, feed_of
from worker.store.redis.plan import VERSION
from worker.store.redis.tables import store_gone
from worker.store.table import TableName

SERVER_MIN: Final = (6, 2)
SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "save")


class RedisAdmin:
    def __init__(self, servers: Servers, clock: Clock) -> None:
        self._servers, self._clock = servers, clock

    @property
    def place(self) -> str:
        return self._servers.place.shown

    async def require_ready(self) -> None:
        async with self._opened() as connection:
            await self._require_made(connection)

    async def require_writable(self) -> None:
        """Write the version once more, as a commit writes. Raises `RetryLater` if the server takes no writes."""
        async with self._opened() as connection:
            await self._require_made(connection)
            await ask(connection, "HSET", self._servers.keys.meta, "version", VERSION)

    async def init(self, *, may_create: bool) -> bool:  # noqa: ARG002  required by the port; keys cost nothing
        """Create the store. Raises `ConfigError` for a server that is too old or deletes rows when it is full."""
        async with self._opened() as connection:
            require_version(await _info(connection, "server"), self._servers.where)
            require_no_eviction(await self._durability(connection), self._servers.where)
            meta = self._servers.keys.meta
            slices = await ask(connection, "HSETNX", meta, "slices", SLICES)
            made = await ask(connection, "HSETNX", meta, "version", VERSION)
            await self._require_made(connection)
            return bool(slices or made)

    async def check(self) -> Sequence[StoreFinding]:
        async with self._opened() as connection:
            server = await _info(connection, "server")
            found = [*self._version(server)]
            found += await self._store(connection)
            found += durability_findings(await self._durability(connection))
            found += await self._rights(connection)
        return found

    async def migrate(self, *, backup: bool) -> Migration | None:  # noqa: ARG002  required by the port; there is one version
        return None

    async def stats(self) -> Sequence[Figure]:
        async with self._opened() as connection:
            await self._require_made(connection)
            meta = await _hash(connection, self._servers.keys.meta)
            memory = await _info(connection, "memory")
            expiring = int(await ask(connection, "ZCARD", self._servers.keys.expiries))
            kept = {
                table: [
                    int(await ask(connection, "XLEN", self._servers.keys.stream(feed_of(table, number))))
                    for number in range(int(meta["slices"]))
                ]
                for table in TableName
            }
        return list(_figures(meta, memory, expiring, kept))

    # --- parts --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Connection]:
        connection = await self._servers.connect(for_scripts=False)
        try:
            async with asyncio.timeout(self._servers.answer_s):
                yield connection
        except ResponseError as error:
            raise answered(error, self._servers.where) from error
        except CONNECTION_ERRORS as error:
            raise lost(error, self._servers.where) from error
        finally:
            await connection.disconnect(nowait=True)

    async def _require_made(self, connection: Connection) -> None:
        version = await ask(connection, "HGET", self._servers.keys.meta, "version")
        if version is None or version.decode() != VERSION:
            raise store_gone(self._servers, version)

    def _version(self, server: Mapping[str, str]) -> Iterator[StoreFinding]:
        try:
            require_version(server, self._servers.where)
        except ConfigError as error:
            finding, _, remedy = str(error).rpartition("; ")
            yield StoreFinding("server", finding, remedy)
        else:
            yield StoreFinding("server", f"{_name(server)} at {self.place} answers")

    async def _store(self, connection: Connection) -> list[StoreFinding]:
        try:
            await self._require_made(connection)
        except StoreGone as error:
            finding, _, remedy = str(error).rpartition("; ")
            return [StoreFinding("store", finding, remedy)]
        slices = (await ask(connection, "HGET", self._servers.keys.meta, "slices")).decode()
        return [StoreFinding("store", f"version {VERSION}, {slices} slices for each table")]

    async def _durability(self, connection: Connection) -> Durability:
        replication = await _info(connection, "replication")
        persistence = await _info(connection, "persistence")
        answer = await ask_or_error(connection, "CONFIG", "GET", SETTINGS[0])
        settings: dict[str, str] = {}
        if not isinstance(answer, Exception):
            for name in SETTINGS:
                settings |= _pairs(await ask(connection, "CONFIG", "GET", name))
        return Durability(
            settings=settings if not isinstance(answer, Exception) else None,
            is_appending=persistence.get("aof_enabled") == "1",
            is_primary=replication.get("role") == "master",
            replicas=[_replica(value) for name, value in replication.items() if _is_replica(name)],
            asked_replicas=self._servers.place.wait,
            write_trouble=_trouble(persistence),
        )

    async def _rights(self, connection: Connection) -> list[StoreFinding]:
        """Check that this user may use the channel: without it, readers notice changes only by polling."""
        answer = await ask_or_error(connection, "PUBLISH", self._servers.keys.changed, "")
        if isinstance(answer, Exception):
            channel = self._servers.keys.changed
            return [
                StoreFinding(
                    "rights", f"may not publish to {channel}: {answer}", f"grant the user the channel: &{channel}"
                )
            ]
        return [StoreFinding("rights", "this user may run scripts and publish changes")]


def require_version(server: Mapping[str, str], where: str) -> None:
    """Raise `ConfigError` for a server that is too old: it cannot trim a stream by position."""
    found = tuple(int(part) for part in server.get("redis_version", "0").split(".")[:2] if part.isdecimal())
    if found < SERVER_MIN:
        raise ConfigError(
            f"{where} is Redis {server.get('redis_version')}, and at least 6.2 is needed; update it, or use Valkey"
        )


def _name(server: Mapping[str, str]) -> str:
    if "valkey_version" in server:
        return f"Valkey {server['valkey_version']}"
    return f"Redis {server.get('redis_version', 'of unknown version')}"


async def _info(connection: Connection, section: str) -> dict[str, str]:
    text = (await ask(connection, "INFO", section)).decode()
    lines = (line.partition(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


async def _hash(connection: Connection, key: str) -> dict[str, str]:
    return _pairs(await ask(connection, "HGETALL", key))


def _pairs(answer: Any) -> dict[str, str]:  # noqa: ANN401 - a flat list of bytes
    return {name.decode(): value.decode() for name, value in zip(answer[::2], answer[1::2], strict=True)}


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name.removeprefix("slave").isdecimal()


def _replica(text: str) -> Replica:
    parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    return Replica(
        address=f"{parts.get('ip', '?')}:{parts.get('port', '?')}",
        is_online=parts.get("state") == "online",
        behind_s=int(parts.get("lag", "-1")),
    )


def _trouble(persistence: Mapping[str, str]) -> str:
    names = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
    bad = [name for name in names if persistence.get(name, "ok") != "ok"]
    return ", ".join(bad)


def _figures(
    meta: Mapping[str, str], memory: Mapping[str, str], expiring: int, kept: Mapping[TableName, Sequence[int]]
) -> Iterator[Figure]:
    yield Figure("schema version", int(meta["version"]))
    yield Figure("server memory bytes", int(memory.get("used_memory", 0)), "of all data on the server")
    yield Figure("server memory limit bytes", int(memory.get("maxmemory", 0)), "0: no limit")
    yield Figure("rows that expire", expiring, "deleted a day after they expire")
    for table, lengths in kept.items():
        newest = sum(int(meta.get(feed_of(table, number), 0)) for number in range(len(lengths)))
        yield Figure(f"{table} changes kept", sum(lengths), f"of {newest:,} ever; at most 24 h")
