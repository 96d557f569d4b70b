"""Rows for the contract suite: only what matters is named."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from worker.core.errors import Rejected
from worker.store.table import COMMIT_ID, Key, Row, TableName, Tables, Value

CONTROL = TableName.CONTROL
MOTO = "dynamodb-moto"


def a_row(pk: str, sk: str = "ROW", **attributes: Value) -> dict[str, Value]:
    return {"PK": pk, "SK": sk, **attributes}


def content(row: Row | None) -> dict[str, Value] | None:
    """What the writer said, without the commit id that the store adds."""
    return None if row is None else {name: value for name, value in row.items() if name != COMMIT_ID}


async def stored(tables: Tables, pk: str, sk: str = "ROW", table: TableName = CONTROL) -> dict[str, Value] | None:
    return content(await tables.get(table, Key(pk, sk)))


def known_defect(*, of_moto: bool) -> AbstractContextManager[object]:
    """Expect the test to fail where moto differs from DynamoDB, and so to learn when it no longer does."""
    return pytest.raises((AssertionError, Rejected, pytest.fail.Exception)) if of_moto else nullcontext()
