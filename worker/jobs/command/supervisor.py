"""Starts the command jobs of one host: one long-lived process per jobs folder, which forks monitors.

A worker starts it as `python -I -S` when none answers. It detaches itself, so it outlives the worker. It knows nothing
about jobs: each job has a monitor, a process that outlives the supervisor. A supervisor that is killed is replaced at
the next start, and nothing else happens. It ends by itself when no worker has needed it for a while.
This module uses only the standard library.
"""

import fcntl
import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from worker.jobs.command import files, monitor, processes
from worker.jobs.command.monitor import run_job, signal_bytes
from worker.jobs.command.processes import name_this_process, this_place

FOLDER = ".supervisor"
IDLE_S = 60.0
_BACKLOG = 1024
_PAUSE_S = 0.05
_SIGNALS_MAX = 4096


def _code_version() -> str:
    sources = [Path(module.__file__) for module in (files, monitor, processes) if module.__file__] + [Path(__file__)]
    stats = [source.stat() for source in sources if source.exists()]
    return f"{sys.executable} {[(found.st_mtime_ns, found.st_size) for found in stats]}"


_CODE_VERSION = _code_version()  # of what this process runs, whatever is installed later


class SupervisorFiles(NamedTuple):
    """Names the files of the supervisor that serves this code on this host."""

    folder: Path
    name: str

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"


def supervisor_files(root: Path) -> SupervisorFiles:
    """Return the supervisor's files below a folder of jobs.

    The name depends on the host and on the code. Hosts that share the folder have a supervisor each, and a worker of
    another version gets a supervisor of that version.
    """
    return SupervisorFiles(root / FOLDER, f"{crc32(f'{this_place()} {_CODE_VERSION}'.encode()):08x}")


def discard_unserved(root: Path, when_s: float) -> None:
    """Remove the files of supervisors that ended before a time, such as those of another boot or version."""
    for lock in (root / FOLDER).glob("*.lock"):
        with suppress(OSError), lock.open("r+b") as held:
            if lock.stat().st_mtime < when_s:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if it is alive
                lock.with_suffix(".sock").unlink(missing_ok=True)
                lock.unlink()


def main() -> None:
    """Serve the files that the arguments name; returns in the process that a worker started."""
    names, idle_s = SupervisorFiles(Path(sys.argv[2]), sys.argv[3]), float(sys.argv[4])
    os.chdir(names.folder)  # the address of a socket is short, the path of the folder may not be
    if os.fork():
        os._exit(0)  # the worker waits only for its child; the grandchild is detached
    os.setsid()
    # The address exists once the lock is held. A second supervisor ends here: the first one serves its workers.
    with suppress(BlockingIOError), open(names.lock.name, "a", encoding="ascii") as lock:  # noqa: PTH123 - relative
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")  # for operators
        lock.flush()
        with suppress(FileNotFoundError):
            os.unlink(names.socket.name)  # noqa: PTH108 - of a supervisor that was killed
        with socket.socket(socket.AF_UNIX) as listener:
            earlier = os.umask(0o077)
            listener.bind(names.socket.name)
            os.umask(earlier)  # programs inherit it
            listener.listen(_BACKLOG)
            _detach_streams()
            name_this_process("il-supervisor")
            _serve(listener, names.socket.name, idle_s)


def _detach_streams() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _serve(listener: socket.socket, name: str, idle_s: float) -> None:
    # Without collections, a monitor shares most of its memory with the supervisor.
    gc.disable()
    gc.freeze()
    bound = os.stat(name)  # noqa: PTH116 - relative on purpose
    with signal_bytes(signal.SIGCHLD) as wakeups:
        while ready := select.select([listener, wakeups], [], [], idle_s)[0]:
            if wakeups in ready:
                wakeups.recv(_SIGNALS_MAX)
            _reap()
            if listener in ready:
                _fork_monitor(listener)
        # An operator may have removed the address, and another supervisor may have its place.
        with suppress(OSError):
            if os.path.samestat(os.stat(name), bound):  # noqa: PTH116
                os.unlink(name)  # noqa: PTH108
        # A worker that connected in the meantime is still served; one that comes later finds no address.
        while select.select([listener], [], [], 0)[0]:
            _fork_monitor(listener)


def _reap() -> None:
    """Remove ended monitors. Their jobs' folders say everything about them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork_monitor(listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                _be_monitor(listener, connection)
    except OSError:
        # No process or no descriptor is left. The worker receives no greeting, so it knows that nothing was started.
        select.select([], [], [], _PAUSE_S)


def _be_monitor(listener: socket.socket, connection: socket.socket) -> None:
    """Run one job and end this process, whatever happens: it must never serve as a supervisor."""
    try:
        listener.close()
        run_job(connection)
    except BaseException:  # noqa: BLE001 - nothing above this frame may run in this process
        os._exit(1)
    else:
        os._exit(0)
