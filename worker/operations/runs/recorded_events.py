"""Lists reruns, replays and late data from events, of one pipeline or of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final

from worker.core.model import keys
from worker.core.model.events import Event, EventType, in_order
from worker.core.model.values import Json
from worker.core.run.reruns import REPLAY
from worker.core.time.timestamps import format_rfc3339
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import event_of
from worker.store.table import EVENT_TYPES, Between, Index, TableName, Tables
from worker.store.tail import AFTER_ALL_TIMES

EXAMINED_MAX: Final = 2_000  # rows of each event type, or of the pipeline
_PAGE: Final = 500


class RecordedKind(StrEnum):
    """Lists what can be listed; the values are the types of the records."""

    RERUN = "rerun"
    REPLAY = "replay"
    LATE_DATA = "lateData"


_TYPES: Final = {
    RecordedKind.RERUN: (EventType.RERUN_ACCEPTED, EventType.RERUN_REJECTED),
    RecordedKind.REPLAY: (EventType.RERUN_ACCEPTED, EventType.RERUN_REJECTED),
    RecordedKind.LATE_DATA: (EventType.LATE_DATA_ARRIVAL,),
}


@dataclass(frozen=True, slots=True)
class RecordedEvents:
    """Holds events, latest first; `is_complete` False: there are or may be more."""

    events: Sequence[Event]
    is_complete: bool


async def recorded_events(
    tables: Tables, kind: RecordedKind, since: datetime, now: datetime, *, pipeline: str | None, limit: int
) -> RecordedEvents:
    """Return the latest events of a kind, from the index of event types or the pipeline's partition."""
    if pipeline is not None:
        span = Between(keys.millis_text(since), f"{keys.millis_text(now)}{AFTER_ALL_TIMES}")
        parts = [await _latest(tables, kind, _Range(keys.pipeline_pk(pipeline), span), limit)]
    else:
        times = Between(keys.millis(since), keys.millis(now))
        ranges = [_Range(each.value, times, EVENT_TYPES) for each in _TYPES[kind]]
        parts = await gather_bounded([partial(_latest, tables, kind, each, limit) for each in ranges])
    found = in_order(event for part in parts for event in part.events)[::-1]
    return RecordedEvents(found[:limit], len(found) <= limit and all(part.is_complete for part in parts))


@dataclass(frozen=True, slots=True)
class _Range:
    pk: str
    span: Between
    index: Index | None = None


async def _latest(tables: Tables, kind: RecordedKind, within: _Range, limit: int) -> RecordedEvents:
    found: list[Event] = []
    cursor: str | None = None
    examined = 0
    while len(found) <= limit and examined < EXAMINED_MAX:
        page = await tables.query(
            TableName.EVENTS,
            within.pk,
            sk=within.span,
            index=within.index,
            reverse=True,
            limit=_PAGE,
            cursor=cursor,
        )
        examined += max(1, len(page.rows))
        events = [stored.event for row in page.rows if (stored := event_of(row))]
        found += [event for event in events if is_of_kind(event, kind)]
        cursor = page.cursor
        if cursor is None:
            break
    return RecordedEvents(found, cursor is None)


def is_of_kind(event: Event, kind: RecordedKind) -> bool:
    """Return whether a list includes an event. Replays are reruns with a reason of their own."""
    if event.type not in _TYPES[kind]:
        return False
    return kind is not RecordedKind.REPLAY or _is_replay(event)


def recorded_record(event: Event, kind: RecordedKind) -> dict[str, Json]:
    """Return the record that commands print."""
    accepted = {} if kind is RecordedKind.LATE_DATA else {"accepted": event.type == EventType.RERUN_ACCEPTED}
    return {
        "type": kind.value,
        "at": format_rfc3339(event.at),
        "pipeline": event.pipeline,
        "schedule": event.schedule,
        "period": event.period,
        **accepted,
        "message": event.message,
        "detail": dict(event.detail),
    }


def _is_replay(event: Event) -> bool:
    # A rejection's detail says why it was rejected; its message names the kind of rerun.
    return event.detail.get("reason") == REPLAY or f"({REPLAY})" in event.message
