"""Requests: a person, or Interlock for late data and drift, asks for a run, a rerun or a cancellation.

A run has one row for each kind of request, so a new request replaces the last. Its identity is its content: a row that
is delivered again is the same request, and the run remembers those it answered. A trigger request is removed once it
is answered, because a run that somebody deletes must not begin again by itself.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.run.reruns import request_identity
from worker.store import retention
from worker.store.rows import expiry, loose_text, without_none
from worker.store.table import (
    TTL,
    Absent,
    Check,
    Condition,
    Delete,
    Equals,
    Exists,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Value,
    Write,
    all_of,
)

DEFAULT_REASON = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """Asks for a rerun. `requested_at` is text, because other programs write it in formats of their own."""

    reason: str = DEFAULT_REASON
    requested_at: str
    id: str = ""
    supersede: bool = False
    note: str = ""  # for people: the cause, where `reason` is only the kind of rerun
    by: str = ""  # who asked; "" if the writer does not say
    via: str = ""  # how the request arrived, such as `web`
    is_followed: bool = False  # all downstreams follow, outside the budgets

    @property
    def identity(self) -> str:
        return request_identity(self.reason, self.requested_at, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    reason: str
    requested_at: str
    id: str
    waive_sla: bool = False
    by: str = ""
    via: str = ""

    @property
    def identity(self) -> str:
        return request_identity(self.reason, self.requested_at, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRequest:
    """Asks for a run that does not exist, as though its trigger had held."""

    reason: str
    requested_at: str
    id: str
    by: str

    @property
    def identity(self) -> str:
        return request_identity(self.reason, self.requested_at, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeRequest:
    """Says that an upstream outside Interlock completed, so that a run should exist."""

    reason: str
    requested_at: str
    id: str
    by: str


AnyRequest: TypeAlias = RerunRequest | CancelRequest


def rerun_request_of(row: Row) -> RerunRequest:
    """Parse a request from its row or its image in a change record; without a reason it is manual."""
    return RerunRequest(
        reason=loose_text(row, "reason") or DEFAULT_REASON,
        requested_at=loose_text(row, "requestedAt"),
        id=loose_text(row, "id"),
        supersede=row.get("supersede") is True,
        is_followed=row.get("downstream") is True,
        note=loose_text(row, "note"),
        by=loose_text(row, "requestedBy"),
        via=loose_text(row, "via"),
    )


def cancel_request_of(row: Row) -> CancelRequest:
    return CancelRequest(
        reason=loose_text(row, "reason") or "no reason given",
        requested_at=loose_text(row, "requestedAt"),
        id=loose_text(row, "id"),
        waive_sla=row.get("waiveSla") is True,
        by=loose_text(row, "requestedBy"),
        via=loose_text(row, "via"),
    )


def trigger_request_of(row: Row) -> TriggerRequest:
    return TriggerRequest(
        reason=loose_text(row, "reason") or DEFAULT_REASON,
        requested_at=loose_text(row, "requestedAt"),
        id=loose_text(row, "id"),
        by=loose_text(row, "requestedBy") or "unknown",
    )


class Requests:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def rerun_of(self, key: RunKey) -> RerunRequest | None:
        """Return the last rerun request, answered or not."""
        row = await self._tables.get(TableName.CONTROL, _key(key, keys.rerun_request_sk(key)))
        return None if row is None else rerun_request_of(row)

    async def reruns_of(self, runs: Collection[RunKey]) -> dict[RunKey, RerunRequest]:
        """Return the last rerun request of each run that has one, answered or not."""
        rows = {_key(run, keys.rerun_request_sk(run)): run for run in runs}
        found = await self._tables.get_many(TableName.CONTROL, list(rows)) if rows else {}
        return {rows[key]: rerun_request_of(row) for key, row in found.items()}

    async def cancel_of(self, key: RunKey) -> CancelRequest | None:
        row = await self._tables.get(TableName.CONTROL, _key(key, keys.cancel_request_sk(key)))
        return None if row is None else cancel_request_of(row)

    async def trigger_of(self, key: RunKey) -> TriggerRequest | None:
        """Return the trigger request that is not answered yet."""
        row = await self._tables.get(TableName.CONTROL, _key(key, keys.trigger_request_sk(key)))
        return None if row is None else trigger_request_of(row)

    async def ask_trigger(self, key: RunKey, request: TriggerRequest, now: datetime) -> None:
        """Write a trigger request. Raises `StaleWrite` if there is one that is not answered yet."""
        at = _key(key, keys.trigger_request_sk(key))
        said = {"reason": request.reason, "requestedAt": request.requested_at, "id": request.id}
        row = {"PK": at.pk, "SK": at.sk, **said, "requestedBy": request.by, TTL: expiry(now, retention.RUNS)}
        await self._tables.commit(Put(TableName.CONTROL, row, Absent()))

    async def ask_cascade(self, key: RunKey, request: CascadeRequest, now: datetime, *along: Write) -> None:
        """Write a cascade marker over an earlier one. The writes in `along` are part of the same commit."""
        said = {"reason": request.reason, "requestedAt": request.requested_at, "id": request.id}
        at = {"PK": keys.marker_pk(key.pipeline), "SK": f"{key.period}#{key.schedule}"}
        row = {**at, **said, "requestedBy": request.by, TTL: expiry(now, retention.RUNS)}
        await self._tables.commit(Put(TableName.CONTROL, row), *along)

    async def forget_trigger(self, key: RunKey, answered: TriggerRequest) -> None:
        """Remove a trigger request that was answered, unless there is another since."""
        at = _key(key, keys.trigger_request_sk(key))
        with suppress(StaleWrite):
            await self._tables.commit(Delete(TableName.CONTROL, at, Equals("id", answered.id)))

    async def ask_rerun(self, key: RunKey, request: RerunRequest, seen: RerunRequest | None, *along: Write) -> None:
        """Replace the request that was seen. Raises `StaleWrite` if there is another request since.

        The writes in `along` are part of the same commit.
        """
        await self._tables.commit(rerun_write(key, request, seen), *along)

    async def ask_cancel(self, key: RunKey, request: CancelRequest, seen: CancelRequest | None, *along: Write) -> None:
        """Replace the cancel request that was seen. Raises `StaleWrite` if there is another since."""
        at = _key(key, keys.cancel_request_sk(key))
        await self._tables.commit(_write(at, request, seen, {"waiveSla": request.waive_sla or None}), *along)


def rerun_write(key: RunKey, request: RerunRequest, seen: RerunRequest | None) -> Put:
    """Build the write that replaces the request that was seen, as part of a commit."""
    more: dict[str, Value] = {
        "supersede": request.supersede or None,
        "note": request.note or None,
        "downstream": request.is_followed or None,
    }
    return _write(_key(key, keys.rerun_request_sk(key)), request, seen, more)


def removal_writes(key: RunKey, rerun: RerunRequest | None, cancel: CancelRequest | None) -> list[Write]:
    """Build the writes that remove both requests of a run; stale if one was written since."""
    seen = ((keys.rerun_request_sk(key), rerun), (keys.cancel_request_sk(key), cancel))
    return [
        Check(TableName.CONTROL, _key(key, sk), _still(None))
        if request is None
        else Delete(TableName.CONTROL, _key(key, sk), _still(request))
        for sk, request in seen
    ]


def _write(at: Key, request: AnyRequest, seen: AnyRequest | None, more: Mapping[str, Value]) -> Put:
    said = {"reason": request.reason, "requestedAt": request.requested_at, "id": request.id}
    author = {"requestedBy": request.by or None, "via": request.via or None}
    return Put(TableName.CONTROL, without_none({"PK": at.pk, "SK": at.sk, **said, **author, **more}), _still(seen))


def _key(key: RunKey, sk: str) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), sk)


def _still(seen: AnyRequest | None) -> Condition:
    """Return the condition that the row is still the one that was read.

    It uses the attributes that the row has: other programs leave out the id or the time.
    """
    if seen is None:
        return Absent()
    named = (("id", seen.id), ("requestedAt", seen.requested_at))
    return all_of(Exists(), *(Equals(attribute, text) for attribute, text in named if text))
