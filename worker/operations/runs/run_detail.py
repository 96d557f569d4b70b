"""Reads everything about one run: its record with inputs and outputs, and its events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from worker.core.model import keys
from worker.core.model.events import Event, in_order
from worker.core.model.keys import RunKey
from worker.core.run.state import ForeignRun, Run, State
from worker.operations.records import EventRecord, RunRecord
from worker.operations.runs.rule_waits import RuleWaits
from worker.operations.runs.run_records import run_record
from worker.store.repos.events import event_of
from worker.store.repos.pauses import Pauses
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.rows import first_rows
from worker.store.table import Between, TableName, Tables
from worker.store.tail import AFTER_ALL_TIMES

BEFORE: Final = timedelta(days=1)  # events about a run may precede it: rejections and missed runs
AFTER: Final = timedelta(days=7)  # late data and drift are reported after its end
EVENTS_EXAMINED_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvents:
    """Holds the events of one run, oldest first. `is_whole` False: the latest of its time were not read."""

    records: Sequence[EventRecord]
    is_whole: bool


class RunDetails:
    """Reads one run by exact keys and its own ranges. Its methods raise `BadRow` and `RetryLater`."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._runs, self._watches = tables, Runs(tables), SlaWatches(tables)
        self._data, self._pauses, self._waits = RunData(tables), Pauses(tables), RuleWaits(tables)

    async def record(self, key: RunKey, now: datetime) -> RunRecord | None:
        """Return the record of a run with its inputs and outputs; None if there is no such run."""
        run = await self._runs.load(key)
        if run is None:
            return None
        watch = await self._watches.load(key)
        if isinstance(run, ForeignRun):
            return run_record(run, watch=watch)
        inputs, outputs = await self._data.inputs([key]), await self._data.outputs([key])
        pause = await self._pauses.load(key.pipeline)
        is_waiting = run.state is State.EVALUATING
        return run_record(
            run,
            watch=watch,
            is_paused=pause is not None and not pause.is_over(now),
            waiting=await self._waits.of(key, run.config_hash, now) if is_waiting else None,
            inputs=inputs.get(key),
            outputs=outputs.get(key),
        )

    async def events(self, key: RunKey, now: datetime) -> RunEvents:
        """Return the events about a run from a day before it began to a week after it ended."""
        run = await self._runs.load(key)
        begin, end = key.period.begins.replace(tzinfo=UTC), now
        if isinstance(run, Run):
            begin = min(begin, run.created_at)
            end = min(now, run.since + AFTER) if run.is_ended else now
        span = Between(keys.millis_text(begin - BEFORE), f"{keys.millis_text(end)}{AFTER_ALL_TIMES}")
        rows = await first_rows(
            self._tables,
            TableName.EVENTS,
            keys.pipeline_pk(key.pipeline),
            sk=span,
            limit=EVENTS_EXAMINED_MAX,
        )
        found = in_order(stored.event for row in rows if (stored := event_of(row)))
        about = [event for event in found if (event.schedule, event.period) == (key.schedule, str(key.period))]
        return RunEvents(records=[event_record(event) for event in about], is_whole=len(rows) < EVENTS_EXAMINED_MAX)


def event_record(event: Event) -> EventRecord:
    return EventRecord(
        id=event.id,
        event_type=event.type,
        at=event.at,
        pipeline=event.pipeline,
        schedule=event.schedule,
        period=event.period,
        message=event.message,
        detail=event.detail,
    )
