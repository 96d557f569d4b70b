"""Readiness rows: one for each schedule, replaced when its verdict or its first reason changes."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.model.rule_report import RuleReport
from worker.core.time.periods import Period
from worker.store import retention
from worker.store.rows import (
    BadRow,
    choice,
    expiry,
    first_rows,
    instant,
    instant_text,
    loose_text,
    text,
    to_json_map,
    whole,
)
from worker.store.table import TTL, Absent, Equals, Expired, Key, Prefix, Put, Row, TableName, Tables, Value, any_of


def readiness_key(pipeline: PipelineId, schedule: ScheduleId) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.readiness_sk(schedule))


def save_write(found: Readiness, now: datetime) -> Put:
    """Build the write over the version that was read; of several writers, one is first."""
    # An expired row is invisible to readers and may still be there: who read nothing may replace it.
    old = Equals("version", found.version) if found.version else any_of(Absent(), Expired(now))
    return Put(TableName.CONTROL, _to_row(replace(found, version=found.version + 1), now), old)


class ReadinessRows:
    """Reads and writes readiness. Its methods raise `RetryLater`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, pipeline: PipelineId, schedule: ScheduleId) -> Readiness | None:
        """Return a schedule's readiness; None if there is none, or its row cannot be read."""
        row = await self._tables.get(TableName.CONTROL, readiness_key(pipeline, schedule))
        return None if row is None else _listed(row)

    async def of_pipeline(self, pipeline: PipelineId, limit: int = 100) -> list[Readiness]:
        """Return the readiness of every schedule of a pipeline, in order of their ids."""
        partition, prefix = keys.pipeline_pk(pipeline), Prefix(keys.READINESS)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=prefix, limit=limit)
        return [found for row in rows if (found := _listed(row))]

    async def save(self, found: Readiness, now: datetime) -> Readiness:
        """Write the row. Raises `StaleWrite` if another writer was first."""
        await self._tables.commit(save_write(found, now))
        return replace(found, version=found.version + 1)


def _listed(row: Row) -> Readiness | None:
    try:
        return readiness_from_row(row)
    except BadRow:
        return None  # the next evaluation of the schedule writes it again


def _to_row(found: Readiness, now: datetime) -> dict[str, Value]:
    key = readiness_key(found.key.pipeline, found.key.schedule)
    return {
        "PK": key.pk,
        "SK": key.sk,
        "version": found.version,
        "period": str(found.key.period),
        "verdict": found.verdict.value,
        "changedAt": instant_text(found.changed_at),
        "attempt": found.attempt,
        "reason": found.reason,
        "rules": [rule.record() for rule in found.rules],
        "rulesTotal": found.rules_total,
        TTL: expiry(now, retention.READINESS),
    }


def readiness_from_row(row: Row) -> Readiness:
    """Parse a row. Raises `BadRow`."""
    pipeline, schedule = keys.pipeline_of(str(row["PK"])), str(row["SK"]).removeprefix(keys.READINESS)
    period = Period.parse(text(row, "period"))
    if pipeline is None or period is None:
        raise BadRow(row, "period", "is not a period")
    rules = row.get("rules")
    return Readiness(
        key=RunKey(pipeline, ScheduleId(schedule), period),
        version=whole(row, "version"),
        verdict=choice(row, "verdict", ReadinessVerdict),
        changed_at=instant(row, "changedAt"),
        attempt=whole(row, "attempt"),
        reason=loose_text(row, "reason"),
        rules=tuple(_report(to_json_map(rule)) for rule in rules if isinstance(rule, Mapping))
        if isinstance(rules, list | tuple)
        else (),
        rules_total=whole(row, "rulesTotal"),
    )


def _report(record: Mapping[str, object]) -> RuleReport:
    parts = {name: str(record.get(name, "")) for name in ("key", "field", "check", "required", "actual", "reason")}
    return RuleReport(holds=record.get("holds") is True, **parts)
