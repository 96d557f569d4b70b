"""Dry runs: one row each under `DRY_RUN#`, separate from the rows of runs."""

from dataclasses import replace
from datetime import UTC, datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.run.state import HANDLED_MAX, DryRun, DryState
from worker.core.time.timestamps import parse_rfc3339
from worker.store import retention
from worker.store.rows import (
    BadRow,
    choice,
    expiry,
    first_rows,
    instant,
    instant_map,
    instant_text,
    json_map,
    optional_text,
    text,
    text_map,
    texts,
    whole,
    without_none,
)
from worker.store.table import (
    ACTIVE,
    TTL,
    Absent,
    Equals,
    Expired,
    Key,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
    Value,
    any_of,
)

# The Lambda edition stores nothing else about a dry run.
_FOREIGN_HASH = ""


def dry_run_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.dry_run_sk(key))


def save_write(run: DryRun) -> Put:
    """Build the write of a dry run over the version it was loaded at; a new one must not exist yet."""
    if run.version:
        condition = Equals("version", run.version)
    else:
        # The marker of the Lambda edition has no version, so this row may replace it. A new row replaces only an
        # expired one, which may stay in the table for days after readers no longer see it.
        begins = any_of(Absent(), Expired(run.since))
        condition = begins if run.state is DryState.EVALUATING else Absent("version")
    return Put(TableName.CONTROL, _to_row(_next(run)), condition)


class DryRuns:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: RunKey) -> DryRun | None:
        """Return a dry run; None if there is none. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, dry_run_key(key))
        return None if row is None else dry_run_of(row)

    async def latest(self, pipeline: PipelineId, schedule: ScheduleId) -> RunKey | None:
        """Return the key of the dry run with the latest period, even if its row cannot be parsed."""
        begin, partition = Prefix(f"{keys.DRY_RUN}{schedule}#"), keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=begin, reverse=True, limit=1)
        named = [keys.run_row_of(str(row["PK"]), str(row["SK"])) for row in rows]
        return next((each[1] for each in named if each is not None), None)

    async def waiting(self, pipeline: PipelineId, schedule: ScheduleId, limit: int = 100) -> list[RunKey]:
        """Return which of the latest dry runs of a schedule wait for their rules."""
        begin = Prefix(f"{keys.DRY_RUN}{schedule}#")
        partition = keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=begin, reverse=True, limit=limit)
        waiting = (row for row in rows if row.get("state") == DryState.EVALUATING)
        return [named[1] for row in waiting if (named := keys.run_row_of(str(row["PK"]), str(row["SK"])))]


def saved(run: DryRun) -> DryRun:
    """Return the dry run as `save_write` stores it."""
    return _next(run)


def dry_run_of(row: Row) -> DryRun:
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    if named is None or named[0] is not RowKind.DRY_RUN:
        raise BadRow(row, "SK", "does not name a schedule and a period")
    return _own(named[1], row) if "state" in row else _foreign(named[1], row)


def _next(run: DryRun) -> DryRun:
    return replace(run, version=run.version + 1)


def _to_row(run: DryRun) -> dict[str, Value]:
    key = dry_run_key(run.key)
    return without_none(
        {
            "PK": key.pk,
            "SK": key.sk,
            "state": run.state.value,
            "version": run.version,
            "configHash": run.config_hash,
            "since": instant_text(run.since),
            "windowEndsAt": instant_text(run.window_ends_at),
            "owner": run.owner,
            "startedOn": dict(run.started_on) or None,
            "changedInputs": dict(run.changed_inputs) or None,
            "lateReported": run.late_reported,
            "postRunSeen": dict(run.post_run_seen) or None,
            "toldAt": {key: instant_text(at) for key, at in run.told_at.items()} or None,
            "handled": list(run.handled[-HANDLED_MAX:]) or None,
            "reason": run.reason or None,
            **_lifetime(run, key),
        }
    )


def _lifetime(run: DryRun, key: Key) -> dict[str, Value]:
    if run.state is DryState.EVALUATING:
        return {ACTIVE.partition: keys.active_bucket_of(key.pk, key.sk)}
    # A dry run for a future period must outlive that period: its signal is evaluated again until the period is long
    # past.
    begins = run.key.period.begins.replace(tzinfo=UTC)
    lifetime: dict[str, Value] = {TTL: expiry(max(run.since, begins), retention.DRY_RUNS)}
    if run.state is DryState.WOULD_TRIGGER:
        lifetime["data"] = {"triggeredAt": instant_text(run.since)}  # what readers of the Lambda edition's rows expect
    return lifetime


def _own(key: RunKey, row: Row) -> DryRun:
    owner = optional_text(row, "owner")
    return DryRun(
        key=key,
        version=whole(row, "version"),
        state=choice(row, "state", DryState),
        config_hash=text(row, "configHash"),
        since=instant(row, "since"),
        window_ends_at=instant(row, "windowEndsAt"),
        owner=None if owner is None else SessionId(owner),
        started_on=text_map(row, "startedOn"),
        changed_inputs=text_map(row, "changedInputs"),
        late_reported=optional_text(row, "lateReported"),
        post_run_seen=text_map(row, "postRunSeen"),
        told_at=instant_map(row, "toldAt"),
        handled=texts(row, "handled"),
        reason=optional_text(row, "reason") or "",
    )


def _foreign(key: RunKey, row: Row) -> DryRun:
    at = _triggered_at(row)
    return DryRun(key=key, state=DryState.WOULD_TRIGGER, config_hash=_FOREIGN_HASH, since=at, window_ends_at=at)


def _triggered_at(row: Row) -> datetime:
    at = json_map(row, "data").get("triggeredAt")
    parsed = parse_rfc3339(at) if isinstance(at, str) else None
    if parsed is None:
        raise BadRow(row, "data", "must say when the job would have been started, as triggeredAt")
    return parsed
