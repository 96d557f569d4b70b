"""Rows with work left to do, by bucket: how a worker finds what a dead one left behind."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from worker.core import keys
from worker.core.keys import RowKind, RunKey, SessionId
from worker.store.table import ACTIVE, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRow:
    """As much as the index knows, a moment ago: enough to tell whether to look at the row itself."""

    kind: RowKind
    key: RunKey
    owner: SessionId | None
    state: str
    since: str


class ActiveRows:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def in_bucket(self, number: int) -> AsyncIterator[ActiveRow]:
        """Read one of the `ACTIVE_BUCKETS`. May lag: a row may be missing, or be here although it has ended."""
        bucket = keys.active_bucket(number)
        async for row in query_all(self._tables, TableName.CONTROL, bucket, index=ACTIVE):
            named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
            if named is not None:
                owner = row.get("owner")
                yield ActiveRow(
                    kind=named[0],
                    key=named[1],
                    owner=SessionId(owner) if isinstance(owner, str) else None,
                    state=str(row.get("state", "")),
                    since=str(row.get("since", "")),
                )
