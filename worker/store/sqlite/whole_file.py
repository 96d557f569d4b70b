"""Reads every row of a SQLite file, for a copy that a person asked for."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from worker.core.errors import Rejected
from worker.runtime.json_bytes import from_json, to_json
from worker.store.row_codec import decode_row
from worker.store.sqlite.errors import translated
from worker.store.sqlite.file import BUSY_TIMEOUT, connect_to_read
from worker.store.sqlite.statements import ROWS_AFTER
from worker.store.table import TableName
from worker.store.whole_store import StoredRows

PAGE_ROWS: Final = 200


class WholeFile:
    """Reads along the key. Each page uses a connection of its own, so that no snapshot stays open."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def rows(self, table: TableName, cursor: str | None) -> StoredRows:
        return await asyncio.to_thread(self._rows, table, cursor)

    def _rows(self, table: TableName, cursor: str | None) -> StoredRows:
        pk, sk = _place(cursor)
        try:
            with closing(connect_to_read(self._path, BUSY_TIMEOUT)) as connection:
                found = connection.execute(ROWS_AFTER, (table, pk, sk, PAGE_ROWS)).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        following = to_json([found[-1][0], found[-1][1]]).decode() if len(found) == PAGE_ROWS else None
        return StoredRows([decode_row(body) for _, _, body in found], following)


def _place(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    try:
        pk, sk = from_json(cursor)
    except ValueError as error:
        raise Rejected(f"{cursor[:60]!r} is no cursor of a SQLite file; begin the copy again") from error
    return str(pk), str(sk)
