"""Events of all pipelines or of one, oldest first."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from worker.core.model.events import Event, EventType, in_order
from worker.core.time.durations import parse_duration
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.records import EventRecord, as_json
from worker.operations.runs.cursors import BadCursor, read_cursor, write_cursor
from worker.operations.runs.run_detail import event_record
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.store.tail import Tail
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import Paging, require_pipeline
from worker.web.api.responses import listing, page
from worker.web.problems import ProblemType, WebProblem

EXAMINED_MAX: Final = 5_000  # events of one list that a page looks at
_READ_MAX: Final = 1_000

events_router = APIRouter(tags=["events"])


class EventListQuery(Paging, ABC):
    """What every list of events has: a pipeline or none, and where it begins."""

    pipeline: str = Field(default="", max_length=64)
    since: str = Field(default="24h", max_length=64, description="A time, or an age such as `7d`.")

    @property
    @abstractmethod
    def bound(self) -> str:
        """Return what a cursor of this list is valid for."""


class EventsQuery(EventListQuery):
    type: list[str] = Field(default=[], max_length=60, description="Such as `SLA_BREACH`; repeat for several.")

    @property
    def bound(self) -> str:
        return "\x1f".join(("events", ",".join(sorted(set(self.type))), self.pipeline, self.since))


@events_router.get("/events", summary="List events", **listing(EventRecord))
async def list_events(request: Request, context: Context, query: Annotated[EventsQuery, Query()]) -> Response:
    """List events since a time, oldest first. Events of other systems need a pipeline."""
    unknown = [each for each in query.type if each not in set(EventType)]
    if unknown and not query.pipeline:
        raise WebProblem(ProblemType.BAD_REQUEST, f"there is no event type {unknown[0][:60]!r}; name a pipeline, too")
    wanted = set(query.type)
    found, following = await events_page(
        context, query, query.type or list(EventType), lambda event: not wanted or event.type in wanted
    )
    return page(request, [as_json(event_record(event)) for event in found], following)


async def events_page(
    context: ApiContext, query: EventListQuery, types: Collection[str], is_wanted: Callable[[Event], bool]
) -> tuple[list[Event], str | None]:
    """Return a page of events, oldest first, and the cursor of the rest. A page may be short.

    Without a pipeline, only the types are read; with one, all its events, also those of other systems.
    Raises `WebProblem` for a pipeline that does not exist.
    """
    start, shown = _start(query, context.clock.now())
    enough = query.limit + len(shown) + 1
    if query.pipeline:
        parts = [await _of_pipeline(context, query.pipeline, start, enough, is_wanted)]
        if not parts[0].events and query.cursor is None:
            await require_pipeline(context, query.pipeline)
    else:
        reads = [partial(_of_type, context, each, start, enough, is_wanted) for each in types]
        parts = await gather_bounded(reads)
    # Behind the end of a part that was cut, events of that part would be missing.
    end = min((part.end for part in parts if part.end is not None), default=None)
    events = in_order(event for part in parts for event in part.events if end is None or event.at <= end)
    left = [event for event in events if _name(event) not in shown]
    found = left[: query.limit]
    if len(left) > len(found):
        return found, _cursor(query, found[-1].at, found, shown, start)
    return found, None if end is None else _cursor(query, end, found, shown, start)


@dataclass(frozen=True, slots=True)
class _Part:
    """Holds events up to `end`; None: there are no more."""

    events: list[Event]
    end: datetime | None


async def _of_type(
    context: ApiContext, event_type: str, start: datetime, enough: int, is_wanted: Callable[[Event], bool]
) -> _Part:
    found, examined = list[Event](), 0
    async for stored in Events(context.tables).of_type(event_type, start):
        examined += 1
        if is_wanted(stored.event):
            found.append(stored.event)
        if len(found) == enough or examined == EXAMINED_MAX:
            return _Part(found, stored.event.at)
    return _Part(found, None)


async def _of_pipeline(
    context: ApiContext,
    pipeline: str,
    start: datetime,
    enough: int,
    is_wanted: Callable[[Event], bool],
) -> _Part:
    """Read the pipeline's partition until enough events match, no more are there, or the bound is reached."""
    tail, found, examined = Tail.starting(start), list[Event](), 0
    while True:
        read, tail = await Events(context.tables).since(pipeline, tail, context.clock.now(), _READ_MAX)
        examined += len(read)
        found += [each.event for each in read if is_wanted(each.event)]
        if not read:
            return _Part(found, None)
        if len(found) >= enough or examined >= EXAMINED_MAX:
            return _Part(found, max(each.event.at for each in read))


def _start(query: EventListQuery, now: datetime) -> tuple[datetime, frozenset[str]]:
    """Return where to begin, and the events of that very time that were shown already."""
    if query.cursor is None:
        return _time(query.since, now), frozenset()
    position = read_cursor(query.cursor, query.bound)
    at, shown = parse_rfc3339(str(position.get("at"))), position.get("shown")
    if at is None or not isinstance(shown, list):
        raise BadCursor(query.cursor)
    return at, frozenset(str(each) for each in shown)


def _cursor(query: EventListQuery, at: datetime, found: list[Event], shown: frozenset[str], start: datetime) -> str:
    """Return the cursor of what follows: events at `at` or later without those that were shown."""
    before = sorted(shown) if at == start else []
    known = [_name(event) for event in found if event.at == at]
    return write_cursor(query.bound, {"at": format_rfc3339(at), "shown": [*before, *known]})


def _name(event: Event) -> str:
    return f"{event.id}.{event.type}.{event.pipeline}"


def _time(text: str, now: datetime) -> datetime:
    age = parse_duration(text)
    at = now - abs(age) if age is not None else parse_rfc3339(text) or parse_rfc3339(f"{text}T00:00:00Z")
    if at is None:
        raise WebProblem(ProblemType.BAD_REQUEST, f"{text!r} is not a time; write 24h, 7d or 2027-03-22T06:00:00Z")
    return at
