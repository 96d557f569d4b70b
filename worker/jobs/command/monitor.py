"""Monitors one command job: outlives the worker and the supervisor, and records how the job ended.

The host's supervisor forks one monitor for each connection of a worker. The monitor receives the order as one line of
JSON, replies with one line, and then needs no other process. This module uses only the standard library, because the
supervisor starts without any other package.
"""

import json
import os
import select
import selectors
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from worker.jobs.command.files import EXITED, STOPPED, TIMED_OUT, CommandResult, JobDirectory
from worker.jobs.command.processes import ProcessId, name_this_process
from worker.jobs.command.program import Execution, NotExecuted, Program, myself

READY = b"ready\n"
ORDER_BYTES_MAX = 16 * 1024 * 1024
_ORDER_TIMEOUT_S = 20.0
_PROMPT_S = 0.2
_CHUNK_BYTES = 65_536
_TRY_AGAIN_S = 1.0


class Order(NamedTuple):
    """Order is what the worker wants to run. It is never written to disk: it may contain secrets."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    working_directory: str
    timeout_s: float  # 0: no limit
    grace_s: float  # between SIGTERM and SIGKILL
    log_bytes_max: int


class MonitorReply(NamedTuple):
    """Answers an order: `started`, `exists` (another monitor has the job) or `refused`."""

    outcome: str
    problem: str = ""
    is_permanent: bool = False
    program: ProcessId | None = None


def run_job(connection: socket.socket, program: Program, is_busy: Callable[[], None]) -> None:
    """Receive one order, execute its program and write its result. Called in a process of its own.

    Calls `is_busy` once the program runs, or if the worker keeps it waiting.
    """
    connection.settimeout(_ORDER_TIMEOUT_S)
    # The worker sends nothing before this line. If it does not receive the line, nothing was started.
    connection.sendall(READY)
    name_this_process("il-monitor")
    if not select.select([connection], [], [], _PROMPT_S)[0]:
        is_busy()
    line = _receive_line(connection)
    if line is None:
        return
    order = Order(**json.loads(line))
    with signal_bytes(signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM) as wakeups:
        if is_abandoned(connection):
            return
        reply = _begin(order, program)
        # A worker that died does not read it and need not: the job's directory holds the same information.
        with suppress(OSError):
            connection.sendall(json.dumps(reply).encode() + b"\n")
        connection.close()
        is_busy()
        if reply.outcome == "started":
            JobMonitor(order, program, wakeups).until_the_end()


def _receive_line(connection: socket.socket) -> bytes | None:
    """Return the worker's order; None if the worker closed the connection or sent too much."""
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES)
        received += chunk
        if not chunk or len(received) > ORDER_BYTES_MAX:
            return None
    return bytes(received)


def is_abandoned(connection: socket.socket) -> bool:
    """Return whether the worker stopped waiting: it will look for the job later, so none must begin now."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(_ORDER_TIMEOUT_S)


def _begin(order: Order, program: Program) -> MonitorReply:
    directory = JobDirectory.claim(Path(order.directory), myself())
    if directory is None:
        return MonitorReply("exists")
    try:
        program.execute(Execution(order.directory, order.arguments, order.environment, order.working_directory))
    except NotExecuted as why:
        # Nothing ran, so leave nothing to find: the same token may be started again.
        directory.discard()
        return MonitorReply("refused", why.problem, why.is_permanent)
    return MonitorReply("started", program=directory.program())


def _note(_number: int, _frame: object) -> None:
    """Do nothing. A handler must exist for the signal's number to appear on the socket."""


@contextmanager
def signal_bytes(*numbers: signal.Signals) -> Generator[socket.socket]:
    """Turn signals into bytes on a socket, so that one `select` waits for signals, output and timeout."""
    incoming, outgoing = socket.socketpair()
    with incoming, outgoing:
        incoming.setblocking(False)
        outgoing.setblocking(False)
        signal.set_wakeup_fd(outgoing.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _note)
        yield incoming


class JobMonitor:
    """Follows one program: keeps its output, ends it on timeout or request, and writes the result."""

    def __init__(self, order: Order, program: Program, wakeups: socket.socket) -> None:
        self._order = order
        self._program = program
        self._wakeups = wakeups
        self._directory = JobDirectory(Path(order.directory))
        self._ending = EXITED

    def until_the_end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._order.timeout_s)
        output = self._program.output
        os.set_blocking(output, False)
        with BoundedLog(self._directory.path, self._order.log_bytes_max) as log:
            self._follow(output, log)
            # A job that leaves processes behind in its group would still be running.
            self._signal_group(signal.SIGKILL)
            log.drain(output)
        self._write_result()

    def _write_result(self) -> None:
        """Write how the program ended and retry until it works.

        Without a result, a success on a full disk would count as a failure.
        """
        while self._directory.exists():
            try:
                self._directory.write_result(CommandResult(self._program.exit_code or 0, self._ending))
            except OSError:
                if self._is_told_to_end():
                    return
            else:
                return

    def _is_told_to_end(self) -> bool:
        """Wait up to a second; return whether a stop of this job was requested meanwhile."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._wakeups, selectors.EVENT_READ)
            return any(signal.SIGTERM in self._wakeups.recv(_CHUNK_BYTES) for _ in waiting.select(_TRY_AGAIN_S))

    def _follow(self, output: int, log: "BoundedLog") -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(output, selectors.EVENT_READ)
            waiting.register(self._wakeups, selectors.EVENT_READ)
            while self._program.poll() is None:
                for key, _ in waiting.select():
                    if key.fd == output and not log.take_from(output):
                        waiting.unregister(output)
                    elif key.fd != output:
                        self._obey(self._wakeups.recv(_CHUNK_BYTES))

    def _obey(self, signals: bytes) -> None:
        if signal.SIGTERM in signals:
            self._end(STOPPED)
        if signal.SIGALRM in signals:
            self._end(TIMED_OUT)

    def _end(self, ending: str) -> None:
        """Send SIGTERM to the program, and SIGKILL after the grace period."""
        if self._ending == EXITED:
            self._ending = ending
            self._signal_group(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, self._order.grace_s)
        elif ending == TIMED_OUT:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, number)


class BoundedLog:
    """Keeps the last output of a program in two files: between half of the limit and the limit."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._path = directory / "output.log"
        self._older = directory / "output.old.log"
        self._half = bytes_max // 2
        self._file: FileIO | None = None

    def __enter__(self) -> "BoundedLog":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def take_from(self, output: int) -> bool:
        """Read one chunk, so that a program that never stops writing can still be stopped; False at the end."""
        chunk = os.read(output, _CHUNK_BYTES)
        self._write(chunk)
        return bool(chunk)

    def drain(self, output: int) -> None:
        """Read the rest, at most as much as is kept: a process that left the group may write forever."""
        with suppress(BlockingIOError):
            for _ in range(2 * self._half // _CHUNK_BYTES + 1):
                if not self.take_from(output):
                    return

    def _write(self, chunk: bytes) -> None:
        # A full disk loses output, not the job.
        with suppress(OSError):
            while chunk:
                file, room = self._opened()
                chunk = chunk[file.write(chunk[:room]) :]

    def _opened(self) -> tuple[FileIO, int]:
        """Return the file to write to and its free space. Truncate a file that could not be rotated."""
        if self._file and self._file.tell() >= self._half:
            self._file.close()
            self._file = None
            self._path.replace(self._older)
        if self._file is None:
            self._file = FileIO(self._path, "wb")
        return self._file, self._half - self._file.tell()
