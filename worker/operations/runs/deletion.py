"""Deletes ended runs: all rows about a run in one commit, with an event that says who and why.

A row remains that says that the run was deleted, so that no late or repeated record starts it again. Only a request
does. With `forget`, no such row remains.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.run.reruns import is_unanswered
from worker.core.run.state import STATE_WORDS, Deletion, ForeignRun, Outcome, Run, start_token
from worker.core.time.timestamps import format_utc, parse_rfc3339
from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId, random_id
from worker.store.repos import run_rollups
from worker.store.repos.deletions import Deletions, deletion_write, lifted
from worker.store.repos.events import event_write
from worker.store.repos.requests import Requests, RerunRequest, removal_writes
from worker.store.repos.run_data import inputs_key, outputs_key
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sla_watches import watch_key
from worker.store.table import (
    Absent,
    Check,
    Delete,
    Equals,
    Key,
    Prefix,
    StaleWrite,
    TableName,
    Tables,
    Write,
    query_all,
)

TRIES_MAX: Final = 8
BATCH: Final = 50  # rows of the history for each commit
# The watchdog looks for the job of such a run for as long; without the run nobody would.
ORPHANS_KEPT: Final = timedelta(hours=24)
_MAY_RUN: Final = frozenset({Outcome.ORPHANED, Outcome.START_UNKNOWN})
# What events that are emitted once are about, apart from their type; `keys.told_mark_sk` names their marks.
_ABOUT: Final = ("", "damage", "doubt", "silence")


class CannotDelete(Rejected):
    """CannotDelete: the run is active, another system's, or somebody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionSpec:
    """Describes a deletion as a person requests it. Without `version`, any version is deleted."""

    reason: str
    with_history: bool = False
    forget: bool = False
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOutcome:
    """Holds what a deletion did. `was_deleted`: the run itself had been deleted before."""

    key: RunKey
    was_deleted: bool
    rows: int  # about the run, with the run's own
    history: int  # of the job log and the record of reruns
    is_forgotten: bool
    is_dry: bool = False


class RunDeletion:
    """Deletes runs on behalf of one requester. With `is_rehearsed`, it says what it would delete."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        by: Requester,
        *,
        is_rehearsed: bool = False,
        new_id: NewId = random_id,
    ) -> None:
        self._tables, self._clock, self._by, self._new_id = tables, clock, by, new_id
        self._is_rehearsed = is_rehearsed
        self._runs, self._requests, self._deletions = Runs(tables), Requests(tables), Deletions(tables)

    async def delete(self, key: RunKey, wanted: DeletionSpec) -> DeletionOutcome | None:
        """Delete an ended run; None if there is no such run. Safe to repeat after a crash.

        Raises `CannotDelete`, `StaleWrite` if the run is not at `wanted.version` any more, and `RetryLater`.
        """
        for tried in range(TRIES_MAX):
            try:
                return await self._delete(key, wanted)
            except StaleWrite:
                # Another writer was first: look again, unless the caller named the version that it saw.
                if wanted.version is not None or tried == TRIES_MAX - 1:
                    raise
        return None

    async def _delete(self, key: RunKey, wanted: DeletionSpec) -> DeletionOutcome | None:
        now = self._clock.now()
        run, deletion = await self._runs.load(key), await self._deletions.load(key)
        if run is None and deletion is None:
            return await self._finish_forgotten(key, wanted, now)
        if isinstance(run, ForeignRun):
            raise CannotDelete(f"the row of {key} belongs to another system; delete it there")
        rows = 0
        if run is not None:
            writes = await self._writes(run, wanted, now)
            rows = sum(isinstance(write, Delete) for write in writes)
            await self._commit(writes)
        elif deletion is not None and wanted.forget:
            action = OperatorAction.on_run("forget", key, wanted.reason, "")
            event = action_event(self._by, action, event_id=self._new_id(), at=now)
            await self._commit([event_write(event), lifted(key, deletion)])
        return DeletionOutcome(
            key=key,
            was_deleted=run is None,
            rows=rows,
            history=await self._delete_history(key) if wanted.with_history else 0,
            is_forgotten=wanted.forget,
            is_dry=self._is_rehearsed,
        )

    async def _finish_forgotten(self, key: RunKey, wanted: DeletionSpec, now: datetime) -> DeletionOutcome | None:
        """Delete the history that an interrupted deletion left; None if there is none of such a run.

        A forgotten run leaves no row that tells it from one that never existed, so only a deletion that forgets is
        repeated like this.
        """
        if not (wanted.forget and wanted.with_history and await self._has_history(key)):
            return None
        action = OperatorAction.on_run("delete", key, wanted.reason, "")
        # First the record of who and why: the rows may be those of a run that somebody else forgot.
        await self._commit([event_write(action_event(self._by, action, event_id=self._new_id(), at=now))])
        history = await self._delete_history(key)
        return DeletionOutcome(
            key=key, was_deleted=True, rows=0, history=history, is_forgotten=True, is_dry=self._is_rehearsed
        )

    async def _commit(self, writes: list[Write]) -> None:
        if not self._is_rehearsed:
            await self._tables.commit(*writes)

    async def _writes(self, run: Run, wanted: DeletionSpec, now: datetime) -> list[Write]:
        """Return one commit: the run at the version that was seen, with everything about it."""
        rerun, cancel = await self._requests.rerun_of(run.key), await self._requests.cancel_of(run.key)
        _require_deletable(run, rerun, now)
        version = run.version if wanted.version is None else wanted.version
        action = OperatorAction.on_run("delete", run.key, wanted.reason, "")
        deletion = Deletion(version=version, at=now, by=self._by.name, reason=wanted.reason, handled=run.handled)
        writes: list[Write] = [
            Delete(TableName.CONTROL, run_key(run.key), Equals("version", version)),
            event_write(action_event(self._by, action, event_id=self._new_id(), at=now)),
            *([] if wanted.forget else [deletion_write(run.key, deletion)]),
            *removal_writes(run.key, rerun, cancel),
            await self._without_watch(run.key),
        ]
        writes += [Delete(TableName.CONTROL, key) for key in await self._others(run)]
        # The run leaves the list of the day it ended on, whose rollup counts it.
        stale = run_rollups.stale_write(run.key, run.since, f"{run.run_id}#deleted", now)
        return writes if stale is None else [*writes, stale]

    async def _without_watch(self, key: RunKey) -> Write:
        """Return the removal of the SLA watch as it is, so that no verdict follows the deletion."""
        row = await self._tables.get(TableName.CONTROL, watch_key(key))
        if row is None:
            return Check(TableName.CONTROL, watch_key(key), Absent())
        return Delete(TableName.CONTROL, watch_key(key), Equals("version", row.get("version")))

    async def _others(self, run: Run) -> list[Key]:
        """Return the other rows about a run that exist: marks, inputs, outputs, and what a pause held back."""
        key, pk = run.key, keys.pipeline_pk(run.key.pipeline)
        numbers = range(1, min(run.attempt, 50) + 1)
        attempts = tuple(f"attempt-{number}" for number in numbers)
        told = [keys.told_mark_sk(each, key, about) for each in EventType for about in _ABOUT]
        orphans = (EventType.JOB_ORPHANED, EventType.JOB_ORPHAN_ENDED)
        told += [keys.told_mark_sk(each, key, about) for each in orphans for about in attempts]
        named = [
            keys.first_arrival_mark_sk(key),
            keys.baseline_mark_sk(key),
            keys.held_back_sk(key),
            keys.held_cascade_sk(key),
            keys.trigger_request_sk(key),
            *(keys.reported_mark_sk(key, start_token(run.run_id, number)) for number in numbers),
            *told,
        ]
        wanted = [inputs_key(key), outputs_key(key), *(Key(pk, sk) for sk in named)]
        found = await self._tables.get_many(TableName.CONTROL, wanted)
        return sorted(found)[:BATCH]  # a run has a handful; the limit keeps the commit within what a store accepts

    # --- history ------------------------------------------------------------------------------------------------------

    async def _has_history(self, key: RunKey) -> bool:
        async for _ in self._history(key):
            return True
        return False

    async def _delete_history(self, key: RunKey) -> int:
        """Delete the job log and the record of reruns; return how many rows. Events stay."""
        found = [row async for row in self._history(key)]
        for begin in range(0, 0 if self._is_rehearsed else len(found), BATCH):
            await self._tables.commit(*(Delete(table, at) for table, at in found[begin : begin + BATCH]))
        return len(found)

    async def _history(self, key: RunKey) -> AsyncIterator[tuple[TableName, Key]]:
        pk = keys.pipeline_pk(key.pipeline)
        for table, prefix in ((TableName.JOBLOG, keys.job_prefix(key)), (TableName.RERUN, keys.rerun_prefix(key))):
            async for row in query_all(self._tables, table, pk, sk=Prefix(prefix)):
                yield table, Key(pk, str(row["SK"]))


def _require_deletable(run: Run, request: RerunRequest | None, now: datetime) -> None:
    if not run.is_ended:
        why = f"{run.key} is {STATE_WORDS[run.state]}, and only an ended run can be deleted"
        raise CannotDelete(f"{why}; cancel it first (`interlock cancel`), or wait until it ends")
    if run.outcome in _MAY_RUN and now - run.since < ORPHANS_KEPT:
        until = format_utc(run.since + ORPHANS_KEPT)
        raise CannotDelete(f"the job of {run.key} may still be running; check it, and delete the run after {until}")
    if request is None:
        return
    asked_at = parse_rfc3339(request.requested_at)
    if is_unanswered(run, request.identity, request.reason, asked_at):
        why = f"a rerun of {run.key} was requested at {request.requested_at} and waits for its answer"
        raise CannotDelete(f"{why}; delete the run when it has ended again")
