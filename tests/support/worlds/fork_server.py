"""Processes of the command line, forked from one that has loaded it: to load it takes longer than most of them run.

They are real processes, to be stopped and killed, with an environment, a directory and streams of their own. Tests of
how the program is loaded, or of its streams, start an interpreter of their own. `command_for_shells` is a command that
has them forked, for shells that type `interlock`.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, TypeAlias

_ROOT: Final = Path(__file__).parents[3]
_RECORDED: Final = _ROOT / "tests/recorded/sitecustomize.py"
# What a worker loads as it starts, on SQLite, on Redis or on AWS.
_LOADED: Final = (
    "worker.cli.main",
    "worker.cli.run.command",
    "worker.app.build",
    "worker.app.embedded",
    "worker.app.redis",
    "worker.store.dynamodb.tables",
)
_REQUEST_MAX: Final = 200_000  # bytes
_NUMBER_BYTES: Final = 8
_END_S: Final = 10.0

Program: TypeAlias = Callable[[], None]


class ForkedProcess:
    """One of them, with what tests use of `subprocess.Popen`. Safe to use from any thread."""

    def __init__(self, words: Sequence[str], connection: socket.socket) -> None:
        self.args, self._connection, self._lock = list(words), connection, threading.Lock()
        self.returncode: int | None = None
        self.pid = _received(connection)

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        told = select.poll()
        told.register(self._connection, select.POLLIN)
        if told.poll(None if timeout is None else timeout * 1000):
            with self._lock:  # another thread may have seen the same
                if self.returncode is None:
                    self.returncode = _received(self._connection)
                    self._connection.close()
        return self.returncode


def start(
    words: Sequence[str], *, at: Path, environment: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
) -> ForkedProcess:
    """Start `interlock` with these words; nothing can be read from its standard input."""
    ours, theirs = socket.socketpair()
    asked = json.dumps({"words": list(words), "at": os.fspath(at), "environment": dict(environment)}).encode()
    assert len(asked) <= _REQUEST_MAX
    with theirs, Path(os.devnull).open() as nothing:
        given = [theirs.fileno(), nothing.fileno(), stdout.fileno(), stderr.fileno()]
        socket.send_fds(_server(), [asked], given)
    return ForkedProcess(words, ours)


@cache
def _server() -> socket.socket:
    """The way to the process that forks: each test process has one. It ends when we do, however we end."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worlds.fork_server"], cwd=_ROOT, stdin=theirs.fileno()
        )
    atexit.register(process.wait, _END_S)
    atexit.register(ours.close)  # first: last registered
    return ours


# Asks for a process with the streams, the directory and the environment that it was started with itself. It is there
# for as long as that process, hands signals on to it, and ends as it does.
_COMMAND: Final = """#!{python} -IS
import json, os, signal, socket, sys
environment = dict(os.environ)
server = socket.socket(fileno=int(environment.pop("{variable}")))
ours, theirs = socket.socketpair()
asked = dict(words=sys.argv[1:], at=os.getcwd(), environment=environment)
socket.send_fds(server, [json.dumps(asked).encode()], [theirs.fileno(), 0, 1, 2])
theirs.close()
def received():
    number = ours.recv({bytes}, socket.MSG_WAITALL)
    return int.from_bytes(number, "big", signed=True) if number else 70
pid = received()
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda number, _: os.kill(pid, number))
code = received()
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
_VARIABLE: Final = "TESTS_FORK_SERVER"


def command_for_shells(folder: Path) -> tuple[dict[str, str], int]:
    """Put an `interlock` into a folder; return the variables it needs, and a file that its shell must pass on."""
    server = _server().fileno()
    command = folder / "interlock"
    command.write_text(_COMMAND.format(python=sys.executable, variable=_VARIABLE, bytes=_NUMBER_BYTES))
    command.chmod(0o755)
    return {_VARIABLE: str(server)}, server


def _received(connection: socket.socket) -> int:
    number = connection.recv(_NUMBER_BYTES, socket.MSG_WAITALL)
    assert len(number) == _NUMBER_BYTES, "the process that forks others has ended; what it said is above"
    return int.from_bytes(number, signed=True)


# --- in the process that forks ----------------------------------------------------------------------------------------


def serve() -> Program | None:
    """Fork a process for each request. Returns in each of them, with what it is to do; and at the end, with nothing."""
    for name in _LOADED:
        import_module(name)
    for panel in import_module("worker.cli.catalogue").PAGE.panels:
        for command in panel.commands:
            command.load()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of whoever stops the tests, who then end us
    requests = socket.socket(fileno=os.dup(0))
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, _be_woken)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    connections: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests, waking], [], [])
        if waking in ready:
            os.read(waking, 512)
            _tell_ends(connections)
        if requests in ready:
            asked, given, _, _ = socket.recv_fds(requests, _REQUEST_MAX, 4)
            if not asked:
                return None
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for descriptor in (waking, woken, *(each.detach() for each in (requests, *connections.values()))):
                    os.close(descriptor)
                return _program(json.loads(asked), given)
            connections[pid] = connection = socket.socket(fileno=given[0])
            connection.sendall(pid.to_bytes(_NUMBER_BYTES, signed=True))
            for descriptor in given[1:]:
                os.close(descriptor)


def _be_woken(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: without a handler, a signal wakes nobody."""


def _tell_ends(connections: dict[int, socket.socket]) -> None:
    while connections:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with connections.pop(pid) as connection:
            code = os.waitstatus_to_exitcode(status)
            try:
                connection.sendall(code.to_bytes(_NUMBER_BYTES, signed=True))
            except OSError:
                continue  # nobody asks any more


def _program(asked: dict[str, Any], given: Sequence[int]) -> Program:
    """Be as a new process would, and give what it runs."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, descriptor in enumerate(given[1:]):
        os.dup2(descriptor, stream)
    for descriptor in given:
        os.close(descriptor)
    os.chdir(asked["at"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv[:] = ["interlock", *asked["words"]]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    runpy.run_path(os.fspath(_RECORDED))
    main: Program = import_module("worker.cli.main").main
    return main


if __name__ == "__main__" and (program := serve()):
    program()
