"""The embedded store: four tables and their change feed in one SQLite file.

One thread writes and one reads, each with its own connection. Commits that wait together share one transaction, so that
one disk sync serves them all, and none is acknowledged before that sync. Several processes may share the file; SQLite's
write lock orders their transactions.
"""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.store.limits import check_form
from worker.store.sqlite import commit as sqlite_commit
from worker.store.sqlite import housekeeping
from worker.store.sqlite import reads as sqlite_reads
from worker.store.sqlite.file import BUSY_TIMEOUT, IN_MEMORY, connect, connect_in_memory, connect_to_read
from worker.store.sqlite.housekeeping import FEED_ROWS_MAX, SWEEP_STEP
from worker.store.sqlite.identity import StoreFile
from worker.store.sqlite.ranges import range_of, read_cursor
from worker.store.sqlite.reads import PAGE_ROWS_MAX, Query
from worker.store.sqlite.threads import InlineJobThread, JobThread, OwnJobThread
from worker.store.sqlite.transactions import Reader, Writer
from worker.store.table import Between, Change, Index, Key, Page, Prefix, Row, TableName, Write

KEYS_PER_READ: Final = 500  # so that other reads can run during a read of thousands of keys


class Connections(msgspec.Struct, frozen=True):
    """Holds the two threads that do the work: one for writes, one for reads."""

    writes: JobThread
    reads: JobThread


def connections_on_file(
    path: Path, busy_timeout: timedelta = BUSY_TIMEOUT, file: StoreFile | None = None
) -> Connections:
    """Return the threads for one file; all stores of a process on the same file share `file`."""
    checked = file or StoreFile(path)

    def opened(opening: Callable[[Path, timedelta], sqlite3.Connection]) -> sqlite3.Connection:
        checked.check_again()
        connection = opening(path, busy_timeout)
        checked.check()
        return connection

    # Closing the last connection to a replaced file would write to, and delete, files that belong to the new one.
    return Connections(
        OwnJobThread("store-writer", lambda: opened(connect), Writer(path, checked), checked.is_replaced),
        OwnJobThread("store-reader", lambda: opened(connect_to_read), Reader(path, checked), checked.is_replaced),
    )


def connections_in_memory() -> Connections:
    connection = connect_in_memory()
    return Connections(InlineJobThread(connection, Writer()), InlineJobThread(connection, Reader()))


class SqliteTables:
    """Implements `Tables` and `ChangeFeed` on SQLite. Use an instance from one event loop.

    With `file`, which a worker passes, it refuses to start on a file that lacks committed changes.

    A caller that is cancelled while its commit waits does not undo it: the commit may still be applied. Reload before
    acting on it, as after `RetryLater`.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        new_commit_id: Callable[[], str] = random_long_id,
        lanes: Connections | None = None,
        file: StoreFile | None = None,
    ) -> None:
        self._clock, self._new_commit_id = clock, new_commit_id
        self._file = file
        self._lanes = lanes or connections_on_file(path, file=file)

    @classmethod
    def in_memory(cls, clock: Clock, new_commit_id: Callable[[], str] = random_long_id) -> "SqliteTables":
        """Return a store without file, thread or wait: for simulation on a virtual clock."""
        return cls(IN_MEMORY, clock, new_commit_id=new_commit_id, lanes=connections_in_memory())

    async def start(self) -> None:
        await self._lanes.writes.start()  # first: it creates or migrates the file
        try:
            await self._lanes.reads.start()
            await self._require_whole()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await self._lanes.writes.stop()
        await self._lanes.reads.stop()

    async def _require_whole(self) -> None:
        """Raise `ChangesLost` if the file lacks committed changes: a worker would decide them again."""
        if self._file is not None:
            noted = self._file.noted()
            self._file.require_whole(noted, await self.last_position())

    async def ping(self) -> None:
        await self._lanes.reads.run(sqlite_reads.last_position)

    async def get(self, table: TableName, key: Key) -> Row | None:
        now = self._clock.now()
        return await self._lanes.reads.run(lambda connection: sqlite_reads.get(connection, table, key, now))

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        for first in range(0, len(keys), KEYS_PER_READ):
            found |= await self._get_some(table, keys[first : first + KEYS_PER_READ])
        return found

    async def _get_some(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        now = self._clock.now()
        return await self._lanes.reads.run(lambda connection: sqlite_reads.get_many(connection, table, keys, now))

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        within = range_of(sk, index)
        if cursor is not None:
            within = within.after(read_cursor(cursor, within), reverse=reverse)
        rows_max = min(limit or PAGE_ROWS_MAX, PAGE_ROWS_MAX)
        asked = Query(table=table, pk=pk, within=within, index=index, reverse=reverse, rows_max=rows_max)
        now = self._clock.now()
        return await self._lanes.reads.run(lambda connection: sqlite_reads.query(connection, asked, now))

    async def commit(self, *writes: Write) -> None:
        check_form(writes)
        commit_id, now = self._new_commit_id(), self._clock.now()
        await self._lanes.writes.run(lambda connection: sqlite_commit.commit(connection, writes, commit_id, now))

    # --- the change feed ----------------------------------------------------------------------------------------------

    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        return await self._lanes.reads.run(lambda connection: sqlite_reads.changes(connection, table, after, limit))

    async def last_position(self) -> int:
        return await self._lanes.reads.run(sqlite_reads.last_position)

    # --- housekeeping -------------------------------------------------------------------------------------------------

    async def sweep(self, by: datetime, limit: int = SWEEP_STEP) -> int:
        """Delete up to `limit` rows that expired long before `by`; call it again while it returns that many."""
        now = self._clock.now()
        return await self._lanes.writes.run(lambda connection: housekeeping.sweep(connection, by, limit, now))

    async def trim(self, lowest_checkpoint: int = 0, rows_max: int = FEED_ROWS_MAX) -> int:
        """Delete changes up to every reader's checkpoint, over 24 h old or too many; return how many.

        `lowest_checkpoint` is the lowest checkpoint of any reader. A reader that asks for a deleted change later gets
        `Trimmed`. Call it again while it returns `TRIM_STEP`.
        """
        now = self._clock.now()
        return await self._lanes.writes.run(
            lambda connection: housekeeping.trim(connection, now, lowest_checkpoint, rows_max)
        )
