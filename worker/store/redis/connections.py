"""Connections to the server of an installation: named, found by Sentinels, or a node of a cluster."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final, cast

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from worker.core.errors import ConfigError
from worker.store.proven_access import ProvenAccess
from worker.store.redis.errors import CONNECTION_ERRORS, NotTaken, unreachable
from worker.store.redis.keys import StoreKeys
from worker.store.redis.scripts import all_scripts
from worker.store.url import RedisPlace

TLS_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
CLIENT_NAME: Final = "interlock"
CONNECT: Final = "connect"
CONNECT_S: Final = 2.0
ANSWER_S: Final = 4.0


class Servers:
    """Connects to the primary that has the keys of one installation. The library never retries by itself."""

    def __init__(
        self,
        place: RedisPlace,
        *,
        connect_s: float = CONNECT_S,
        answer_s: float = ANSWER_S,
        proven: ProvenAccess | None = None,
    ) -> None:
        self.place, self.answer_s, self._connect_s = place, answer_s, connect_s
        self.proven = proven or ProvenAccess()
        self.keys = StoreKeys(place.prefix)

    @property
    def where(self) -> str:
        return f"the Redis server {self.place.shown}"

    async def connect(self, *, for_scripts: bool = True) -> Connection:
        """Return a new connection to the primary, with scripts loaded. Raises `NotTaken` and `ConfigError`."""
        try:
            connection = await self._connect(for_scripts=for_scripts)
        except ConfigError as error:
            if not self.proven.is_proven(CONNECT):
                raise
            raise NotTaken(f"{error}; it was accepted before, so it is tried again") from error
        self.proven.prove(CONNECT)
        return connection

    async def _connect(self, *, for_scripts: bool) -> Connection:
        self._require_files()
        try:
            async with asyncio.timeout(self._connect_s + self.answer_s):
                host, port = await self._address()
                connection = self._connection(host, port)
                try:
                    await connection.connect()
                    await self._prepare(connection, for_scripts=for_scripts)
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
        except (*CONNECTION_ERRORS, RedisError) as error:
            raise unreachable(error, self.where, self._tls_hint()) from error
        return connection

    async def _prepare(self, connection: Connection, *, for_scripts: bool) -> None:
        if self.place.service is not None:
            # A Sentinel may name the old primary for a moment after a failover.
            [role, *_] = await ask(connection, "ROLE")
            if role != b"master":
                raise NotTaken(f"{self.where}: the Sentinels named a replica; the new primary is looked for")
        if for_scripts:
            for script in all_scripts():
                await ask(connection, "SCRIPT", "LOAD", script.text)

    # --- addresses ----------------------------------------------------------------------------------------------------

    async def _address(self) -> tuple[str, int]:
        if self.place.service is not None:
            return await self._primary_by_sentinels(self.place.service)
        if self.place.is_cluster:
            return await self._primary_of_slot()
        return self.place.nodes[0]

    async def _primary_by_sentinels(self, service: str) -> tuple[str, int]:
        place = self.place
        options: dict[str, Any] = {
            "username": place.sentinel_username,
            "password": place.sentinel_password,
            "socket_timeout": self._connect_s,
            "retry": _never(),
            "ssl": place.has_tls,
            **self._tls(),
        }
        sentinel = Sentinel(list(place.nodes), sentinel_kwargs=options)
        clients: list[Any] = sentinel.sentinels
        try:
            found = cast("tuple[Any, Any]", await sentinel.discover_master(service))
        finally:
            for client in clients:
                await client.aclose()
        return str(found[0]), int(found[1])

    async def _primary_of_slot(self) -> tuple[str, int]:
        place = self.place
        cluster = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in place.nodes],
            username=place.username,
            password=place.password,
            socket_timeout=self._connect_s,
            socket_connect_timeout=self._connect_s,
            retry=_never(),
            ssl=place.has_tls,
            **self._tls(),
        )
        try:
            await cluster.initialize()
            node = cluster.get_node_from_key(self.keys.tag)
        finally:
            await cluster.aclose()
        if node is None:
            raise NotTaken(f"{self.where}: no node of the cluster has the slot of {self.keys.tag}; it is tried again")
        return str(node.host), int(node.port)

    def _connection(self, host: str, port: int) -> Connection:
        place = self.place
        kind = SSLConnection if place.has_tls else Connection
        return kind(
            host=host,
            port=port,
            db=place.database,
            username=place.username,
            password=place.password,
            # One limit around a whole batch costs less than one around each answer.
            socket_timeout=None,
            socket_connect_timeout=self._connect_s,
            socket_keepalive=True,
            retry=_never(),
            client_name=CLIENT_NAME,
            protocol=2,
            **self._tls(),
        )

    def _tls(self) -> Mapping[str, Any]:
        return dict(self.place.tls)

    def _tls_hint(self) -> str:
        """Return what a server may want that ends a TLS connection: it gives no reason that we could show."""
        if not self.place.has_tls or "ssl_certfile" in self._tls():
            return ""
        return "; see that this port has TLS, and give ssl_certfile and ssl_keyfile if the server wants a certificate"

    def _require_files(self) -> None:
        """Raise `ConfigError` for a certificate that cannot be read: the library's error does not name it."""
        for name, path in self.place.tls:
            if name in TLS_FILES and not os.access(str(path), os.R_OK):
                raise ConfigError(f"{self.where}: the file {name}={path} cannot be read; correct it in the store's URL")


async def ask(connection: Connection, *command: str | bytes | int) -> Any:  # noqa: ANN401 - whatever the command returns
    """Send one command and return its answer. Raises the library's errors."""
    await connection.send_command(*command)
    return await read(connection)


async def read(connection: Connection) -> Any:  # noqa: ANN401 - whatever the command returns
    """Read one answer. Raises the library's errors."""
    return cast("Any", await connection.read_response())


async def ask_or_error(connection: Connection, *command: str | bytes | int) -> Any:  # noqa: ANN401
    """Send one command and return its answer; if the server refuses it, the refusal."""
    try:
        return await ask(connection, *command)
    except ResponseError as refusal:
        return refusal


def _never() -> Retry:
    return Retry(NoBackoff(), 0)
