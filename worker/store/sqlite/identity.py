"""Checks that a SQLite file is still the one that was opened, and still has all committed changes.

SQLite keeps using the file it opened, even after its name was removed or replaced. Two workers would then write to two
files, and both would see success. The same happens if processes opened the write-ahead log or its index (`-wal`,
`-shm`) before and after one of them was removed. The process that closes the older one then deletes the newer.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from worker.core.errors import ConfigError

BESIDE: Final = ("-wal", "-shm")
POSITION: Final = "-position"  # the file that records how many changes were committed
POSITION_DIGITS: Final = 20

Inode: TypeAlias = tuple[int, int]  # device and number


class StoreReplaced(ConfigError):
    """StoreReplaced: the file of a running store was replaced; write nothing and start nothing."""


class ChangesLost(ConfigError):
    """ChangesLost: the file lacks changes that were committed to it."""


class StoreFile:
    """Represents one store's file in a process: all connections must use the same file. Thread-safe.

    `named` is the path as it was given: if it is a link and its target changes, it names another store.
    """

    def __init__(self, path: Path, named: Path | None = None) -> None:
        self._path, self._named = os.fspath(path), os.fspath(named or path)
        self._opened: dict[str, Inode] = {}
        self._lock = threading.Lock()
        self._noted = -1
        self._is_whole = False

    def check(self) -> None:
        """Record the files at the first call, and compare them at each later one. Raises `StoreReplaced`."""
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
            status = os.stat(path)  # noqa: PTH116  every commit does this: a Path object would cost time
        except OSError as error:
            if suffix in self._opened or not suffix:
                raise self._replaced(suffix, f"is gone ({error.strerror})") from error
            return  # created when it is needed
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
        """Store the committed position in a file next to the store.

        It is not synced, so it may be too low after a crash but never too high.
        """
        if position == self._noted:
            return
        self._noted = position
        with suppress(OSError):  # no space or no permission: the earlier value still holds
            # Opened by name each time, because an operator who accepts a loss removes the file.
            file = os.open(self._path + POSITION, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(file, f"{position:0{POSITION_DIGITS}d}\n".encode(), 0)
            finally:
                os.close(file)

    def noted(self) -> int:
        """Return a position that is certainly committed. Call it before a read of the file.

        The file may advance meanwhile.
        """
        return noted_position(self._path)

    def require_whole_to_write(self, position: Callable[[], int]) -> None:
        """Raise `ChangesLost` before the first write to a file that lacks changes.

        `position` returns where the file ends. A write would raise that position, and nothing would show the loss any
        more.
        """
        if not self._is_whole:
            self.require_whole(self.noted(), position())
            self._is_whole = True

    def require_whole(self, noted: int, position: int) -> None:
        """Raise `ChangesLost` if a file that ends at `position` was committed up to `noted`."""
        if lost := lost_changes(noted, position):
            raise ChangesLost(f"{describe_loss(self._path, lost)}; {remedy_of_loss(self._path)}")


def noted_position(path: str) -> int:
    try:
        with open(path + POSITION, "rb") as file:  # noqa: PTH123
            return int(file.read(POSITION_DIGITS))
    except (OSError, ValueError):
        return 0


def forget_position(path: str) -> None:
    """Delete the recorded position, for a store that was just created."""
    with suppress(OSError):
        os.unlink(path + POSITION)  # noqa: PTH108


def require_never_made(path: str) -> None:
    """Raise `ChangesLost` if a store existed here and its file is gone: a new one would repeat everything."""
    if noted := noted_position(path):
        raise ChangesLost(
            f"the store {path} is gone, with {noted:,} changes that were committed to it; put it back together with "
            "its -wal file, which a new store would overwrite; or start over, after which a period may run again, by "
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
