"""Whole store: reads every row of a table, for a copy that a person asked for.

It is not part of `Tables`, so that no worker can read a table as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.store.table import Row, TableName


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Holds some rows as stored, expired or not; `cursor` None means that there are no more."""

    rows: Sequence[Row]
    cursor: str | None


class WholeStore(Protocol):
    """Reads whole tables. Every call may raise `RetryLater` and `ConfigError`."""

    async def rows(self, table: TableName, cursor: str | None) -> StoredRows:
        """Return the next rows in any order. A row that exists throughout is returned at least once."""
        ...
