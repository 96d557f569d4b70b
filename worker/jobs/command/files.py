"""Manages the directory of one command job: its identity and its result, on disk for any worker.

A job's directory appears atomically with its monitor's identity inside, so creating it decides who runs the job. The
program signs in before it begins. If there is neither a live monitor nor a sign-in, the program never ran. This
module uses only the standard library, because the supervisor of jobs starts without any other package.
"""

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

from worker.jobs.command.processes import ProcessId

_UNFINISHED = ".new-"
_DISCARDED = ".old-"
_TAIL_BYTES = 4096
_MONITOR = "supervisor.json"  # the name that earlier versions read and wrote


class CommandResult(NamedTuple):
    """Says how a program ended: its exit code (negative: the signal that killed it) and who ended it."""

    exit_code: int
    ending: str
    ended_at_s: float = 0.0


EXITED, TIMED_OUT, STOPPED = "exited", "timed out", "stopped"


class JobDirectory:
    """Reads and writes one job's files. A read never fails: a missing or truncated file counts as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: Path, monitor: ProcessId) -> "JobDirectory | None":
        """Create the directory, or return None if the job already has one. Only one caller succeeds."""
        # No other claim has this name: a monitor claims a token once.
        unfinished = path.with_name(f"{_UNFINISHED}{monitor.pid}-{monitor.began}-{path.name}")
        unfinished.mkdir(mode=0o700)
        (unfinished / _MONITOR).write_text(json.dumps(monitor), encoding="utf-8")
        try:
            # A directory can be renamed only onto an empty one, and no job's directory is ever empty.
            unfinished.rename(path)
        except OSError:
            shutil.rmtree(unfinished)
            if not path.exists():
                raise
            return None
        return cls(path)

    def exists(self) -> bool:
        return self.path.is_dir()

    def monitor(self) -> ProcessId | None:
        return _process(self._read(_MONITOR))

    def program(self) -> ProcessId | None:
        """Return the process that signed in as the program; None if none did or sign-in is blocked."""
        return _process(self._read("program.json"))

    def sign_in(self, program: ProcessId | None) -> bool:
        """Sign in as the program; False if another process did before. None blocks sign-in for good."""
        scratch = self.path / f"program.{os.getpid()}"
        scratch.write_text(json.dumps(program), encoding="utf-8")
        try:
            # Unlike a rename, a link never replaces a file; unlike an exclusive open, it appears with its content.
            (self.path / "program.json").hardlink_to(scratch)
        except FileExistsError:
            return False
        finally:
            scratch.unlink()
        return True

    def write_result(self, result: CommandResult) -> None:
        scratch = self.path / "result.new"
        scratch.write_text(json.dumps({"exitCode": result.exit_code, "ending": result.ending}), encoding="utf-8")
        scratch.rename(self.path / "result.json")

    def result(self) -> CommandResult | None:
        """Return the result. The modification time of its file is the time of the end."""
        match self._read("result.json"):
            case {"exitCode": int() as exit_code, "ending": str() as ending}:
                with suppress(FileNotFoundError):
                    return CommandResult(exit_code, ending, (self.path / "result.json").stat().st_mtime)
            case _:
                pass
        return None

    def last_line(self) -> str:
        """Return the last non-blank line that the program wrote. It usually gives the reason for a failure."""
        with suppress(OSError), (self.path / "output.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read(_TAIL_BYTES).decode(errors="replace").splitlines()
            return next((line for line in reversed(lines) if line.strip()), "")
        return ""

    def discard(self) -> None:
        """Remove the directory atomically, so that no reader sees a part of it."""
        grave = Path(tempfile.mkdtemp(prefix=_DISCARDED, dir=self.path.parent))
        try:
            self.path.rename(grave / "job")
        finally:
            shutil.rmtree(grave)

    def _read(self, name: str) -> object:
        try:
            return cast("object", json.loads((self.path / name).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None


def discard_ended_before(root: Path, when_s: float) -> int:
    """Remove the directories of jobs that ended before a time, and leftovers of crashes. Return the count."""
    return sum(_is_discarded(entry, when_s) for entry in root.iterdir() if entry.is_dir())


def _is_discarded(entry: Path, when_s: float) -> bool:
    """Remove one directory if it is old. A failed removal, or one by another worker, blocks nothing."""
    try:
        if _last_change_s(entry) >= when_s:
            return False
        if entry.name.startswith((_UNFINISHED, _DISCARDED)):
            shutil.rmtree(entry)
        else:
            JobDirectory(entry).discard()
    except OSError:
        return False
    return True


def _last_change_s(entry: Path) -> float:
    """Return when a job ended; infinity while it runs, so that a long job never counts as old."""
    if entry.name.startswith((_UNFINISHED, _DISCARDED)):
        return entry.stat().st_mtime
    result = JobDirectory(entry).result()
    return result.ended_at_s if result else float("inf")


def _process(found: object) -> ProcessId | None:
    match found:
        case [int() as pid, str() as began, str() as place]:
            return ProcessId(pid, began, place)
        case _:
            return None
