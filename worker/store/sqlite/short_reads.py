"""Short reads: run a read of a few rows in the caller's thread while there are few of them.

A row is found in some tens of microseconds. On an idle machine, waking a thread and being woken by it takes about a
millisecond, and a run reads several times before its job starts. When there are many reads, they share those wake-ups,
and the thread is cheaper. Whatever may wait, for a lock or for a slow disk, is left to the thread as well.
"""

import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from worker.runtime.clock import Clock
from worker.store.sqlite.threads import Job

T = TypeVar("T")

ROWS_MAX: Final = 32  # in one window: a single run needs about twenty, and the event loop must not read all the time
WINDOW_S: Final = 0.05
SLOW_S: Final = 0.02  # a slower read waited for the disk, or had too much to decode
PAUSE_S: Final = 1.0  # how long nothing is read here after that


class NotShort(Exception):
    """NotShort: the reader's thread must do this read."""


class ShortReads:
    """Runs short reads on a connection of its own, which waits for no lock. Use it from one event loop."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._rows, self._window_ends_s = 0, 0.0  # how many rows were read in this window

    def start(self) -> None:
        """Open the connection, after the reader's thread has opened its own. Raises what `connect` raises."""
        self._connection = self._connect()

    def stop(self) -> None:
        """Close the connection, before the threads close theirs: the last one to close tidies the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def attempt(self, job: Job[T], rows: int, clock: Clock) -> T:
        """Run a read of at most this many rows. Raises `NotShort` if the reader's thread must do it."""
        connection, began_s = self._connection, clock.monotonic()
        if began_s >= self._window_ends_s:
            self._rows, self._window_ends_s = 0, began_s + WINDOW_S
        self._rows += rows
        if connection is None or self._rows > ROWS_MAX:
            raise NotShort
        try:
            return job(connection)
        except sqlite3.Error as error:
            raise NotShort from error  # the thread waits for locks, and says what is wrong
        finally:
            if (ended_s := clock.monotonic()) - began_s > SLOW_S:
                self._rows, self._window_ends_s = ROWS_MAX, ended_s + PAUSE_S
