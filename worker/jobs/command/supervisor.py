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
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from worker.jobs.command import files, monitor, processes, program
from worker.jobs.command.monitor import run_job, signal_bytes
from worker.jobs.command.processes import name_this_process, this_place
from worker.jobs.command.program import Program, warm_up

FOLDER = ".supervisor"
IDLE_S = 60.0
_BACKLOG = 1024
SPARES = 3
_FORK_AGAIN_S = 0.2
_CHUNK_BYTES = 4096
_PID = struct.Struct("i")


def _code_version() -> str:
    sources = [Path(module.__file__) for module in (files, monitor, processes, program) if module.__file__] + [
        Path(__file__)
    ]
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
    # The process that started the worker may have blocked signals: monitors would not see their programs end.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
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
    listener.setblocking(False)
    bound = os.stat(name)  # noqa: PTH116 - relative on purpose
    spares = Spares(listener)
    with signal_bytes(signal.SIGCHLD) as wakeups:
        while True:
            is_full = spares.fill()
            # A job that starts or ends counts as need. So does any other signal, which is rare.
            ready = select.select([spares.taken, wakeups], [], [], idle_s if is_full else _FORK_AGAIN_S)[0]
            if wakeups in ready:
                wakeups.recv(_CHUNK_BYTES)
            if not ready and is_full:
                break
    # An operator may have removed the address, and another supervisor may have its place.
    with suppress(OSError):
        if os.path.samestat(os.stat(name), bound):  # noqa: PTH116
            os.unlink(name)  # noqa: PTH108
    # Spares that see this process end still serve a worker that connected in the meantime.


class Spares:
    """Keeps monitors ready that wait for a worker, so that no start waits for a fork."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._pids: set[int] = set()
        self.taken, self._take = os.pipe()  # a spare writes its process id when it gets a job
        self._end_seen, self._end = os.pipe()  # closed when the supervisor ends, however it ends
        os.set_blocking(self.taken, False)

    def fill(self) -> bool:
        """Fork as many monitors as got a job or died since the last call; False if that is impossible now."""
        self._forget_taken()
        self._forget_ended()
        while len(self._pids) < SPARES:
            try:
                pid = os.fork()
            except OSError:  # workers get no greeting meanwhile, so they know that nothing was started
                return False
            if pid == 0:
                self._be_monitor()
            self._pids.add(pid)
        return True

    def _forget_taken(self) -> None:
        with suppress(BlockingIOError):
            self._pids -= {pid for (pid,) in _PID.iter_unpack(os.read(self.taken, _CHUNK_BYTES))}

    def _forget_ended(self) -> None:
        """Remove ended monitors. Their jobs' folders say everything about them."""
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._pids.discard(pid)

    def _be_monitor(self) -> None:
        """Wait for a worker, run its job and end this process: it must never serve as a supervisor."""
        try:
            os.close(self._end)
            os.setpgid(0, 0)  # not a session: the kernel would share the processor among sessions, not among jobs
            name_this_process("il-spare")
            ready = Program()
            warm_up()
            connection = self._accept()
            if connection:
                run_job(connection, ready, self._report_busy)
        except BaseException:  # noqa: BLE001 - nothing above this frame may run in this process
            os._exit(1)
        else:
            os._exit(0)

    def _report_busy(self) -> None:
        """Have the supervisor replace this spare, and leave the address to it."""
        with suppress(OSError):  # the supervisor is gone, or was told before
            os.write(self._take, _PID.pack(os.getpid()))
            os.close(self._take)
            self._listener.close()

    def _accept(self) -> socket.socket | None:
        """Return a worker's connection; None if the supervisor has ended and no worker waits."""
        while True:
            ready = select.select([self._listener, self._end_seen], [], [])[0]
            if self._listener in ready:
                with suppress(BlockingIOError):  # another spare was faster
                    return self._listener.accept()[0]
            elif ready:
                return None
