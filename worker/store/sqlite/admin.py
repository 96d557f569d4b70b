"""SQLite administration: creates, checks, migrates and measures the file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from glob import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.runtime.clock import Clock
from worker.store.admin import Figure, Migration, StoreFinding
from worker.store.sqlite.commit import EPOCH
from worker.store.sqlite.damage import damaged_rows, described, removal
from worker.store.sqlite.errors import TROUBLES, translated, unusable
from worker.store.sqlite.file import BUSY_TIMEOUT, connect, connect_in_memory
from worker.store.sqlite.identity import (
    describe_loss,
    lost_changes,
    noted_position,
    remedy_of_loss,
    require_never_made,
)
from worker.store.sqlite.reads import last_position
from worker.store.sqlite.schema import APPLICATION_ID, VERSION
from worker.store.sqlite.statements import (
    CHANGE_OLDEST,
    ENTRIES_COUNT,
    ROWS_COUNT,
    ROWS_EXPIRED_COUNT,
    TRIMMED_GET,
)
from worker.store.table import ACTIVE, LISTS, Index, TableName

PROBLEMS_MAX: Final = 10
ROOM_BYTES_MIN: Final = 100_000  # a few commits of a few rows
PART: Final = ".part"
ABANDONED_AFTER: Final = timedelta(hours=1)  # a copy that is being written changes all the time
WAL, FULL = "wal", 2

# Kinds of rows that an index can count: a name, the index, and the prefix of their partitions in it.
COUNTED: Final[Sequence[tuple[str, Index, str]]] = (
    ("pipelines", LISTS, "PIPELINES"),
    ("active rows", ACTIVE, "ACTIVE#"),
    ("ended runs", LISTS, "STATUS#"),
)


class Stamp(msgspec.Struct, frozen=True):
    """Holds whose file it is and its version; read without changing the file."""

    application: int
    version: int

    @property
    def is_older(self) -> bool:
        return self.application == APPLICATION_ID and self.version < VERSION


class SqliteAdmin:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock

    @property
    def place(self) -> str:
        return str(self._path)

    async def require_ready(self) -> None:
        await asyncio.to_thread(self._require_ready)

    async def require_writable(self) -> None:
        await asyncio.to_thread(self._require_writable)

    async def init(self, *, may_create: bool) -> bool:  # noqa: ARG002  required by the port; a file costs nothing
        return await asyncio.to_thread(self._init)

    async def check(self) -> Sequence[StoreFinding]:
        return await asyncio.to_thread(lambda: list(self._check()))

    async def migrate(self, *, backup: bool) -> Migration | None:
        return await asyncio.to_thread(self._migrate, backup)

    async def stats(self) -> Sequence[Figure]:
        return await asyncio.to_thread(self._stats)

    # --- create and migrate -------------------------------------------------------------------------------------------

    def _require_ready(self) -> None:
        if not _is_there(self._path):
            raise ConfigError(
                f"there is no store at {self._path}; make it with `interlock store init`, or name another with --store"
            )
        found = self._stamp()
        if found.is_older:
            raise ConfigError(
                f"the store {self._path} has version {found.version} and this program uses {VERSION}; "
                "bring it up with `interlock store migrate`, which keeps a copy of it"
            )

    def _require_writable(self) -> None:
        """Take the lock that a commit takes, and check the free disk space; write nothing.

        Raises `RetryLater` if the file is locked or the disk is full.
        """
        try:
            with closing(connect(self._path)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        disk = os.statvfs(self._path)
        require_room(self._path, disk.f_bavail * disk.f_frsize)

    def _init(self) -> bool:
        if _is_there(self._path):
            self._require_ready()
            connect(self._path).close()  # rejects a file of another program
            return False
        require_never_made(str(self._path))
        connect(self._path).close()
        return True

    def _migrate(self, with_backup: bool) -> Migration:
        if not _is_there(self._path):
            self._require_ready()
        before = self._stamp()
        if before.is_older and (damaged := damaged_rows(self._opened)):
            raise ConfigError(
                f"the store {self._path} has damaged rows and was not changed: {described(damaged)}; "
                f"{removal(self._path, damaged)}"
            )
        copy = self._back_up(before.version) if with_backup and before.is_older else None
        try:
            connect(self._path).close()
        except BaseException:
            if copy is not None:
                copy.unlink(missing_ok=True)  # the store is as it was, and each further try would leave another copy
            raise
        return Migration(before=before.version, after=self._stamp().version, backup=copy)

    def _back_up(self, version: int) -> Path:
        """Copy the store as of one moment, even while other processes write to it."""
        moment = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
        copy = self._path.with_name(f"{self._path.name}.v{version}.{moment}.bak")
        if copy.exists():
            raise ConfigError(f"the copy {copy} is there already; move it away, or migrate with --no-backup")
        self._remove_abandoned_copies()
        # An incomplete copy is worse than none: the process may be killed at any moment.
        part = copy.with_name(f"{copy.name}{PART}")
        try:
            with self._opened() as source, closing(sqlite3.connect(part)) as target:
                source.backup(target)
            part.rename(copy)
            _sync_folder(copy.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return copy

    def _remove_abandoned_copies(self) -> None:
        """Remove incomplete copies of migrations that were killed; another process may be writing a young one."""
        for part in self._path.parent.glob(f"{escape(self._path.name)}.v*.bak{PART}"):
            with suppress(FileNotFoundError):
                if self._clock.now().timestamp() - part.stat().st_mtime > ABANDONED_AFTER.total_seconds():
                    part.unlink()

    def _stamp(self) -> Stamp:
        with self._opened() as connection:
            [application], [version] = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
            )
        return Stamp(int(application), int(version))

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        """Open the file as it is, without creating or migrating it. Raises Interlock's own errors only."""
        try:
            address = f"file:{quote(str(self._path.resolve()))}?mode=rw"
            timeout_s = BUSY_TIMEOUT.total_seconds()
            with closing(sqlite3.connect(address, timeout_s, isolation_level=None, uri=True)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise unusable(error, self._path) from error

    # --- check --------------------------------------------------------------------------------------------------------

    def _check(self) -> Iterator[StoreFinding]:
        """Yield the result of each check; stop where the remaining checks cannot be made."""
        try:
            self._require_ready()
            connect(self._path).close()  # as the worker does: path, permissions, owner of the file, version
            self._require_writable()
        except (ConfigError, RetryLater) as error:
            yield _refused("file", error)
            # It must be sound before it can be migrated.
            yield from self._soundness() if self._is_older() else ()
            return
        yield StoreFinding("file", f"{self._path} can be opened and written")
        yield StoreFinding("version", f"{VERSION}, the one this program uses")
        yield (layout := self._tried("layout", self._layout))
        if layout.is_sound:
            yield self._tried("durability", self._durability)
            yield from self._soundness()
            yield self._tried("feed", self._feed)
            yield self._tried("changes", self._changes)

    def _soundness(self) -> Iterator[StoreFinding]:
        yield self._tried("integrity", self._integrity)
        yield self._tried("rows", self._rows)

    def _is_older(self) -> bool:
        try:
            return _is_there(self._path) and self._stamp().is_older
        except (ConfigError, RetryLater, sqlite3.Error):
            return False

    def _tried(self, subject: str, check: Callable[[], StoreFinding]) -> StoreFinding:
        """Return the result of a check; that it cannot be made is one, too."""
        try:
            return check()
        except (ConfigError, RetryLater) as error:
            return _refused(subject, error)
        except (sqlite3.Error, OSError) as error:
            return StoreFinding(subject, f"cannot be checked: {error}", "the file is damaged: restore a backup")

    def _layout(self) -> StoreFinding:
        with self._opened() as connection, closing(connect_in_memory()) as model:
            lacking = sorted(_layout_of(model) - _layout_of(connection))
        if lacking:
            return StoreFinding(
                "layout", f"lacks {', '.join(lacking)}", "restore a backup: the file was changed by hand"
            )
        return StoreFinding("layout", "every table, column and index is there")

    def _durability(self) -> StoreFinding:
        with closing(connect(self._path)) as connection:
            [journal] = connection.execute("PRAGMA journal_mode").fetchone()
            [sync] = connection.execute("PRAGMA synchronous").fetchone()
        if (journal, sync) != (WAL, FULL):
            finding = f"journal mode {journal}, synchronous {sync}"
            return StoreFinding("durability", finding, "put the file where WAL works: a local disk")
        return StoreFinding("durability", "write-ahead log, and every commit waits for the disk")

    def _integrity(self) -> StoreFinding:
        with self._opened() as connection:
            found = [str(line) for (line,) in connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX + 1})")]
        if found != ["ok"]:
            more = ["and more"] if len(found) > PROBLEMS_MAX else []
            damage = "; ".join([*found[:PROBLEMS_MAX], *more])
            return StoreFinding("integrity", damage, "the file is damaged: restore a backup")
        return StoreFinding("integrity", "SQLite's quick_check finds nothing wrong")

    def _rows(self) -> StoreFinding:
        if damaged := damaged_rows(self._opened):
            return StoreFinding("rows", f"damaged: {described(damaged)}", removal(self._path, damaged))
        return StoreFinding("rows", "every row can be read")

    def _feed(self) -> StoreFinding:
        with self._opened() as connection:
            [trimmed] = connection.execute(TRIMMED_GET).fetchone()
            last = last_position(connection)
        if last < trimmed:
            return StoreFinding("feed", f"ends at {last}, before its own start {trimmed}", "restore a backup")
        return StoreFinding("feed", f"{last - trimmed:,} changes kept, the newest is {last:,}")

    def _changes(self) -> StoreFinding:
        path = str(self._path)
        noted = noted_position(path)  # first: a worker may commit meanwhile
        with self._opened() as connection:
            lost = lost_changes(noted, last_position(connection))
        if lost:
            return StoreFinding("changes", describe_loss(path, lost), remedy_of_loss(path))
        return StoreFinding("changes", "all that were committed are there")

    # --- measure ------------------------------------------------------------------------------------------------------

    def _stats(self) -> list[Figure]:
        self._require_ready()
        connect(self._path).close()  # rejects a file of another program
        with self._opened() as connection:
            return [
                Figure("schema version", VERSION),
                *self._sizes(),
                *(Figure(f"{table} rows", _number(connection, ROWS_COUNT, table)) for table in TableName),
                *(Figure(name, _counted(connection, index, begin)) for name, index, begin in COUNTED),
                self._expired(connection),
                *_feed_figures(connection),
            ]

    def _sizes(self) -> Iterator[Figure]:
        yield Figure("file bytes", self._path.stat().st_size)
        log = self._path.with_name(f"{self._path.name}-wal")
        yield Figure("log bytes", log.stat().st_size if log.exists() else 0, "the write-ahead log next to the file")

    def _expired(self, connection: sqlite3.Connection) -> Figure:
        count = _number(connection, ROWS_EXPIRED_COUNT, int(self._clock.now().timestamp()))
        return Figure("expired rows", count, "no longer visible, and deleted a day after they expired")


def require_room(path: Path, bytes_left: int) -> None:
    """Raise `RetryLater` if the disk has no room for a few more commits."""
    if bytes_left < ROOM_BYTES_MIN:
        what, remedy = TROUBLES[sqlite3.SQLITE_FULL]
        raise RetryLater(f"the store {path} {what} ({bytes_left:,} bytes); {remedy}")


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_there(path: Path) -> bool:
    """Return whether a store exists; an empty file is none, since SQLite creates one just to open it."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:  # ValueError: an invalid path
        raise ConfigError(f"the store {path} cannot be checked: {error}; name another path") from error


def _refused(subject: str, error: WorkerError) -> StoreFinding:
    finding, _, remedy = str(error).rpartition("; ")
    return StoreFinding(subject, finding or remedy, remedy)


def _layout_of(connection: sqlite3.Connection) -> set[str]:
    found: list[tuple[str, str]] = connection.execute("SELECT type, name FROM sqlite_schema").fetchall()
    columns = {
        f"column {name}.{column}"
        for kind, name in found
        if kind == "table"
        for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")
    }
    return columns | {f"{kind} {name}" for kind, name in found}


def _number(connection: sqlite3.Connection, statement: str, *parameters: str | int) -> int:
    [number] = connection.execute(statement, parameters).fetchone()
    return int(number)


def _counted(connection: sqlite3.Connection, index: Index, begin: str) -> int:
    return _number(connection, ENTRIES_COUNT, index.name, begin, f"{begin}\U0010ffff")


def _feed_figures(connection: sqlite3.Connection) -> Iterator[Figure]:
    trimmed = _number(connection, TRIMMED_GET)
    yield Figure("changes kept", last_position(connection) - trimmed, "the change feed: at most 24 h or 1,000,000")
    oldest: tuple[int] | None = connection.execute(CHANGE_OLDEST, (trimmed,)).fetchone()
    if oldest is not None:
        at = EPOCH + timedelta(microseconds=oldest[0])
        yield Figure("oldest change", at.isoformat(timespec="seconds").replace("+00:00", "Z"))
