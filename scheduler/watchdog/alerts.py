"""Emit alerts about missing runs: once per run, and one summary if many are missing at once.

The mark that records an alert is in the same commit as the event. So a crash can neither lose nor duplicate an alert,
and of two watchdogs one gets a stale write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.effects import EmitEvent
from worker.core.model.events import Event
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.time.skew import was_set_back
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.engine.commits import random_id
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId
from worker.store.repos.events import event_write
from worker.store.repos.marks import Mark, Marks, move_write
from worker.store.repos.sensors import Sensors
from worker.store.table import StaleWrite, Tables, Write

APART_MAX: Final = 3  # alerts of one type about one pipeline in one pass; more become one summary
NAMED_MAX: Final = 20
TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Alert is what is missing of one run. `holds` are the conditions under which it is still true."""

    key: RunKey
    due_at: datetime
    tell: EmitEvent
    holds: tuple[Write, ...] = ()
    old_mark: str = ""  # the sensor by which the Lambda edition records that it sent this alert


class Alerts:
    """Emits each alert once. With `repeat_after`, it emits an alert again after that time."""

    def __init__(
        self, tables: Tables, clock: Clock, *, repeat_after: timedelta | None = None, new_id: NewId = random_id
    ) -> None:
        self._tables, self._clock, self._new_id = tables, clock, new_id
        self._marks, self._sensors = Marks(tables), Sensors(tables)
        self.repeat_after = repeat_after

    async def tell(self, alerts: Sequence[Alert]) -> None:
        """Emit what one pipeline misses, all of one type. Raises `RetryLater`; some may be emitted by then."""
        for _ in range(TRIES_MAX):
            fresh = await self._untold(alerts)
            if len(fresh) <= APART_MAX:
                for alert in fresh:
                    await self._tell_apart(alert)
                return
            if await self._tell_together(fresh):
                return
        raise RetryLater(f"other workers alert about {alerts[0].key.pipeline}, too; the next pass sends the rest")

    async def _untold(self, alerts: Sequence[Alert]) -> list[Alert]:
        """Return the alerts that were not emitted yet, or long enough ago to be repeated."""
        if not alerts:
            return []
        summary = await self._summary(alerts[0])
        told = await self._marks.get_many(alerts[0].key.pipeline, [_mark_sk(alert) for alert in alerts])
        now = self._clock.now()
        return [
            alert
            for alert in alerts
            if (not _covers(summary, alert, now) or self._is_to_be_told(summary, now))
            and self._is_to_be_told(told.get(_mark_sk(alert)), now)
            and not await self._was_told_by_the_reference(alert)
        ]

    async def _tell_apart(self, alert: Alert) -> None:
        now, pipeline, mark_sk = self._clock.now(), alert.key.pipeline, _mark_sk(alert)
        mark = await self._marks.get(pipeline, mark_sk)
        if not self._is_to_be_told(mark, now):
            return
        times = _times(mark) + 1
        noted: dict[str, Json] = {"at": format_rfc3339(now), "times": times}
        event = self._event(pipeline, alert.tell, now, {"times": times} if times > 1 else {})
        told = event_write(replace(event, schedule=alert.key.schedule, period=str(alert.key.period)))
        await self._commit(move_write(pipeline, mark_sk, mark, noted, now), told, *alert.holds)

    async def _tell_together(self, alerts: Sequence[Alert]) -> bool:
        """Emit one summary and one mark with its end; return False if another worker emitted some meanwhile."""
        now, first, last = self._clock.now(), alerts[0], alerts[-1]
        pipeline, mark_sk = first.key.pipeline, keys.told_up_to_mark_sk(first.tell.type)
        mark = await self._summary(first)
        up_to = max(alert.due_at for alert in alerts)
        periods = [f"{alert.key.schedule}/{alert.key.period}" for alert in alerts]
        counted: dict[str, Json] = {
            "count": len(alerts),
            "first": periods[0],
            "last": periods[-1],
            "periods": periods[:NAMED_MAX],
        }
        message = (
            f"{pipeline}: {len(alerts)} times from {first.key.schedule}/{first.key.period} to "
            f"{last.key.schedule}/{last.key.period}; the first: {first.tell.message}"
        )
        tell = EmitEvent(type=first.tell.type, message=message, detail=first.tell.detail)
        before = _told_up_to(mark, now)
        noted: dict[str, Json] = {"upTo": format_rfc3339(max(up_to, before or up_to)), "at": format_rfc3339(now)}
        told = event_write(self._event(pipeline, tell, now, counted))
        return await self._commit(move_write(pipeline, mark_sk, mark, noted, now), told)

    async def _commit(self, *writes: Write) -> bool:
        """Commit the writes; return False if another worker emitted the alert or it is no longer true."""
        try:
            await self._tables.commit(*writes)
        except StaleWrite:
            return False
        return True

    async def _summary(self, alert: Alert) -> Mark | None:
        """Return the mark of the last summary of this type."""
        return await self._marks.get(alert.key.pipeline, keys.told_up_to_mark_sk(alert.tell.type))

    async def _was_told_by_the_reference(self, alert: Alert) -> bool:
        if not alert.old_mark:
            return False
        name = f"{alert.old_mark}#{alert.key.period}"
        return await self._sensors.get(alert.key.pipeline, name) is not None

    def _is_to_be_told(self, mark: Mark | None, now: datetime) -> bool:
        if mark is None:
            return True
        told_at = _instant(mark, "at")
        return self.repeat_after is not None and told_at is not None and now - told_at >= self.repeat_after

    def _event(self, pipeline: PipelineId, tell: EmitEvent, now: datetime, more: Mapping[str, Json]) -> Event:
        return Event(
            id=self._new_id(),
            type=tell.type,
            at=now,
            pipeline=pipeline,
            message=tell.message,
            detail={**tell.detail, **more},
        )


def _mark_sk(alert: Alert) -> str:
    return keys.told_mark_sk(alert.tell.type, alert.key, alert.tell.about)


def _covers(summary: Mark | None, alert: Alert, now: datetime) -> bool:
    up_to = _told_up_to(summary, now)
    return up_to is not None and alert.due_at <= up_to


def _told_up_to(summary: Mark | None, now: datetime) -> datetime | None:
    """Return the end of a summary. A summary from a clock that was ahead covers nothing."""
    up_to = _instant(summary, "upTo")
    return None if up_to is None or was_set_back(up_to, now) else up_to


def _instant(mark: Mark | None, name: str) -> datetime | None:
    said = mark.data.get(name) if mark else None
    return parse_rfc3339(said) if isinstance(said, str) else None


def _times(mark: Mark | None) -> int:
    if mark is None:
        return 0
    times = mark.data.get("times")
    return times if isinstance(times, int) else 1
