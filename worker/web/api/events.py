"""Events of all pipelines or of one, oldest first."""

from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from worker.core.model.events import Event, EventType
from worker.core.time.durations import parse_span
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.records import EventRecord, as_json
from worker.operations.runs.cursors import BadCursor, read_cursor, write_cursor
from worker.operations.runs.events import in_order
from worker.operations.runs.run_detail import event_record
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.store.tail import Tail
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import Paging, require_pipeline
from worker.web.api.responses import listing, page
from worker.web.problems import ProblemType, WebProblem

DAY: Final = timedelta(days=1)

events_router = APIRouter(tags=["events"])


class EventsQuery(Paging):
    type: list[str] = Field(default=[], max_length=60, description="Such as `SLA_BREACH`; repeat for several.")
    pipeline: str = Field(default="", max_length=64)
    since: str = Field(default="24h", max_length=64, description="A time, or an age such as `7d`.")

    @property
    def bound(self) -> str:
        return "\x1f".join(("events", ",".join(sorted(set(self.type))), self.pipeline, self.since))


@events_router.get("/events", summary="List events", **listing(EventRecord))
async def list_events(request: Request, context: Context, query: Annotated[EventsQuery, Query()]) -> Response:
    """List events since a time, oldest first. Events of other systems need a pipeline."""
    unknown = [each for each in query.type if each not in set(EventType)]
    if unknown and not query.pipeline:
        raise WebProblem(ProblemType.BAD_REQUEST, f"there is no event type {unknown[0][:60]!r}; name a pipeline, too")
    now = context.clock.now()
    start, shown = _start(query, now)
    wanted = query.limit + len(shown) + 1
    if query.pipeline:
        events = await _of_pipeline(context, query, start, wanted)
        if not events and query.cursor is None:
            await require_pipeline(context, query.pipeline)
    else:
        types = query.type or list(EventType)
        parts = await gather_bounded([partial(_of_type, context, each, start, wanted) for each in types])
        events = in_order(event for part in parts for event in part)
    left = [event for event in events if _name(event) not in shown]
    found = list(islice(left, query.limit))
    following = _cursor(query, found, shown) if len(left) > len(found) else None
    return page(request, [as_json(event_record(event)) for event in found], following)


async def _of_type(context: ApiContext, event_type: str, start: datetime, wanted: int) -> list[Event]:
    found: list[Event] = []
    async for stored in Events(context.tables).of_type(event_type, start):
        found.append(stored.event)
        if len(found) == wanted:
            break
    return found


async def _of_pipeline(context: ApiContext, query: EventsQuery, start: datetime, wanted: int) -> list[Event]:
    """Read the pipeline's partition until enough events match, or no more are there."""
    tail, found = Tail.starting(start), list[Event]()
    while len(found) < wanted:
        read, tail = await Events(context.tables).since(query.pipeline, tail, context.clock.now(), 1_000)
        found += [each.event for each in read if not query.type or each.event.type in query.type]
        if not read:
            break
    return in_order(found)


def _start(query: EventsQuery, now: datetime) -> tuple[datetime, frozenset[str]]:
    """Return where to begin, and the events of that very time that were shown already."""
    if query.cursor is None:
        return _time(query.since, now), frozenset()
    position = read_cursor(query.cursor, query.bound)
    at, shown = parse_rfc3339(str(position.get("at"))), position.get("shown")
    if at is None or not isinstance(shown, list):
        raise BadCursor(query.cursor)
    return at, frozenset(str(each) for each in shown)


def _cursor(query: EventsQuery, found: list[Event], shown: frozenset[str]) -> str:
    last = found[-1].at
    known = [_name(event) for event in found if event.at == last]
    before = sorted(shown) if all(event.at == last for event in found) else []
    return write_cursor(query.bound, {"at": format_rfc3339(last), "shown": [*before, *known]})


def _name(event: Event) -> str:
    return f"{event.id}.{event.type}.{event.pipeline}"


def _time(text: str, now: datetime) -> datetime:
    age = parse_span(text)
    at = now - abs(age) if age is not None else parse_rfc3339(text) or parse_rfc3339(f"{text}T00:00:00Z")
    if at is None:
        raise WebProblem(ProblemType.BAD_REQUEST, f"{text!r} is not a time; write 24h, 7d or 2027-03-22T06:00:00Z")
    return at
