"""Hints about jobs, from the worker that received an event to the worker that holds the run.

Each worker that receives events has one row with its newest hints, which it replaces; every worker reads all of them. A
row counts its hints, so that a reader knows which ones are new to it, and no clocks are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.store.retention import JOB_HINTS
from worker.store.rows import BadRow, expiry, texts, whole
from worker.store.table import TTL, Put, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHints:
    """Holds the newest hints of one sender, oldest first. `count` is how many it has sent in all."""

    sender: str
    count: int
    hints: tuple[str, ...]

    def since(self, count: int) -> tuple[str, ...]:
        """Return the hints after the first `count`, as far as they are still there."""
        new = self.count - count
        return self.hints[-new:] if new > 0 else ()


class JobHintRows:
    """Stores the hints of one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.hints_pk(group)

    async def put(self, shared: SharedHints, now: datetime) -> None:
        """Replace the sender's row. Only the sender writes it."""
        row = {
            "PK": self._pk,
            "SK": shared.sender,
            "count": shared.count,
            "hints": list(shared.hints),
            TTL: expiry(now, JOB_HINTS),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))

    async def list(self) -> Sequence[SharedHints]:
        """Return the rows of all senders. A damaged row is left out: its hints are lost, and polls cover them."""
        found: list[SharedHints] = []
        async for row in query_all(self._tables, TableName.CONTROL, self._pk):
            try:
                found.append(SharedHints(sender=str(row["SK"]), count=whole(row, "count"), hints=texts(row, "hints")))
            except BadRow:
                continue
        return found
