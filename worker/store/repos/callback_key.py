"""The key that signs callback addresses: one for all workers of a store, made once."""

from collections.abc import Callable

from worker.core.model import keys
from worker.store.table import Absent, Key, Put, Row, StaleWrite, TableName, Tables

_SK = "CALLBACK_KEY"


async def make_callback_key(tables: Tables, group: str, new_key: Callable[[], str]) -> bytes:
    """Return the key, and store a new one if there is none.

    A program that can read it can also write the rows it protects, so a row is the right place for it.
    """
    known = await find_callback_key(tables, group)
    if known is not None:
        return known
    at, made = _key(group), new_key()
    try:
        await tables.commit(Put(TableName.CONTROL, {"PK": at.pk, "SK": at.sk, "key": made}, Absent()))
    except StaleWrite as error:
        known = _read(error.row)
        if known is None:
            raise
        return known
    return made.encode()


async def find_callback_key(tables: Tables, group: str) -> bytes | None:
    """Return the key; None if no worker made one yet."""
    return _read(await tables.get(TableName.CONTROL, _key(group)))


def _key(group: str) -> Key:
    return Key(keys.group_pk(group), _SK)


def _read(row: Row | None) -> bytes | None:
    made = None if row is None else row.get("key")
    return made.encode() if isinstance(made, str) and made else None
