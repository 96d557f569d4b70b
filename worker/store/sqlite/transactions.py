"""Transactions: writes of a batch share one transaction; each read runs by itself."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from worker.core.errors import ConfigError
from worker.store.sqlite.errors import translated
from worker.store.sqlite.file import IN_MEMORY, truncate_wal
from worker.store.sqlite.identity import StoreFile, StoreReplaced
from worker.store.sqlite.reads import last_position
from worker.store.sqlite.schema import check_version
from worker.store.sqlite.threads import FailedJob, Job, attempt


class Writer(msgspec.Struct, frozen=True):
    """Runs a batch in one transaction and returns when it is on disk.

    A job that raises one of Interlock's own errors has written nothing and fails alone. An error of SQLite rolls back
    the whole batch, so nothing is ever partly applied.
    """

    path: Path = IN_MEMORY
    file: StoreFile | None = None  # must still be the same file when a batch is committed

    def __call__(self, connection: sqlite3.Connection, jobs: Sequence[Job[object]]) -> Sequence[object]:
        try:
            outcomes = self._transact(connection, jobs)
        except sqlite3.Error as error:
            return [FailedJob(explained(error, self.path, self.file))] * len(jobs)
        except ConfigError as error:
            return [FailedJob(error)] * len(jobs)
        if self.path is not IN_MEMORY:
            truncate_wal(connection, self.path)
        return outcomes

    def _transact(self, connection: sqlite3.Connection, jobs: Sequence[Job[object]]) -> list[object]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            check_version(connection, str(self.path))
            if self.file is not None:
                self.file.require_whole_to_write(lambda: last_position(connection))
            outcomes = [attempt(connection, job) for job in jobs]
            if self.file is None:
                connection.execute("COMMIT")
            else:
                self._commit(connection, self.file)
        finally:
            # After some errors SQLite has already rolled back; after others the rollback is done here.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes

    def _commit(self, connection: sqlite3.Connection, file: StoreFile) -> None:
        """Commit, if the file is still the one that other processes use. Raises `StoreReplaced`."""
        file.check()
        position = last_position(connection)
        connection.execute("COMMIT")
        file.note(position)


class Reader(msgspec.Struct, frozen=True):
    """Runs each read by itself: a failed read does not affect the others."""

    path: Path = IN_MEMORY
    file: StoreFile | None = None

    def __call__(self, connection: sqlite3.Connection, jobs: Sequence[Job[object]]) -> Sequence[object]:
        return [self._read(connection, job) for job in jobs]

    def _read(self, connection: sqlite3.Connection, job: Job[object]) -> object:
        try:
            return attempt(connection, job)
        except sqlite3.Error as error:
            return FailedJob(explained(error, self.path, self.file))


def explained(error: sqlite3.Error, path: Path, file: StoreFile | None) -> Exception:
    """Return the error for the caller; `StoreReplaced` if the file was replaced, which has many symptoms."""
    try:
        if file is not None:
            file.check_again()
    except StoreReplaced as replaced:
        return replaced
    return translated(error, path)
