"""Starts bulk operations: a new one, or the same command's that was interrupted."""

from worker.core.errors import RetryLater
from worker.operations.bulk.execution import BulkSpec
from worker.operations.bulk.selection import RunSelection, digest_of
from worker.operations.operator_actions import Requester
from worker.runtime.clock import Clock
from worker.store.repos.bulk_operations import BulkOperation, BulkOperations
from worker.store.table import StaleWrite, Tables


def command_of(wanted: BulkSpec, by: Requester, selects: str) -> str:
    """Return the digest of a command: who wants what, of the runs that `selects` describes, and why."""
    options = f"{wanted.supersede}{wanted.waive_sla}"
    return digest_of((wanted.action.value, wanted.reason, by.name, by.via, options, selects))


async def start_bulk(
    tables: Tables,
    clock: Clock,
    by: Requester,
    wanted: BulkSpec,
    selection: RunSelection,
    *,
    command: str,
    bulk_id: str,
) -> BulkOperation:
    """Store a new operation, or return the unfinished one of the same command, or of the same id.

    The caller then carries it out. Raises `RetryLater`.
    """
    operations = BulkOperations(tables)
    operation = BulkOperation(
        id=bulk_id,
        command=command,
        action=wanted.action,
        reason=wanted.reason,
        by=by.name,
        via=by.via,
        runs=selection.runs,
        created_at=clock.now(),
        supersede=wanted.supersede,
        waive_sla=wanted.waive_sla,
    )
    try:
        await operations.start(operation)
    except StaleWrite:
        found = await operations.load(bulk_id) or await operations.unfinished(command)
        if found is None:
            raise RetryLater("another process has just finished the same bulk operation; run it again") from None
        return found
    return operation
