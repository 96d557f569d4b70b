"""Notices writes to a SQLite file by any process of this host, with inotify of the kernel."""

import asyncio
import ctypes
import os
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, cast

from worker.runtime.clock import Clock
from worker.runtime.timers import Wakeable

_MODIFY: Final = 0x2
_CREATE: Final = 0x100
_HEADER: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_READ_BYTES: Final = 65_536


class FileEvents:
    """Wakes one task when the log of a SQLite file was written."""

    def __init__(self, path: Path, descriptor: int, clock: Clock) -> None:
        self._log_name = os.fsencode(f"{path.name}-wal")
        self._descriptor, self._alarm, self._is_written = descriptor, Wakeable(clock), False

    async def wait(self, seconds: float) -> bool:
        """Wait for a write, at most this long; return whether there was one since the last call."""
        await self._alarm.sleep(seconds)
        is_written, self._is_written = self._is_written, False
        return is_written

    def take(self) -> None:
        """Read the events that are there. Those of other files in the folder wake nobody."""
        try:
            events = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if any(name == self._log_name for name in _names(events)):
            self._is_written = True
            self._alarm.ring()


def _names(events: bytes) -> Generator[bytes]:
    at = 0
    while at < len(events):
        length = cast("int", _HEADER.unpack_from(events, at)[3])
        at += _HEADER.size
        yield events[at : at + length].rstrip(b"\0")
        at += length


@asynccontextmanager
async def file_events(path: Path, clock: Clock) -> AsyncGenerator[FileEvents | None]:
    """Give the events of a SQLite file; None if this system has none."""
    with _watched(path.parent) as descriptor:
        if descriptor is None:
            yield None
            return
        events, loop = FileEvents(path, descriptor, clock), asyncio.get_running_loop()
        loop.add_reader(descriptor, events.take)
        try:
            yield events
        finally:
            loop.remove_reader(descriptor)


@contextmanager
def _watched(folder: Path) -> Generator[int | None]:
    """Watch the folder and not the file: SQLite removes and creates the log."""
    try:
        system = ctypes.CDLL(None)
        init, add = system.inotify_init1, system.inotify_add_watch
    except (OSError, AttributeError):
        yield None
        return
    descriptor = cast("int", init(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        yield None
        return
    try:
        watch = cast("int", add(descriptor, os.fsencode(folder), _MODIFY | _CREATE))
        yield descriptor if watch >= 0 else None
    finally:
        os.close(descriptor)
