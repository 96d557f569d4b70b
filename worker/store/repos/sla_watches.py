"""SLA watches: armed once, decided once, and like runs changed only by compare-and-swap."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period
from worker.store import retention
from worker.store.rows import (
    BadRow,
    expiry,
    first_rows,
    instant,
    instant_text,
    names_up_to,
    optional_choice,
    optional_instant,
    optional_instant_text,
    optional_text,
    text,
    whole,
    without_none,
)
from worker.store.table import ACTIVE, TTL, Absent, Equals, Key, Put, Row, TableName, Tables, Value, Write


def watch_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.sla_sk(key))


async def watches_of(tables: Tables, runs: Iterable[RunKey]) -> dict[RunKey, SlaWatch]:
    """Return the watches of those runs that have one; one that cannot be read is left out."""
    rows = await tables.get_many(TableName.CONTROL, [watch_key(key) for key in runs])
    watches: dict[RunKey, SlaWatch] = {}
    for row in rows.values():
        try:
            watch = watch_from_row(row)
        except BadRow:
            continue
        watches[watch.key] = watch
    return watches


def save_write(watch: SlaWatch) -> Put:
    """Build the write of a watch over the version it was loaded at; a new one must not exist yet.

    A success puts this in the run's commit, so that the verdict and the run's end are written together.
    """
    condition = Equals("version", watch.version) if watch.version else Absent()
    return Put(TableName.CONTROL, watch_to_row(_next(watch)), condition)


def saved(watch: SlaWatch) -> SlaWatch:
    """Return the watch as `save_write` stores it."""
    return _next(watch)


class SlaWatches:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: RunKey) -> SlaWatch | None:
        """Return a watch; None if there is none. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, watch_key(key))
        return None if row is None else watch_from_row(row)

    async def load_many(self, watches: Collection[RunKey]) -> list[SlaWatch]:
        """Return those of the watches that exist, read consistently. Raises `BadRow`."""
        found = await self._tables.get_many(TableName.CONTROL, [watch_key(key) for key in watches])
        return [watch_from_row(row) for row in found.values()]

    async def of_schedule(
        self, pipeline: PipelineId, schedule: ScheduleId, limit: int = 100, *, last: Period | None = None
    ) -> list[SlaWatch]:
        """Return the watches of one schedule, latest period first; with `last`, from that one back.

        Unreadable ones are left out.
        """
        begin = names_up_to(f"{keys.SLA}{schedule}#", str(last or ""))
        partition = keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=begin, reverse=True, limit=limit)
        return [watch for row in rows if (watch := _listed(row))]

    async def save(self, watch: SlaWatch, *extra: Write) -> SlaWatch:
        """Write the watch with `extra`. Raises `StaleWrite` if another was first; then nothing was written."""
        await self._tables.commit(save_write(watch), *extra)
        return _next(watch)


def _listed(row: Row) -> SlaWatch | None:
    try:
        return watch_from_row(row)
    except BadRow:
        return None


def _next(watch: SlaWatch) -> SlaWatch:
    return replace(watch, version=watch.version + 1)


def watch_to_row(watch: SlaWatch) -> dict[str, Value]:
    key = watch_key(watch.key)
    return without_none(
        {
            "PK": key.pk,
            "SK": key.sk,
            "version": watch.version,
            "state": watch.state.value,
            "since": instant_text(watch.since),
            "configHash": watch.config_hash,
            "arrivedAt": optional_instant_text(watch.arrived_at),
            "warningAt": optional_instant_text(watch.warning_at),
            "breachAt": optional_instant_text(watch.breach_at),
            "warnedAt": optional_instant_text(watch.warned_at),
            "verdict": None if watch.verdict is None else watch.verdict.value,
            "reason": watch.reason or None,
            "evaluationAt": optional_instant_text(watch.evaluation_at),
            "evaluationVerdict": None if watch.evaluation_verdict is None else watch.evaluation_verdict.value,
            "evaluationJudgedAt": optional_instant_text(watch.evaluation_judged_at),
            "evaluationReason": watch.evaluation_reason or None,
            "owner": watch.owner,
            **_lifetime(watch, key),
        }
    )


def _lifetime(watch: SlaWatch, key: Key) -> dict[str, Value]:
    if watch.is_closed:
        return {TTL: expiry(watch.since, retention.RUNS)}
    active: dict[str, Value] = {ACTIVE.partition: keys.active_bucket_of(key.pk, key.sk)}
    if watch.is_evaluation_open and watch.evaluation_at is not None:
        # The index of active rows copies this attribute, so that an overdue evaluation is found like an overdue run.
        active["windowEndsAt"] = instant_text(watch.evaluation_at)
    return active


def watch_from_row(row: Row) -> SlaWatch:
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    if named is None or named[0] is not RowKind.SLA:
        raise BadRow(row, "SK", "does not name a schedule and a period")
    owner = optional_text(row, "owner")
    return SlaWatch(
        key=named[1],
        version=whole(row, "version"),
        config_hash=text(row, "configHash"),
        since=instant(row, "since"),
        arrived_at=optional_instant(row, "arrivedAt"),
        warning_at=optional_instant(row, "warningAt"),
        breach_at=optional_instant(row, "breachAt"),
        warned_at=optional_instant(row, "warnedAt"),
        verdict=optional_choice(row, "verdict", Verdict),
        reason=optional_text(row, "reason") or "",
        evaluation_at=optional_instant(row, "evaluationAt"),
        evaluation_verdict=optional_choice(row, "evaluationVerdict", Verdict),
        evaluation_judged_at=optional_instant(row, "evaluationJudgedAt"),
        evaluation_reason=optional_text(row, "evaluationReason") or "",
        owner=None if owner is None else SessionId(owner),
    )
