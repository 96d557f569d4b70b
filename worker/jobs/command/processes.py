"""Identifies processes of this machine reliably, because the system reuses process ids.

This module uses only the standard library, because the supervisor of jobs starts without any other package.
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
    """Identifies a process by pid, start time and kernel; the combination is never reused."""

    pid: int
    began: str
    place: str


@cache
def this_place() -> str:
    """Return the scope in which process ids are valid: one boot of one kernel and one pid namespace.

    If the kernel reports neither, the host name is used. The start time of a process then distinguishes boots.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return socket.gethostname()
    return f"{boot}/{namespace}"


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a running process; None if there is none or it is a zombie."""
    if _PROC.joinpath("self/stat").exists():
        return _identify_by_proc(pid)
    return identify_by_ps(pid)


def name_this_process(name: str) -> None:
    """Set the name that `ps -o comm` shows, where the system allows it."""
    with suppress(OSError):
        (_PROC / "self/comm").write_text(name, encoding="ascii")


def is_alive(process: ProcessId) -> bool:
    """Return whether the process runs in this scope. Processes in another scope are not visible here."""
    return process.place == this_place() and identify(process.pid) == process


def send_signal(process: ProcessId, number: signal.Signals) -> None:
    """Signal exactly this process; do nothing if it has ended."""
    if not hasattr(os, "pidfd_open"):
        if is_alive(process):
            os.kill(process.pid, number)
        return
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor pins the process that has this id now. After the check it cannot refer to another process.
        if is_alive(process):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def send_signal_to_group(leader: ProcessId, number: signal.Signals) -> None:
    """Signal the process group that a process leads, if the process is still alive."""
    if is_alive(leader):
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)


def _identify_by_proc(pid: int) -> ProcessId | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain spaces and parentheses; count the fields after it.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else ProcessId(pid, fields[18], this_place())


def identify_by_ps(pid: int) -> ProcessId | None:
    """Identify a process without /proc, with a resolution of one second."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(  # noqa: S603 - a fixed program, and a number
        command, capture_output=True, check=False, env={"PATH": os.defpath, "LC_ALL": "C"}, timeout=_PS_TIMEOUT_S
    )
    state, _, began = shown.stdout.decode(errors="replace").strip().partition(" ")
    return None if not began or state.startswith("Z") else ProcessId(pid, began.strip(), this_place())
