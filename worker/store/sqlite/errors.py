"""Translates SQLite's errors into Interlock's own, by what the caller should do."""

import sqlite3
from pathlib import Path
from typing import Final

from worker.core.errors import ConfigError, RetryLater

LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
PASSING: Final = LOCKED | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT}

# Temporary problems of a file: what is wrong, and what a person can do meanwhile.
TROUBLES: Final = {
    sqlite3.SQLITE_FULL: ("has no room left on its disk", "make room there; work then continues by itself"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written by its disk", "see what the system's log says about the disk"),
    **dict.fromkeys(
        LOCKED, ("is locked by another process", "if it stays so, find who has it open with `fuser` and end that")
    ),
}
# What a person can do about a file with a permanent problem.
REMEDIES: Final = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a backup, or move it away to begin with an empty store",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database: name another path in INTERLOCK_STORE",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened or made: check that you may write in its folder",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable, or name another path",
    sqlite3.SQLITE_PERM: "access is denied: make the file and its folder writable",
    sqlite3.SQLITE_AUTH: "access is denied: make the file and its folder writable",
}


def translated(error: sqlite3.Error, path: Path | str) -> Exception:
    """Return the error for the caller of a running store; an error that can only be a bug stays unchanged."""
    code = primary_code(error)
    if code in PASSING:
        what, remedy = TROUBLES.get(code, ("does not answer now", "it is tried again"))
        return RetryLater(f"the store {path} {what} ({error}); {remedy}")
    if code in REMEDIES:
        return ConfigError(f"the store {path} cannot be used ({error}); {REMEDIES[code]}")
    return error


def unusable(error: sqlite3.Error, path: Path | str) -> Exception:
    """Return the error for a store that is being opened: there, a person must act on a lasting lock."""
    if primary_code(error) in LOCKED:
        return ConfigError(
            f"the store {path} is locked by another process ({error}); find it with `fuser {path}` and end it, "
            "or name another path in INTERLOCK_STORE"
        )
    return translated(error, path)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
