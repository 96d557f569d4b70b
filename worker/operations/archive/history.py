"""Reads the history of a window by index: its events and the runs that ended in it, as records."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, cast

from worker.core.model import keys
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.operations.archive.windows import ArchiveWindow
from worker.operations.records import InputRecord, RunRecord, as_json
from worker.operations.redaction import without_secrets
from worker.operations.runs.run_detail import event_record
from worker.operations.runs.run_records import run_record
from worker.operations.runs.run_search import FoundRun, read_run
from worker.runtime.logs import redacted_text
from worker.store.repos.events import Events
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import UnreadableRow
from worker.store.repos.sla_watches import watches_of
from worker.store.table import LISTS, Between, TableName, Tables

RUNS_AT_ONCE: Final = 100  # each may have 64 kB of inputs and as much of outputs

_STATES: Final = (State.COMPLETED, State.FAILED_FINAL)


class History:
    """Reads one partition of an index after the other. `types` adds event types of other systems."""

    def __init__(self, tables: Tables, types: Sequence[str] = ()) -> None:
        self._tables, self._events, self._data = tables, Events(tables), RunData(tables)
        self._types = tuple(dict.fromkeys([*(each.value for each in EventType), *types]))

    async def events(self, window: ArchiveWindow) -> AsyncIterator[Mapping[str, Json]]:
        """Yield the events of a window in a fixed order: by type, then by time."""
        for event_type in self._types:
            async for stored in self._events.of_type(event_type, window.start, window.last):
                yield archived_event(stored.event)

    async def runs(self, window: ArchiveWindow) -> AsyncIterator[Mapping[str, Json]]:
        """Yield the runs that ended in a window, with attempts, inputs and outputs."""
        within = Between(keys.millis_text(window.start), keys.millis_text(window.end))
        for state in _STATES:
            for number in range(keys.STATUS_BUCKETS):
                name, cursor = keys.ended_bucket(state.value, window.start.date(), number), None
                while True:
                    page = await self._tables.query(
                        TableName.CONTROL, name, sk=within, index=LISTS, limit=RUNS_AT_ONCE, cursor=cursor
                    )
                    for record in await self._records([read_run(row) for row in page.rows]):
                        yield record
                    cursor = page.cursor
                    if cursor is None:
                        break

    async def _records(self, runs: Sequence[FoundRun]) -> list[Mapping[str, Json]]:
        readable = [run.key for run in runs if not isinstance(run, UnreadableRow)]
        if not runs:
            return []
        inputs, outputs = await self._data.inputs(readable), await self._data.outputs(readable)
        watches = await watches_of(self._tables, readable)
        found: list[Mapping[str, Json]] = []
        for run in runs:
            key = None if isinstance(run, UnreadableRow) else run.key
            record = (
                run_record(run)
                if key is None
                else run_record(run, watch=watches.get(key), inputs=inputs.get(key), outputs=outputs.get(key))
            )
            found.append(archived_run(run, record))
        return found


def archived_event(event: Event) -> Mapping[str, Json]:
    """Return an event as it is archived: with an id, and without secrets."""
    shown = replace(
        event_record(event),
        id=event.id or _id_of_content(event),
        message=redacted_text(event.message),
        detail=cast("Mapping[str, object]", without_secrets(dict(event.detail))),
    )
    return as_json(shown)


def archived_run(run: FoundRun, record: RunRecord) -> Mapping[str, Json]:
    """Return a run as it is archived: each of its ends has an id of its own."""
    inputs = None if record.inputs is None else {name: _without_secrets(one) for name, one in record.inputs.items()}
    outputs = without_secrets(cast("Json", record.outputs)) if record.outputs is not None else None
    shown = replace(
        record,
        reason=redacted_text(record.reason),
        attempts=[replace(each, reason=redacted_text(each.reason)) for each in record.attempts],
        inputs=inputs,
        outputs=cast("Mapping[str, object] | None", outputs),
    )
    return {**as_json(shown), "id": _end_of(run)}


def _end_of(run: FoundRun) -> str:
    if isinstance(run, Run):
        return f"{run.run_id}@{keys.millis(run.since)}"
    # A row of another system, or one that cannot be read: its key and content are all that is known of it.
    about = f"{run.key.pk} {run.key.sk} {run.problem}" if isinstance(run, UnreadableRow) else f"{run.key} {run.status}"
    return sha256(about.encode()).hexdigest()[:24]


def _without_secrets(each: InputRecord) -> InputRecord:
    data = None if each.data is None else without_secrets(cast("Json", each.data))
    return replace(each, data=cast("Mapping[str, object] | None", data))


def _id_of_content(event: Event) -> str:
    """Return an id for an event of the Lambda edition, which has none: the same at every reading."""
    parts = (event.pipeline, event.schedule, event.period, event.type, str(keys.millis(event.at)), event.message)
    return sha256("\x1f".join(parts).encode()).hexdigest()[:24]
