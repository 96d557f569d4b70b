"""Opens the SQLite file, and reports problems with their remedy."""

import os
import re
import sqlite3
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from worker.core.errors import ConfigError
from worker.store.sqlite.errors import unusable
from worker.store.sqlite.identity import forget_position
from worker.store.sqlite.schema import prepare

# Below the 5 s after which a worker that cannot write stops acting by itself.
BUSY_TIMEOUT: Final = timedelta(seconds=4)
WAL_BYTES_MAX: Final = 64_000_000
MOUNTS: Final = Path("/proc/mounts")
# File locks and shared memory do not work there as SQLite needs them: two hosts would destroy the file.
NETWORK_FILE_SYSTEMS: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afs|ncpfs|ceph|lustre|gpfs|beegfs|ocfs2|gfs2|glusterfs|davfs|"
    r"fuse\.(sshfs|glusterfs|ceph|s3fs|rclone|gcsfuse|davfs2?|smbnetfs|mount-s3)"
)

IN_MEMORY: Final = Path(":memory:")


def connect(path: Path, busy_timeout: timedelta = BUSY_TIMEOUT) -> sqlite3.Connection:
    """Open a connection that syncs every commit to disk. Raises `ConfigError` with the remedy."""
    _check_place(path)
    is_new = _is_new(path)
    try:
        connection = _open(str(path), busy_timeout)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            _configure(connection)
            prepare(connection, str(path))
            if is_new:
                forget_position(str(path))
            on_failure.pop_all()
    except sqlite3.Error as error:
        raise unusable(error, path) from error
    return connection


def connect_to_read(path: Path, busy_timeout: timedelta = BUSY_TIMEOUT) -> sqlite3.Connection:
    """Open a connection that cannot write. Raises `ConfigError` with the remedy."""
    connection = connect(path, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect_in_memory() -> sqlite3.Connection:
    connection = _open(str(IN_MEMORY), BUSY_TIMEOUT)
    prepare(connection, str(IN_MEMORY))
    return connection


def truncate_wal(connection: sqlite3.Connection, path: Path, bytes_max: int = WAL_BYTES_MAX) -> None:
    """Move the WAL into the file once it is large; if that is impossible now, the next commit retries."""
    try:
        size = os.stat(f"{path}-wal").st_size  # noqa: PTH116  every commit does this: a Path object would cost time
    except OSError:
        return  # there is no WAL
    if size > bytes_max:
        # The commit itself is durable, even if this fails.
        with suppress(sqlite3.Error):
            [waits_ms] = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute("PRAGMA busy_timeout = 0")  # a slow reader must not delay the next commits
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {waits_ms}")


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds the path, by the deepest mount point above it."""
    here = os.fspath(path.resolve())
    fields = [line.split() for line in mounts.splitlines()]
    found = [(_unescaped(field[1]), field[2]) for field in fields if len(field) > 2]
    above = [(point, kind) for point, kind in found if point in {"/", here} or here.startswith(f"{point}/")]
    # Of two mounts on one point, the later one is visible.
    return max(enumerate(above), key=lambda item: (len(item[1][0]), item[0]))[1][1] if above else ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _is_new(path: Path) -> bool:
    """Return whether the file has yet to be created.

    A file without tables is not new: the tables may have been lost with its write-ahead log.
    """
    try:
        return not path.stat().st_size
    except OSError:
        return True


def _check_place(path: Path) -> None:
    try:
        folder = path.resolve().parent
    except FileNotFoundError as error:
        raise ConfigError("the current directory is gone; go to one that is there, or name the store's path") from error
    if not folder.is_dir():
        raise ConfigError(f"the folder {folder} of the store {path} does not exist; create it, or name another path")
    if path.is_dir():
        raise ConfigError(f"the store {path} is a folder; name a file in it")
    _check_names(path)
    kind = file_system_of(path, _mounts())
    if NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise ConfigError(
            f"the store {path} is on a network file system ({kind}), where SQLite cannot keep its promises; "
            "put the file on a local disk, or use dynamodb:// to share a store between hosts"
        )


def _check_names(path: Path) -> None:
    """Raise `ConfigError` if other programs may open the file by another name, with another WAL."""
    mounted = {_unescaped(fields[1]) for line in _mounts().splitlines() if len(fields := line.split()) > 2}
    if os.fspath(path.resolve()) in mounted:
        raise ConfigError(
            f"the store {path} is mounted as a single file, so its write-ahead log would be left behind; "
            "mount the folder that it is in"
        )
    links = path.stat().st_nlink if path.exists() else 1
    if links > 1:
        raise ConfigError(
            f"the store {path} has {links} names (hard links), and each would get a write-ahead log of its own, which "
            "damages the file; remove the other names, or copy the file while nobody uses it"
        )


def _mounts() -> str:
    return MOUNTS.read_text() if MOUNTS.exists() else ""


def _open(path: str, busy_timeout: timedelta) -> sqlite3.Connection:
    # isolation_level None: only Interlock begins transactions, never the library.
    return sqlite3.connect(path, timeout=busy_timeout.total_seconds(), isolation_level=None)


def _configure(connection: sqlite3.Connection) -> None:
    # fullfsync matters only on macOS, where a plain fsync leaves the data in the drive's cache.
    for setting in ("synchronous = FULL", "fullfsync = ON", f"journal_size_limit = {WAL_BYTES_MAX}"):
        connection.execute(f"PRAGMA {setting}")
    [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"the journal mode is {mode} and cannot be changed to WAL")
