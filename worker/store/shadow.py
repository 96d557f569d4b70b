"""Shadow store: every write goes to its own row under `SHADOW#`, so no other system's row changes.

Rows of producers, people and the active system are read in place. Everything that this worker writes is stored, and
read back, separately: in a pipeline's partition under `SHADOW#<sort key>`, and elsewhere under `SHADOW#<partition>`.
The same holds for the partitions of indexes, so no list of the other system shows shadow rows.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from worker.core.model import keys
from worker.core.model.keys import SHADOW
from worker.runtime.clock import Clock
from worker.store import retention
from worker.store.rows import expiry
from worker.store.table import (
    INDEXES,
    LISTS,
    TTL,
    Between,
    Check,
    Delete,
    Index,
    Key,
    Page,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    Value,
    Write,
)

# What others write in a pipeline's partition of the control table. Of the two log tables, everything is theirs.
_THEIRS: Final = (keys.SENSOR, keys.RERUN_REQUEST, keys.CANCEL_REQUEST)
_THEIR_ROWS: Final = frozenset({keys.CONFIG, keys.PAUSE})
_THEIR_LOGS: Final = frozenset({TableName.JOBLOG, TableName.RERUN})
_OUTBOX: Final = "out"
_COMPARED: Final = keys.DRY_RUN  # what `interlock migrate compare` reads, for the whole trial
_PARTITIONS: Final = tuple(index.partition for index in INDEXES)


class ShadowTables:
    """Implements `Tables` on another store. No call can make it write outside `SHADOW#`."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._tables.ping()

    async def get(self, table: TableName, key: Key) -> Row | None:
        row = await self._tables.get(table, _read_at(table, key))
        return None if row is None else _seen(row)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        places = {_read_at(table, key): key for key in keys}
        rows = await self._tables.get_many(table, list(places))
        return {places[place]: _seen(row) for place, row in rows.items()}

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
        partition, span = _read_range(table, pk, sk) if index is None else _read_list(pk, sk, index)
        page = await self._tables.query(
            table, partition, sk=span, index=index, reverse=reverse, limit=limit, cursor=cursor
        )
        return Page([_seen(row) for row in page.rows], page.cursor)

    async def commit(self, *writes: Write) -> None:
        kept = [self._kept(write) for write in writes]
        try:
            await self._tables.commit(*kept)
        except StaleWrite as refused:
            row = None if refused.row is None else _seen(refused.row)
            raise StaleWrite(writes[kept.index(refused.write)], row) from refused

    def _kept(self, write: Write) -> Write:
        match write:
            case Put():
                return replace(write, row=self._kept_row(write))
            case Update():
                changed = _hidden(write.set), _hidden(write.set_if_absent)
                return replace(write, key=_write_at(write.key), set=changed[0], set_if_absent=changed[1])
            case Delete():
                return replace(write, key=_write_at(write.key))
            case Check():  # it changes nothing, so it uses the key that a read uses
                return replace(write, key=_read_at(write.table, write.key))

    def _kept_row(self, put: Put) -> Row:
        at = _write_at(put.key)
        kept = {**_hidden(put.row), "PK": at.pk, "SK": at.sk}
        kept.pop(_OUTBOX, None)  # so that no relay publishes it as an event
        if keys.pipeline_of(at.pk) is not None:  # workers' own rows are few and in use, so they get no expiry
            latest, wanted = expiry(self._clock.now(), retention.SHADOWS), put.row.get(TTL)
            is_compared = put.key.sk.startswith(_COMPARED)
            kept[TTL] = min(latest, int(wanted)) if isinstance(wanted, int | Decimal) and not is_compared else latest
        return kept


# --- keys -------------------------------------------------------------------------------------------------------------


def _write_at(key: Key) -> Key:
    """Return where a write goes; no other function decides this."""
    if keys.pipeline_of(key.pk) is not None:
        return Key(key.pk, keys.shadow_sk(key.sk))
    return Key(f"{SHADOW}{key.pk}", key.sk)


def _read_at(table: TableName, key: Key) -> Key:
    return key if _is_theirs(table, key.pk, key.sk) else _write_at(key)


def _is_theirs(table: TableName, pk: str, sk: str) -> bool:
    if keys.pipeline_of(pk) is None:
        return False
    if table in _THEIR_LOGS:
        return True
    return table is TableName.CONTROL and (sk in _THEIR_ROWS or sk.startswith(_THEIRS))


def _read_range(table: TableName, pk: str, sk: Prefix | Between | None) -> tuple[str, Prefix | Between | None]:
    """Return the partition and range to read; the first key decides whose rows they are.

    All keys of a range begin like the range itself.
    """
    begin = sk.text if isinstance(sk, Prefix) else "" if sk is None else str(sk.low)
    if _is_theirs(table, pk, begin):
        return pk, sk
    if keys.pipeline_of(pk) is None:
        return f"{SHADOW}{pk}", sk
    return pk, _shadowed(sk or Prefix(""))


def _shadowed(sk: Prefix | Between) -> Prefix | Between:
    if isinstance(sk, Prefix):
        return Prefix(keys.shadow_sk(sk.text))
    return Between(keys.shadow_sk(str(sk.low)), keys.shadow_sk(str(sk.high)))


def _read_list(pk: str, sk: Prefix | Between | None, index: Index) -> tuple[str, Prefix | Between | None]:
    if index is LISTS and pk == keys.PIPELINES:
        return pk, sk  # the configurations belong to the other system
    span = _shadowed(sk) if sk is not None and index.sort == "SK" else sk
    return f"{SHADOW}{pk}", span


# --- rows -------------------------------------------------------------------------------------------------------------


def _hidden(attributes: Row) -> Row:
    """Return the attributes with index partitions under `SHADOW#`, so that only shadow lists include them."""
    return {name: f"{SHADOW}{value}" if name in _PARTITIONS else value for name, value in attributes.items()}


def _seen(row: Row) -> Row:
    return {name: _bare(value) if name in ("PK", "SK", *_PARTITIONS) else value for name, value in row.items()}


def _bare(value: Value) -> Value:
    return value.removeprefix(SHADOW) if isinstance(value, str) else value
