"""Processes of this machine, told apart for certain: a process id alone is used again after a while.

Standard library only, because the supervisor of a job starts without anything else.
"""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_PS_TIMEOUT_S = 5


class ProcessId(NamedTuple):
    """A process, the moment it began as its kernel counts, and whose kernel that is: together never used twice."""

    pid: int
    began: str
    place: str


@cache
def this_place() -> str:
    """Name the only place where process ids mean what they mean here: one boot of one kernel, one pid namespace.

    Where the kernel tells neither, the host's name stands for it; a process's beginning then tells boots apart.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return socket.gethostname()
    return f"{boot}/{namespace}"


def identify(pid: int) -> ProcessId | None:
    """Give the identity of a running process; None if there is none, or only what its parent has not collected yet."""
    if _PROC.joinpath("self/stat").exists():
        return _identify_by_proc(pid)
    return identify_by_ps(pid)


def is_alive(process: ProcessId) -> bool:
    """Whether the process runs here; what runs in another place cannot be seen from this one."""
    return process.place == this_place() and identify(process.pid) == process


def send_signal(process: ProcessId, number: signal.Signals) -> None:
    """Signal exactly this process, or nobody if it is over."""
    if not hasattr(os, "pidfd_open"):
        if is_alive(process):
            os.kill(process.pid, number)
        return
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor holds on to whoever has the id now; after this check it cannot become somebody else.
        if is_alive(process):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def send_signal_to_group(leader: ProcessId, number: signal.Signals) -> None:
    """Signal the group that a process leads, if it still does."""
    if is_alive(leader):
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)


def _identify_by_proc(pid: int) -> ProcessId | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses; the fields are counted from behind it.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else ProcessId(pid, fields[18], this_place())


def identify_by_ps(pid: int) -> ProcessId | None:
    """The same where there is no /proc, to the second."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(  # noqa: S603 - a fixed program, and a number
        command, capture_output=True, check=False, env={"PATH": os.defpath, "LC_ALL": "C"}, timeout=_PS_TIMEOUT_S
    )
    state, _, began = shown.stdout.decode(errors="replace").strip().partition(" ")
    return None if not began or state.startswith("Z") else ProcessId(pid, began.strip(), this_place())
