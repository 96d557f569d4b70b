"""The record of reruns, numbered without gaps. Budgets are counted on the run's row.

No other writer can fill a gap.
"""

from dataclasses import dataclass
from datetime import datetime

from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.store import retention
from worker.store.rows import expiry, instant_text, loose_text, without_none
from worker.store.table import (
    TTL,
    Absent,
    Expired,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    any_of,
    query_all,
)

TRIES_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    id: str  # by which a repeat is recognised
    reason: str
    at: datetime
    attempt: int  # the attempt it led to
    source_event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRecord:
    """Holds a rerun as recorded; a record by another system may lack everything but its number."""

    number: int
    id: str
    reason: str
    triggered_at: str
    source_event: str


class Reruns:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def record(self, key: RunKey, rerun: Rerun) -> int:
        """Record a rerun once under the next free number, and return the number. Idempotent.

        Raises `RetryLater` if other writers were first every time.
        """
        for _ in range(TRIES_MAX):
            taken = await self.list(key)
            known = next((record.number for record in taken if record.id == rerun.id), None)
            if known is not None:
                return known
            number = _next_number(taken)
            try:
                await self._tables.commit(record_write(key, rerun, number))
            except StaleWrite:
                continue
            return number
        raise RetryLater(f"rerun {rerun.id} of {key} found no free number in {TRIES_MAX} tries; try again")

    async def next_number(self, key: RunKey) -> int:
        """Return the next free number; `record_write` with a number taken since makes its commit stale."""
        return _next_number(await self.list(key))

    async def list(self, key: RunKey) -> list[RerunRecord]:
        """Return all reruns of a run in order of their number."""
        partition, records = keys.pipeline_pk(key.pipeline), Prefix(keys.rerun_prefix(key))
        rows = [row async for row in query_all(self._tables, TableName.RERUN, partition, sk=records)]
        # Numbers are not padded (neither are the Lambda edition's), so the table's order is not numeric.
        return sorted((record for row in rows if (record := _record(key, row))), key=lambda record: record.number)


def record_write(key: RunKey, rerun: Rerun, number: int) -> Put:
    row = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": keys.rerun_sk(key, number),
        "id": rerun.id,
        "reason": rerun.reason,
        "triggeredAt": instant_text(rerun.at),
        "attempt": rerun.attempt,
        "sourceJobEvent": rerun.source_event or None,
        TTL: expiry(rerun.at, retention.RERUNS),
    }
    # Records expire before their run. An expired record is not in the list, so its number may be used again, although
    # the table may keep it for days.
    return Put(TableName.RERUN, without_none(row), any_of(Absent(), Expired(rerun.at)))


def _next_number(taken: list[RerunRecord]) -> int:
    return taken[-1].number + 1 if taken else 0


def _record(key: RunKey, row: Row) -> RerunRecord | None:
    number = keys.rerun_number_of(key, str(row["SK"]))
    if number is None:
        return None
    return RerunRecord(
        number=number,
        id=loose_text(row, "id"),
        reason=loose_text(row, "reason"),
        triggered_at=loose_text(row, "triggeredAt"),
        source_event=loose_text(row, "sourceJobEvent"),
    )
