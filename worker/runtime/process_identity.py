"""Process identity: proves that another process of this machine has ended; a pid alone does not.

A proof is never wrong: whatever cannot be read or compared proves nothing, and the caller waits as for any other
machine.

* The boot id separates boots and kernels, so also virtual machines.
* The pid namespace separates containers, which share a boot id. Its number is reused only after all its processes
  have ended.
* The time namespace decides how start times read, so processes are compared only within one.
* The start time separates processes that had the same pid one after another.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_ENDED: Final = frozenset({"Z", "X"})
_STAT_FIELD_BEGAN: Final = 19  # counted from the state, which follows the name


class ProcessIdentity(NamedTuple):
    place: str
    pid: int
    began: str  # in clock ticks since the boot

    def __str__(self) -> str:
        return f"{self.place}|{self.pid}|{self.began}"


def parse_identity(text: str) -> ProcessIdentity | None:
    """Return the identity that a text names; None if it names none."""
    place, _, rest = text.partition("|")
    pid, _, began = rest.partition("|")
    if not (place and began) or not (pid.isascii() and pid.isdigit()):
        return None
    return ProcessIdentity(place, int(pid), began)


class ProcessWitness:
    """Knows this process, and whether another one of the same boot and namespace has ended."""

    def __init__(
        self, proc: Path = _PROC, *, pid: int | None = None, probe: Callable[[int, int], None] = os.kill
    ) -> None:
        self._proc, self._probe = proc, probe
        self.own = self._identify_own(os.getpid() if pid is None else pid)

    def has_ended(self, other: ProcessIdentity) -> bool:
        """Return whether the process has certainly ended; False if it lives or nothing can be proven."""
        if self.own is None or other.place != self.own.place or other.pid <= 0:
            return False
        try:
            # Signal 0 only checks. Unlike /proc, which may hide other users' processes, it misses none.
            self._probe(other.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it exists, and belongs to somebody else
        found = self._stat(other.pid)
        if found is None:
            return False
        state, began = found
        return began != other.began or (state in _ENDED and self._has_no_threads(other.pid))

    def _identify_own(self, pid: int) -> ProcessIdentity | None:
        try:
            boot = (self._proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            namespaces = [(self._proc / "self/ns/pid").readlink(), *self._time_namespace()]
            # If /proc belongs to another namespace, its pids are not ours.
            is_own_view = str((self._proc / "self").readlink()) == str(pid)
        except (OSError, ValueError):
            return None
        found = self._stat(pid)
        if not boot or not is_own_view or found is None:
            return None
        return ProcessIdentity("/".join((boot, *map(str, namespaces))), pid, found[1])

    def _time_namespace(self) -> list[Path]:
        namespace = self._proc / "self/ns/time"  # kernels before 5.6 have none
        return [namespace.readlink()] if namespace.is_symlink() else []

    def _stat(self, pid: int) -> tuple[str, str] | None:
        """Return state and start time of a process; None if they cannot be read."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The name in parentheses may contain spaces and parentheses; count the fields after it.
        fields = text.rpartition(")")[2].split()
        return (fields[0], fields[_STAT_FIELD_BEGAN]) if len(fields) > _STAT_FIELD_BEGAN else None

    def _has_no_threads(self, pid: int) -> bool:
        """Return whether no thread is left: the first one may have ended before the others."""
        try:
            return len(list((self._proc / str(pid) / "task").iterdir())) <= 1
        except FileNotFoundError:
            return True  # reaped meanwhile
        except OSError:
            return False
