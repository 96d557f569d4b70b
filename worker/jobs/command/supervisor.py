"""The small process between the worker and a command job: it outlives the worker and writes down how the job ended.

It is started as `python -I -S`, is told what to do in one JSON line on its standard input, answers with one on its
standard output, and from then on needs nobody. It imports little, since every job pays for its start.
"""

import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from worker.jobs.command.files import EXITED, STOPPED, TIMED_OUT, CommandResult, JobDirectory
from worker.jobs.command.processes import ProcessId, identify

_CHUNK_BYTES = 65_536
_TRY_AGAIN_S = 1.0
_WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM)


class Order(NamedTuple):
    """What the worker wants to run. It is never written to disk: the environment may hold secrets."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    working_directory: str
    timeout_s: float  # 0: none
    grace_s: float  # between asking a program to end and ending it
    log_bytes_max: int


class SupervisorReply(NamedTuple):
    """What became of an order: `started`, `exists` (another supervisor has the job) or `refused`."""

    outcome: str
    problem: str = ""
    is_permanent: bool = False


def main() -> None:
    order = Order(**json.loads(sys.stdin.readline()))
    # The worker waits for its child only; the grandchild belongs to nobody and survives everybody.
    if os.fork():
        os._exit(0)
    os.setsid()
    with _signals() as wakeups:
        answer, program = _begin(order)
        _tell(answer)
        if program:
            Watch(order, program, wakeups).until_the_end()


def _begin(order: Order) -> tuple[SupervisorReply, "subprocess.Popen[bytes] | None"]:
    directory = JobDirectory.claim(Path(order.directory), _myself())
    if directory is None:
        return SupervisorReply("exists"), None
    try:
        return SupervisorReply("started"), _spawn(order, directory)
    except (OSError, ValueError) as error:
        # Nothing ran, so nothing may be found: the same token can be tried again.
        directory.discard()
        said = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        return SupervisorReply("refused", said, _is_permanent(error)), None


def _spawn(order: Order, directory: JobDirectory) -> "subprocess.Popen[bytes]":
    def sign_in() -> None:
        if not directory.sign_in(_myself()):
            raise PermissionError("this job was given up before it began")

    return subprocess.Popen(  # noqa: S603 - running what the pipeline names is the purpose; there is no shell
        order.arguments,
        env=order.environment,
        cwd=order.working_directory or None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # Between fork and exec, because only then no crash can leave a program that nobody knows of.
        preexec_fn=sign_in,  # noqa: PLW1509 - unsafe with threads, and this process has none
    )


def _is_permanent(error: Exception) -> bool:
    """Say whether the same order fails again: there is no such program, it is none, or no program takes such texts."""
    return isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | ValueError) or (
        isinstance(error, OSError) and error.errno in {errno.ENOEXEC, errno.E2BIG}
    )


def _myself() -> ProcessId:
    identity = identify(os.getpid())
    assert identity, "a process that asks for itself is running"  # noqa: S101
    return identity


def _tell(answer: SupervisorReply) -> None:
    # A worker that died does not hear it, and need not: the job's directory says the same.
    with suppress(OSError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _note(_number: int, _frame: object) -> None:
    """Nothing to do: that there is a handler makes the signal's number appear on the socket."""


@contextmanager
def _signals() -> Generator[socket.socket]:
    """Turn signals into bytes on a socket, so that one `select` waits for them, the output and the time-out alike."""
    incoming, outgoing = socket.socketpair()
    with incoming, outgoing:
        incoming.setblocking(False)
        outgoing.setblocking(False)
        signal.set_wakeup_fd(outgoing.fileno(), warn_on_full_buffer=False)
        for number in _WATCHED:
            signal.signal(number, _note)
        yield incoming


class Watch:
    """Follows one program to its end: keeps its output, ends it in time or when told, and writes the result."""

    def __init__(self, order: Order, program: "subprocess.Popen[bytes]", wakeups: socket.socket) -> None:
        self._order = order
        self._program = program
        self._wakeups = wakeups
        self._directory = JobDirectory(Path(order.directory))
        self._ending = EXITED

    def until_the_end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._order.timeout_s)
        output = cast("BinaryIO", self._program.stdout)
        os.set_blocking(output.fileno(), False)
        with BoundedLog(self._directory.path, self._order.log_bytes_max) as log:
            self._follow(output.fileno(), log)
            # A job that leaves processes behind in its group would still be running.
            self._signal_group(signal.SIGKILL)
            log.drain(output.fileno())
        self._write_result()

    def _write_result(self) -> None:
        """Write how the program ended, however long that takes: without it, a success on a full disk is a failure."""
        while self._directory.exists():
            try:
                self._directory.write_result(CommandResult(self._program.returncode, self._ending))
            except OSError:
                if self._is_told_to_end():
                    return
            else:
                return

    def _is_told_to_end(self) -> bool:
        """Wait for a while; say whether somebody asked for the end of this job meanwhile."""
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
        """Ask the program to end; when the time for that is over too, end it."""
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
    """Keeps the last output of a program: between half of a limit and the limit, in two files."""

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
        """Take one chunk, so that a program that never stops writing can still be ended; False at the end."""
        chunk = os.read(output, _CHUNK_BYTES)
        self._write(chunk)
        return bool(chunk)

    def drain(self, output: int) -> None:
        """Take what is left, and no more than is kept: a process that left the group may write for ever."""
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
        """The file to write to, and how much still fits. One that could not be turned over is begun anew."""
        if self._file and self._file.tell() >= self._half:
            self._file.close()
            self._file = None
            self._path.replace(self._older)
        if self._file is None:
            self._file = FileIO(self._path, "wb")
        return self._file, self._half - self._file.tell()
