"""Active rows by bucket: how a worker finds the work that a dead worker left."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.time.timestamps import parse_rfc3339
from worker.runtime.concurrency import gather_bounded
from worker.store.rows import first_rows, loose_text
from worker.store.table import ACTIVE, Prefix, Row, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRow:
    """Holds what the index knew of a row a moment ago: enough to decide whether to read the row itself."""

    kind: RowKind
    key: RunKey
    owner: SessionId | None
    state: str
    since: str
    due_at: datetime | None = None  # when its owner must have acted on it at the latest


class ActiveRows:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def everywhere(self, kinds: Collection[RowKind]) -> list[ActiveRow]:
        """Return all active rows of these kinds; the cost depends on active rows, not on stored ones."""

        async def listed(number: int) -> list[ActiveRow]:
            return [row async for row in self.in_bucket(number) if row.kind in kinds]

        buckets = await gather_bounded([partial(listed, number) for number in range(keys.ACTIVE_BUCKETS)])
        return [row for bucket in buckets for row in bucket]

    async def in_bucket(self, number: int) -> AsyncIterator[ActiveRow]:
        """Yield one of the `ACTIVE_BUCKETS`. The index lags: a row may be missing, or may already have ended."""
        bucket = keys.active_bucket(number)
        async for row in query_all(self._tables, TableName.CONTROL, bucket, index=ACTIVE):
            if (found := _active_row(row)) is not None:
                yield found

    async def some(self, kind: RowKind, each_max: int) -> tuple[list[ActiveRow], bool]:
        """Return at most `each_max` active rows of a kind from each bucket; False if there are more."""

        async def listed(number: int) -> list[Row]:
            bucket, begin = keys.active_bucket(number), Prefix(kind)
            return await first_rows(self._tables, TableName.CONTROL, bucket, sk=begin, index=ACTIVE, limit=each_max + 1)

        buckets = await gather_bounded([partial(listed, number) for number in range(keys.ACTIVE_BUCKETS)])
        rows = [found for bucket in buckets for row in bucket[:each_max] if (found := _active_row(row))]
        return rows, all(len(bucket) <= each_max for bucket in buckets)


def _active_row(row: Row) -> ActiveRow | None:
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    if named is None:
        return None
    owner = row.get("owner")
    return ActiveRow(
        kind=named[0],
        key=named[1],
        owner=SessionId(owner) if isinstance(owner, str) else None,
        state=str(row.get("state", "")),
        since=str(row.get("since", "")),
        due_at=_due_at(row),
    )


def _due_at(row: Row) -> datetime | None:
    """Return the first time at which something happens to the row by itself."""
    warning = () if "warnedAt" in row else ("warningAt",)
    times = [parse_rfc3339(loose_text(row, name)) for name in ("windowEndsAt", "timeoutAt", "breachAt", *warning)]
    return min((time for time in times if time is not None), default=None)
