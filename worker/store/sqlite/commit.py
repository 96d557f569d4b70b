"""Applies one commit inside an open transaction: rows, index entries and the change feed together."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

import msgspec

from worker.store.index_entries import IndexEntry, entries, ttl_column
from worker.store.limits import BYTES_PER_JSON_BYTE, COMMIT_BYTES_MAX, DEPTH_MAX, check_size, row_bytes
from worker.store.row_codec import decode_row, encode
from worker.store.sqlite.conditions import holds
from worker.store.sqlite.statements import (
    CHANGE_INSERT,
    ENTRY_DELETE,
    ENTRY_INSERT,
    ROW_DELETE,
    ROW_FIND,
    ROW_INSERT,
    ROW_REPLACE,
)
from worker.store.table import (
    COMMIT_ID,
    ROW_BYTES_MAX,
    ChangeKind,
    Check,
    Delete,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    TooLarge,
    Update,
    Value,
    Write,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Image(msgspec.Struct, frozen=True):
    """Holds a row as the file stores it."""

    body: bytes
    ttl: int | None
    entries: frozenset[IndexEntry]


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one row before and after, None if it does not exist; `number` is the existing row's id."""

    table: TableName
    key: Key
    number: int | None
    before: Image | None
    after: Image | None


def commit(connection: sqlite3.Connection, writes: Sequence[Write], commit_id: str, now: datetime) -> None:
    """Apply all writes or, by raising before the first of them, none.

    Two phases ensure this without a savepoint: planning raises every refusal before anything is written. The caller has
    called `check_form`. Raises `StaleWrite`, `TooLarge` or `Rejected`.
    """
    stamps = stamps_of(writes, commit_id)
    plan = [_plan(connection, write, stamp) for write, stamp in zip(writes, stamps, strict=True)]
    if sum(len(step.after.body) for step in plan if step.after) > COMMIT_BYTES_MAX // BYTES_PER_JSON_BYTE:
        check_size(writes)
    for step in plan:
        apply(connection, step, now)


def apply(connection: sqlite3.Connection, step: RowChange, now: datetime) -> None:
    """Write one row, its index entries and its change record; nothing if the row does not change."""
    if step.before == step.after:
        return
    number, kind = _write_row(connection, step)
    _write_entries(connection, step, number)
    body = None if step.after is None else step.after.body
    record = (step.table, step.key.pk, step.key.sk, kind, body, microseconds(now))
    connection.execute(CHANGE_INSERT, record)


def image_of(table: TableName, row: Row, body: bytes) -> Image:
    return Image(body, ttl_column(row), entries(table, row))


def microseconds(at: datetime) -> int:
    """Return an instant as SQLite stores it: exact, and in sort order."""
    return (at - EPOCH) // timedelta(microseconds=1)


# --- planning: reads and refuses, writes nothing ----------------------------------------------------------------------


def stamps_of(writes: Sequence[Write], commit_id: str) -> list[Row]:
    """Return what each write stores in addition: the commit id on the first `Put` or `Update`."""
    stamps: list[Row] = [{}] * len(writes)
    for at, write in enumerate(writes):
        if isinstance(write, Put | Update):
            stamps[at] = {COMMIT_ID: commit_id}
            break
    return stamps


def _plan(connection: sqlite3.Connection, write: Write, stamp: Row) -> RowChange:
    table, key = write.table, write.key
    found: tuple[int, bytes] | None = connection.execute(ROW_FIND, (table, key.pk, key.sk)).fetchone()
    row = None if found is None else decode_row(found[1])
    if write.condition is not None and not holds(write.condition, row):
        raise StaleWrite(write, row)
    before = None if row is None or found is None else image_of(table, row, found[1])
    after = before if isinstance(write, Check) else image_after(write, row, stamp)
    return RowChange(table=table, key=key, number=None if found is None else found[0], before=before, after=after)


def image_after(write: Put | Update | Delete, row: Row | None, stamp: Row) -> Image | None:
    """Return the row that a write produces; None if it deletes the row. Raises `TooLarge` or `Rejected`."""
    match write:
        case Put():
            return _checked_image(write, {**write.row, **stamp})
        case Update():
            return _checked_image(write, {**_updated(write, row), **stamp})
        case Delete():
            return None
        case _:
            assert_never(write)


def _updated(write: Update, row: Row | None) -> Row:
    found = row or {"PK": write.key.pk, "SK": write.key.sk}
    if unused := {name: value for name, value in write.set_if_absent.items() if name in found}:
        # Other backends are sent these too, and refuse what cannot be stored although nobody stores it.
        encode(unused)
        check_size((write,))
    merged: dict[str, Value] = {**write.set_if_absent, **found, **write.set}
    return {name: value for name, value in merged.items() if name not in write.remove}


def _checked_image(write: Put | Update, row: Row) -> Image:
    body = encode(row)
    # Short JSON needs no exact count, unless it may be nested too deep.
    is_surely_small = len(body) <= ROW_BYTES_MAX // BYTES_PER_JSON_BYTE and _depth_at_most(body) <= DEPTH_MAX
    if not is_surely_small and (size := row_bytes(row)) > ROW_BYTES_MAX:
        raise TooLarge(
            f"{write.table} {write.key.pk} {write.key.sk} would have {size} bytes; at most {ROW_BYTES_MAX} fit in a "
            "row: keep large data elsewhere and store where it is"
        )
    return image_of(write.table, row, body)


def _depth_at_most(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[")


# --- applying: writes, and fails only together with the whole transaction ---------------------------------------------


def _write_row(connection: sqlite3.Connection, step: RowChange) -> tuple[int | None, ChangeKind]:
    after = step.after
    if after is None:
        connection.execute(ROW_DELETE, (step.number,))
        return step.number, ChangeKind.REMOVE
    if step.number is None:
        values = (step.table, step.key.pk, step.key.sk, after.body, after.ttl)
        return connection.execute(ROW_INSERT, values).lastrowid, ChangeKind.INSERT
    connection.execute(ROW_REPLACE, (after.body, after.ttl, step.number))
    return step.number, ChangeKind.MODIFY


def _write_entries(connection: sqlite3.Connection, step: RowChange, number: int | None) -> None:
    old = frozenset[IndexEntry]() if step.before is None else step.before.entries
    new = frozenset[IndexEntry]() if step.after is None else step.after.entries
    if old == new:
        return
    pk, sk = step.key.pk, step.key.sk
    for entry in old - new:
        connection.execute(ENTRY_DELETE, (entry.index, entry.part, entry.sort, pk, sk))
    for entry in new - old:
        connection.execute(ENTRY_INSERT, (entry.index, entry.part, entry.sort, pk, sk, number))
