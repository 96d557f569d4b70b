"""How a batch of jobs meets the file: writers share one transaction, readers share nothing but the thread."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.core.errors import ConfigError
from worker.store.sqlite.errors import translated
from worker.store.sqlite.file import IN_MEMORY, truncate_wal
from worker.store.sqlite.identity import StoreFile, StoreReplaced
from worker.store.sqlite.reads import last_position
from worker.store.sqlite.schema import check_version
from worker.store.sqlite.threads import FailedJob, Job, attempt


@dataclass(frozen=True, slots=True)
class Writer:
    """Runs a batch in one transaction and answers when it is on disk.

    A job that raises one of our errors has written nothing and fails alone. An error of SQLite undoes the whole batch,
    so nothing is ever half applied.
    """

    path: Path = IN_MEMORY
    file: StoreFile | None = None  # that must still be there when a batch is committed

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
            # Some errors have made SQLite roll back by itself; the others leave it to us.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes

    def _commit(self, connection: sqlite3.Connection, file: StoreFile) -> None:
        """Commit to the file that everybody else has open too. Raises `StoreReplaced`."""
        file.check()
        position = last_position(connection)
        connection.execute("COMMIT")
        file.note(position)


@dataclass(frozen=True, slots=True)
class Reader:
    """Runs each read by itself: one that fails does not concern the others."""

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
    """What the caller should see: a file that was replaced under SQLite makes errors of many kinds."""
    try:
        if file is not None:
            file.check_again()
    except StoreReplaced as replaced:
        return replaced
    return translated(error, path)
