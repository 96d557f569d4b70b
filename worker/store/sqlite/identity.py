"""Whether a SQLite file is still the one that was opened, and whether it still has all that was committed to it.

SQLite keeps to the file it opened, whatever becomes of its name. After a file was deleted or replaced, two workers
write to two files, and both are told that all is well. The same happens to those who opened the write-ahead log or its
index (`-wal`, `-shm`) before and after one of them was removed; and whoever closes the older one deletes the newer.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from worker.core.errors import ConfigError

BESIDE: Final = ("-wal", "-shm")
POSITION: Final = "-position"  # the file that says how many changes were committed
POSITION_DIGITS: Final = 20

Inode: TypeAlias = tuple[int, int]  # device and number


class StoreReplaced(ConfigError):
    """The file under a running store is another one now; nothing may be written, and nothing started."""


class ChangesLost(ConfigError):
    """The file lacks changes that were committed to it."""


class StoreFile:
    """One store's file for a whole process: all its connections must be to the same one. Safe to use from any thread.

    `named` is the path as it was given: a link that comes to point elsewhere makes another store of it.
    """

    def __init__(self, path: Path, named: Path | None = None) -> None:
        self._path, self._named = os.fspath(path), os.fspath(named or path)
        self._opened: dict[str, Inode] = {}
        self._lock = threading.Lock()
        self._noted = -1
        self._is_whole = False

    def check(self) -> None:
        """Remember the files at the first call, and compare them at each further one. Raises `StoreReplaced`."""
        with self._lock:
            self._check(self._named, "")
            for suffix in BESIDE:
                self._check(self._path + suffix, suffix)

    def check_again(self) -> None:
        """Compare the files if they were opened before. Raises `StoreReplaced`."""
        if self._opened:
            self.check()

    def is_replaced(self) -> bool:
        try:
            self.check_again()
        except StoreReplaced:
            return True
        return False

    def _check(self, path: str, suffix: str) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116  on the path of every commit: no Path object for it
        except OSError as error:
            if suffix in self._opened or not suffix:
                raise self._replaced(suffix, f"is gone ({error.strerror})") from error
            return  # made when it is needed
        found = status.st_dev, status.st_ino
        if found != self._opened.setdefault(suffix, found):
            raise self._replaced(suffix, "is another file now")

    def _replaced(self, suffix: str, what: str) -> StoreReplaced:
        return StoreReplaced(
            f"the store's file {self._named if not suffix else self._path + suffix} {what}, so this process and others "
            "would write to different stores; stop every worker on it, put the right file back together with its "
            "-wal and -shm, run `interlock store check`, then start the workers again"
        )

    # --- how many changes were committed ------------------------------------------------------------------------------

    def note(self, position: int) -> None:
        """Remember beside the file how far it is committed. Not synced: it may stay behind, and never goes ahead."""
        if position == self._noted:
            return
        self._noted = position
        with suppress(OSError):  # no room, or no right: what is there already holds
            # Each time by its name: whoever accepts a loss removes the file.
            file = os.open(self._path + POSITION, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(file, f"{position:0{POSITION_DIGITS}d}\n".encode(), 0)
            finally:
                os.close(file)

    def noted(self) -> int:
        """Say how far the file was committed, at least. Ask before reading the file itself, which may go on."""
        return noted_position(self._path)

    def require_whole_to_write(self, position: Callable[[], int]) -> None:
        """Raise `ChangesLost` before the first write to a file that lacks changes; `position` says where it ends.

        What is written to it would count as what it lacks, and nobody would see the loss any more.
        """
        if not self._is_whole:
            self.require_whole(self.noted(), position())
            self._is_whole = True

    def require_whole(self, noted: int, position: int) -> None:
        """Raise `ChangesLost` if a file that ends at `position` was committed as far as `noted`."""
        if lost := lost_changes(noted, position):
            raise ChangesLost(f"{describe_loss(self._path, lost)}; {remedy_of_loss(self._path)}")


def noted_position(path: str) -> int:
    try:
        with open(path + POSITION, "rb") as file:  # noqa: PTH123
            return int(file.read(POSITION_DIGITS))
    except (OSError, ValueError):
        return 0


def forget_position(path: str) -> None:
    """Begin anew, for a store that was just made."""
    with suppress(OSError):
        os.unlink(path + POSITION)  # noqa: PTH108


def require_never_made(path: str) -> None:
    """Raise `ChangesLost` if a store was here and its file is gone: a new one would do everything again."""
    if noted := noted_position(path):
        raise ChangesLost(
            f"the store {path} is gone, with {noted:,} changes that were committed to it; put it back together with "
            "its -wal file, which a new store would overwrite; or begin anew, after which a period may run again, by "
            f"removing {path}{POSITION}"
        )


def lost_changes(noted: int, position: int) -> int:
    return max(0, noted - position)


def describe_loss(path: str, lost: int) -> str:
    return (
        f"the store {path} lacks the last {lost:,} changes that were committed to it: its -wal file was removed, or an "
        "older copy was put in its place"
    )


def remedy_of_loss(path: str) -> str:
    return (
        "put the newest copy back together with its -wal file; or accept the loss, after which a period may run again, "
        f"by removing {path}{POSITION}"
    )
