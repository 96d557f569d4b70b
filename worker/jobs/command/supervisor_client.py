"""Sends orders to the host's supervisor, and starts one if none answers.

A worker that receives the supervisor's greeting sends its order. Without the greeting, nothing was sent and nothing
started. If the connection breaks after that, the same order is sent again: a token starts one program, however often it
is sent.
"""

import asyncio
import json
import os
import socket
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import worker
from worker.core.errors import RetryLater
from worker.jobs.command.monitor import READY, MonitorReply, Order
from worker.jobs.command.processes import ProcessId
from worker.jobs.command.supervisor import IDLE_S, SupervisorFiles, supervisor_files
from worker.runtime.clock import Clock

# Isolated and without site packages, so that the supervisor starts fast with any Python installation.
_CODE: Final = "import sys; sys.path.append(sys.argv[1]); from worker.jobs.command.supervisor import main; main()"
_CODE_ROOT: Final = str(Path(worker.__path__[0]).parent)
_ADDRESS_BYTES_MAX: Final = 100  # of a socket's path; systems allow 104 to 108
_SENDS_MAX: Final = 3
_CONNECTS_MAX: Final = 100  # while another worker starts the supervisor
_CONNECT_AGAIN_S: Final = 0.05
_CHUNK_BYTES: Final = 65_536


class OrderNotSent(RetryLater):
    """Signals that no order left this worker: the job was certainly not started."""


class OrderUnanswered(RetryLater):
    """Signals that an order was sent and not answered: the job may have been started."""


@dataclass(frozen=True, slots=True)
class SupervisorClient:
    """Sends orders of one worker to the supervisor of a folder of jobs."""

    idle_s: float = IDLE_S  # after which a supervisor that this worker starts ends, if nobody needs it
    _launching: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False, repr=False)

    async def run(self, root: Path, order: Order, may_send: Callable[[], bool], clock: Clock) -> MonitorReply:
        """Return the reply to an order. Raises `OrderNotSent` and `OrderUnanswered`."""
        names, line = supervisor_files(root), json.dumps(order._asdict()).encode() + b"\n"
        for _ in range(_SENDS_MAX):
            with await self._connected(names, clock) as connection:
                # No other task runs between this check and the first byte.
                if not may_send():
                    raise OrderNotSent("this worker may not send any more; another one will")
                with suppress(OSError, ValueError, TypeError):
                    await asyncio.get_running_loop().sock_sendall(connection, line)
                    return _reply(await _receive_line(connection))
        raise OrderUnanswered(f"{_SENDS_MAX} supervisors ended before they answered")

    async def _connected(self, names: SupervisorFiles, clock: Clock) -> socket.socket:
        """Return a connection whose other end waits for an order. Raises `OrderNotSent`."""
        problem: OSError | None = None
        for tries in range(_CONNECTS_MAX):
            try:
                return await _greeted(names)
            except (FileNotFoundError, ConnectionError) as refused:
                problem = refused
            except OSError as refused:
                raise OrderNotSent(f"the supervisor of {names.folder.parent} cannot be reached: {refused}") from refused
            if tries:
                await clock.sleep(_CONNECT_AGAIN_S)  # another worker starts one at the same time
            await self._launch(names)
        raise OrderNotSent(f"no supervisor answers in {names.folder}: {problem}") from problem

    async def _launch(self, names: SupervisorFiles) -> None:
        """Start a supervisor, unless another task or worker did so meanwhile. Raises `OrderNotSent`."""
        async with self._launching:
            if await asyncio.to_thread(_is_served, names):
                return
            try:
                await asyncio.to_thread(_prepare, names.folder)
            except OSError as problem:
                raise OrderNotSent(f"the folder of command jobs cannot be used: {problem}") from problem
            try:
                launched = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", "-c", _CODE),
                    *(_CODE_ROOT, str(names.folder.absolute()), names.name, str(self.idle_s)),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=PIPE,
                    env={},
                )
            except OSError as problem:
                raise OrderNotSent(f"no process can be started on this machine: {problem}") from problem
            # Its end of the pipe is closed once it listens, or when it dies.
            _, complaints = await launched.communicate()
            if complaints:
                raise OrderNotSent(
                    f"the supervisor of command jobs failed: {complaints[-400:].decode(errors='replace')}"
                )


def _prepare(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written by another user; remove it, because orders contain secrets")


def _is_served(names: SupervisorFiles) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe, _address(names.socket) as address:
        probe.connect(address)
        return True
    return False


async def _greeted(names: SupervisorFiles) -> socket.socket:
    """Return a connection whose other end is ready. Raises `OSError`."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        await _greet(connection, names)
    except BaseException:
        connection.close()
        raise
    return connection


async def _greet(connection: socket.socket, names: SupervisorFiles) -> None:
    connection.setblocking(False)
    with _address(names.socket) as address:
        await asyncio.get_running_loop().sock_connect(connection, address)
    if await _receive_line(connection) != READY:
        raise ConnectionResetError("the supervisor ended before it was ready")


async def _receive_line(connection: socket.socket) -> bytes:
    """Return one line, or what was received of it before the other end closed the connection."""
    received = b""
    while not received.endswith(b"\n"):
        chunk = await asyncio.get_running_loop().sock_recv(connection, _CHUNK_BYTES)
        received += chunk
        if not chunk:
            break
    return received


def _reply(line: bytes) -> MonitorReply:
    """Raises `ValueError` or `TypeError` if the line is not a complete reply."""
    fields = cast("tuple[str, str, bool, tuple[int, str, str] | None]", json.loads(line))
    outcome, problem, is_permanent, program = fields
    return MonitorReply(outcome, problem, is_permanent, ProcessId(*program) if program else None)


@contextmanager
def _address(path: Path) -> Generator[str]:
    """Give a path that is short enough for the address of a socket."""
    names = [str(path)]
    with suppress(FileNotFoundError):  # the working directory of the worker was deleted
        names.append(os.path.relpath(path))
    for name in names:
        if len(os.fsencode(name)) <= _ADDRESS_BYTES_MAX:
            yield name
            return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
