"""Processor time and memory of a contestant: all its processes, found by their ancestors or by the folder they name."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Contest:
    """Holds what identifies the processes of one contestant: the first ones, and a folder in their command lines."""

    roots: tuple[int, ...]
    folder: Path

    def pids(self) -> set[int]:
        parents: dict[int, int] = {}
        found = set(self.roots)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    parents[int(entry.name)] = int(_fields(entry)[1])
                    if str(self.folder).encode() in (entry / "cmdline").read_bytes():
                        found.add(int(entry.name))
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {os.getpid()}

    def cpu_s(self) -> float:
        """The processor time of all processes, and of the children that they have waited for."""
        total = 0.0
        for pid in self.pids():
            with suppress(OSError):
                total += sum(int(ticks) for ticks in _fields(Path(f"/proc/{pid}"))[11:15]) * _TICK_S
        return total

    def share_priority(self) -> None:
        """Give all processes the priority of this one: those that made a session of their own have lost it."""
        mine = Path("/proc/self/autogroup")
        for pid in self.pids() if mine.exists() else ():
            with suppress(OSError):
                Path(f"/proc/{pid}/autogroup").write_text(mine.read_text().split()[-1])

    def memory_mb(self) -> float:
        """The memory of all processes; what some of them share counts once."""
        total = 0
        for pid in self.pids():
            with suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
        return total / 1024


def _fields(process: Path) -> list[str]:
    return (process / "stat").read_text().rpartition(")")[2].split()


@dataclass(slots=True)
class Peak:
    mb: float = 0.0
    ended: Event = field(default_factory=Event)


@contextmanager
def peak_memory(contest: Contest) -> Generator[Peak]:
    """Sample the memory a few times a second, as long as the block lasts."""
    peak = Peak()

    def sample() -> None:
        while not peak.ended.wait(_EVERY_S):
            peak.mb = max(peak.mb, contest.memory_mb())

    peak.mb = contest.memory_mb()
    sampling = Thread(target=sample)
    sampling.start()
    try:
        yield peak
    finally:
        peak.ended.set()
        sampling.join()


def wait_for(path: Path, within_s: float = 60.0) -> None:
    """Wait until a file exists and has content."""
    ends_at = time.monotonic() + within_s
    while not (path.exists() and path.stat().st_size):
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.005)
