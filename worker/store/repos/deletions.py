"""Deletions: rows that outlive deleted runs, so that no record delivered again creates such a run.

A commit that creates a run checks in the same transaction that there is no such row, or removes the row that it saw.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.run.state import Deletion
from worker.store import retention
from worker.store.rows import expiry, instant, instant_text, text, texts, whole
from worker.store.table import (
    TTL,
    Absent,
    Check,
    Delete,
    Equals,
    Expired,
    Key,
    Put,
    Row,
    TableName,
    Tables,
    Write,
    any_of,
)


def deletion_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.deleted_sk(key))


def deletion_write(key: RunKey, deletion: Deletion) -> Put:
    """Build the row of a deletion, for the commit that deletes the run.

    It lives as long as anything may start the run: as long as runs are kept, from the period or from now on.
    """
    at = deletion_key(key)
    latest = max(deletion.at, key.period.begins.replace(tzinfo=UTC))
    row = {
        "PK": at.pk,
        "SK": at.sk,
        "version": deletion.version,
        "at": instant_text(deletion.at),
        "by": deletion.by,
        "reason": deletion.reason,
        "handled": list(deletion.handled),
        TTL: expiry(latest, retention.RUNS),
    }
    # A run exists only after its earlier deletion was lifted or has expired.
    return Put(TableName.CONTROL, row, any_of(Absent(), Expired(deletion.at)))


def not_deleted(key: RunKey, now: datetime) -> Check:
    """Build the check for a commit that creates a run: nobody has deleted it."""
    return Check(TableName.CONTROL, deletion_key(key), any_of(Absent(), Expired(now)))


def lifted(key: RunKey, deletion: Deletion) -> Delete:
    """Build the write that lifts a deletion, for the commit that creates the run again."""
    return Delete(TableName.CONTROL, deletion_key(key), Equals("version", deletion.version))


def is_about_deletion(write: Write) -> bool:
    """Return whether a refused write shows that the run was deleted, or that its deletion was lifted."""
    return write.table is TableName.CONTROL and write.key.sk.startswith(keys.DELETED)


class Deletions:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: RunKey) -> Deletion | None:
        """Return the deletion of a run; None if it was not deleted. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, deletion_key(key))
        return None if row is None else _deletion(row)

    async def rows(self, runs: Sequence[RunKey]) -> dict[RunKey, Row]:
        """Return the rows of those runs that were deleted."""
        wanted = {deletion_key(run): run for run in runs}
        found = await self._tables.get_many(TableName.CONTROL, list(wanted)) if wanted else {}
        return {wanted[key]: row for key, row in found.items()}

    async def which_of(self, runs: Sequence[RunKey]) -> set[RunKey]:
        return set(await self.rows(runs))


def _deletion(row: Row) -> Deletion:
    return Deletion(
        version=whole(row, "version"),
        at=instant(row, "at"),
        by=text(row, "by"),
        reason=text(row, "reason"),
        handled=texts(row, "handled"),
    )
