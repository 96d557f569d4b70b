"""Housekeeping: deletes rows that expired long ago and changes that no reader needs."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from worker.store.row_codec import decode_row
from worker.store.sqlite.commit import RowChange, apply, image_of, microseconds
from worker.store.sqlite.statements import (
    CHANGE_FIRST_YOUNG,
    CHANGE_LAST,
    CHANGES_TRIM,
    ROWS_EXPIRED,
    TRIMMED_GET,
    TRIMMED_SET,
)
from worker.store.table import Key, TableName

# How long a row stays after its `ttl`. DynamoDB also deletes late. The code that ends expired locks has a day to see
# them.
SWEEP_GRACE: Final = timedelta(days=1)
SWEEP_STEP: Final = 500
FEED_AGE_MAX: Final = timedelta(hours=24)
FEED_ROWS_MAX: Final = 1_000_000
TRIM_STEP: Final = 10_000  # changes deleted in one transaction, so that no commit waits long for it


def sweep(connection: sqlite3.Connection, by: datetime, limit: int, now: datetime) -> int:
    """Delete rows that expired long before `by`, oldest first; return how many.

    The feed records each removal.
    """
    horizon = int((by - SWEEP_GRACE).timestamp())
    found: list[tuple[int, str, str, str, bytes]] = connection.execute(ROWS_EXPIRED, (horizon, limit)).fetchall()
    for number, name, pk, sk, body in found:
        table = TableName(name)
        before = image_of(table, decode_row(body), body)
        apply(connection, RowChange(table=table, key=Key(pk, sk), number=number, before=before, after=None), now)
    return len(found)


def trim(connection: sqlite3.Connection, now: datetime, lowest_checkpoint: int, rows_max: int) -> int:
    """Delete changes that are read, too old or too many, at most `TRIM_STEP`; return how many.

    A change is read once it is not after `lowest_checkpoint`.
    """
    [trimmed] = connection.execute(TRIMMED_GET).fetchone()
    [last] = connection.execute(CHANGE_LAST).fetchone()
    if last is None:
        return 0
    end = min(trimmed + TRIM_STEP, last)
    [young] = connection.execute(CHANGE_FIRST_YOUNG, (trimmed, end, microseconds(now - FEED_AGE_MAX))).fetchone()
    too_old = end if young is None else young - 1
    cut = min(end, max(too_old, lowest_checkpoint, last - rows_max))
    if cut <= trimmed:
        return 0
    connection.execute(CHANGES_TRIM, (cut,))
    connection.execute(TRIMMED_SET, (cut,))
    return cut - trimmed
