"""News of a store without a change feed: tails of event types, and lists, read now and then.

DynamoDB's streams are not used: a shard allows two readers, and these are the engine and, during a deployment, its
successor. Most changes of a run emit an event, so its row is read again when one appears. A new run emits none: the
next reading of the active rows finds it.
"""

from collections.abc import AsyncGenerator, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.config_log import ConfigLog
from worker.store.table import EVENT_TYPES, Between, Key, Row, TableName, Tables, query_all
from worker.store.tail import LOOK_BACK, Tail
from worker.web.live.facts import ToldEvent, told_of
from worker.web.live.mirror import Mirror
from worker.web.live.rows import apply_control, apply_event
from worker.web.live.slices import Slices
from worker.web.live.source import END_OF_TIME, MirrorReader

INTERVAL_S: Final = 5.0
SWEEP_S: Final = 60.0
READS_PER_S: Final = 20
EXACT_MAX: Final = 500  # runs whose rows are read again in one pass; the others follow in the next
# A read unit covers 4 kB, or 8 kB of an index; entries of the active index and rows of ended runs as measured.
ACTIVE_PER_UNIT: Final = 32
ENDED_PER_UNIT: Final = 8

# Types whose event means that a run, a deadline, a configuration or a pause changed.
MOVING: Final = (
    EventType.JOB_TRIGGERED,
    EventType.VALIDATION_PASSED,
    EventType.VALIDATION_EXHAUSTED,
    EventType.JOB_COMPLETED,
    EventType.JOB_FAILED,
    EventType.JOB_POLL_EXHAUSTED,
    EventType.RETRY_EXHAUSTED,
    EventType.INFRA_FAILURE,
    EventType.SFN_TIMEOUT,
    EventType.RERUN_ACCEPTED,
    EventType.SCHEDULE_MISSED,
    EventType.IRREGULAR_SCHEDULE_MISSED,
    EventType.SENSOR_DEADLINE_EXPIRED,
    EventType.WATCHDOG_DEGRADED,
    EventType.WATCHDOG_RECOVERED,
    EventType.SLA_WARNING,
    EventType.SLA_BREACH,
    EventType.SLA_MET,
    EventType.SLA_WAIVED,
    EventType.RELATIVE_SLA_WARNING,
    EventType.RELATIVE_SLA_BREACH,
    EventType.EVALUATION_SLA_BREACH,
    EventType.JOB_START_UNKNOWN,
    EventType.JOB_ORPHANED,
    EventType.RUN_CANCELLED,
    EventType.TRIGGER_ACCEPTED,
    EventType.CONFIG_REJECTED,
    EventType.CONFIG_ACCEPTED,
    EventType.OPERATOR_ACTION,
)


class PolledNews:
    """Reads tails every few seconds and lists every minute; a budget of reads lengthens the minute."""

    interval_s = INTERVAL_S

    def __init__(self, tables: Tables, clock: Clock, *, reads_per_s: float = READS_PER_S) -> None:
        self._tables, self._clock, self._reads_per_s = tables, clock, reads_per_s
        self._reader, self._configs = MirrorReader(tables, clock), ConfigLog(tables)
        self._since = self._ended_since = clock.now()
        self._swept_s, self.sweep_s = 0.0, SWEEP_S
        self._seen: dict[str, float] = {}  # keys of events that were applied
        self._config_tail = Tail.starting(clock.now())
        self._left: dict[str, ToldEvent] = {}  # runs whose rows are still to be read again

    async def load(self, mirror: Mirror) -> AsyncGenerator[bool]:
        self._since = self._ended_since = self._clock.now() - LOOK_BACK
        self._config_tail = Tail.starting(self._since)
        self._swept_s = self._clock.monotonic()
        self._seen.clear()
        self._left.clear()
        async for is_first in self._reader.load(mirror):
            yield is_first

    async def read(self, mirror: Mirror) -> None:
        now = self._clock.now()
        await self._tails(mirror, now)
        await self._config_changes(mirror, now)
        await self._reader.sessions(mirror)
        if self._clock.monotonic() - self._swept_s >= self.sweep_s:
            self._swept_s = self._clock.monotonic()
            await self._sweep(mirror, now)

    # --- every few seconds --------------------------------------------------------------------------------------------

    async def _tails(self, mirror: Mirror, now: datetime) -> None:
        begin = keys.millis(self._since)
        parts = await gather_bounded([partial(self._tail, each.value, begin) for each in MOVING])
        slices = Slices(self._clock)
        paused: set[str] = set()
        for row in (row for part in parts for row in part):
            name, event = f"{row['PK']} {row['SK']}", told_of(row)
            if event is None or name in self._seen:
                continue
            self._seen[name] = event.at
            apply_event(mirror, row)
            if event.key:
                self._left[event.key] = event
            if event.type == EventType.OPERATOR_ACTION.value and event.pipeline:
                paused.add(event.pipeline)
            await slices.rest()
        await self._read_again(mirror)
        await self._reader.pauses(mirror, sorted(paused))
        self._since = max(self._since, now - LOOK_BACK)
        oldest = self._since.timestamp() - 1
        self._seen = {name: at for name, at in self._seen.items() if at >= oldest}

    async def _tail(self, event_type: str, begin: int) -> list[Row]:
        span = Between(begin, END_OF_TIME)
        found = query_all(self._tables, TableName.EVENTS, event_type, sk=span, index=EVENT_TYPES)
        return [row async for row in found]

    async def _read_again(self, mirror: Mirror) -> None:
        """Apply the rows of runs that events named, and of their deadlines, as they are now."""
        chosen = list(self._left.values())[:EXACT_MAX]
        names = [(each.pipeline, each.schedule, each.period) for each in chosen]
        await self._exact(mirror, names)
        for each in chosen:
            self._left.pop(each.key, None)

    async def _exact(self, mirror: Mirror, names: Iterable[tuple[str, str, str]]) -> None:
        rows_of = [
            Key(keys.pipeline_pk(pipeline), f"{prefix}{schedule}#{period}")
            for pipeline, schedule, period in names
            for prefix in (keys.TRIGGER, keys.SLA)
        ]
        found = await self._tables.get_many(TableName.CONTROL, rows_of) if rows_of else {}
        for key in rows_of:
            apply_control(mirror, key, found.get(key))

    async def _config_changes(self, mirror: Mirror, now: datetime) -> None:
        entries, self._config_tail = await self._configs.read(self._config_tail, now)
        changed = sorted({PipelineId(entry.pipeline) for entry in entries})
        if changed:
            await self._reader.configs(mirror, changed)
            await self._reader.pauses(mirror, changed)

    # --- every minute -------------------------------------------------------------------------------------------------

    async def _sweep(self, mirror: Mirror, now: datetime) -> None:
        before = list(mirror.active.values())
        watched = list(mirror.watches.values())
        runs, watches = await self._reader.active(mirror)
        # What left the index has ended or was deleted: its own row says which.
        gone = {each.key: each for each in before if each.key not in runs}
        gone |= {each.key: each for each in watched if each.key not in watches}
        await self._exact(mirror, [(each.pipeline, each.schedule, each.period) for each in gone.values()])
        ended = await self._reader.ended(mirror, self._ended_since - LOOK_BACK, now + timedelta(minutes=1))
        await self._reader.letters(mirror)
        self._ended_since = now
        units = keys.ACTIVE_BUCKETS / 2 + (len(runs) + len(watches)) / ACTIVE_PER_UNIT + 2 * len(gone)
        units += 2 * keys.STATUS_BUCKETS / 2 + ended / ENDED_PER_UNIT
        self.sweep_s = max(SWEEP_S, units / self._reads_per_s)
