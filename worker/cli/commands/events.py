"""`interlock events`: list the recorded events of runs, and follow new ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen, counted, shown_time
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store_until_interrupted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.truncation import Truncation
from worker.config.suggestions import suggest
from worker.core.errors import ConfigError
from worker.core.model.events import Event, EventType, shown_type
from worker.core.model.given_times import time_before
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.operations.runs.events import EventReader
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

FOLLOW_S = 2.0
SHOW_OTHERS = "raise --limit, or choose with --type, --pipeline or --since"
BAD_NEWS = ("FAIL", "EXHAUST", "BREACH", "MISSED", "TIMEOUT", "ORPHAN", "UNKNOWN", "REJECTED", "EXPIRED", "DEGRADED")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRequest:
    """EventsRequest says which events to show.

    `limit` bounds the past events; new events are all shown while following.
    """

    since: datetime
    pipeline: str | None
    types: tuple[str, ...]
    limit: int
    as_json: bool


def event_types(names: Sequence[str], *, any_name: bool) -> tuple[str, ...]:
    """Return the event types to select.

    With `any_name` (a pipeline is given), types of foreign events are allowed too. Raises `ConfigError` for a type that
    does not exist.
    """
    wanted = tuple(name.upper() if name.upper() in set(EventType) else name for name in names)
    unknown = [name for name in wanted if name not in set(EventType)]
    if unknown and not any_name:
        others = "the runbook lists ours, and with --pipeline those of others are found"
        hint = suggest(unknown[0].upper(), list(EventType)) or others
        raise ConfigError(f"there is no event type {unknown[0]}; {hint}")
    return wanted


async def run_events(screen: Screen, access: StoreAccess, request: EventsRequest) -> int:
    async with access.tables() as tables:
        reader = EventReader(tables, request.since, pipeline=request.pipeline, types=request.types)
        events = await reader.news(access.clock.now())
        if not events and await _is_unknown(tables, request):
            return await say_unknown(screen, tables, PipelineId(request.pipeline or ""))
    show_past(screen, events, request)
    return Exit.DONE


async def follow_events(screen: Screen, access: StoreAccess, request: EventsRequest) -> int:
    """Show the past events, then new ones as they arrive, until the user presses Ctrl-C."""
    async with access.tables() as tables:
        reader = EventReader(tables, request.since, pipeline=request.pipeline, types=request.types)
        events = await reader.news(access.clock.now())
        if not events and await _is_unknown(tables, request):
            return await say_unknown(screen, tables, PipelineId(request.pipeline or ""))
        show_past(screen, events, request, is_following=True)
        while True:
            await access.clock.sleep(FOLLOW_S)
            show_events(screen, await reader.news(access.clock.now()), as_json=request.as_json)


async def _is_unknown(tables: Tables, request: EventsRequest) -> bool:
    """Return whether the named pipeline is not in the store.

    Events outlive their pipeline, so its name counts as mistyped only if it has no events either.
    """
    return request.pipeline is not None and await Pipelines(tables).get(PipelineId(request.pipeline)) is None


def show_past(screen: Screen, events: Sequence[Event], request: EventsRequest, *, is_following: bool = False) -> None:
    shown = events[-request.limit :]
    show_events(screen, shown, as_json=request.as_json)
    if len(shown) < len(events):
        left_out = counted(len(events) - len(shown), "earlier event")
        screen.remark(f"{left_out} not shown: {SHOW_OTHERS}", "yellow")
        if request.as_json:
            screen.record(Truncation(what="events", shown=len(shown), total=len(events), hint=SHOW_OTHERS).record)
    if not request.as_json and not is_following:
        some = f", the latest {len(shown):,} shown" if len(shown) < len(events) else ""
        screen.line(f"{counted(len(events), 'event')} since {format_rfc3339(request.since)}{some}")


def show_events(screen: Screen, events: Sequence[Event], *, as_json: bool) -> None:
    if as_json:
        for event in events:
            screen.record(record_of(event))
    elif events:
        rows = [row_of(event) for event in events]
        screen.table(rows, styles=["red" if is_bad_news(event) else "" for event in events], indent=0)
    screen.out.file.flush()  # a reader of a pipe must see each event at once, not when the buffer is full


def is_bad_news(event: Event) -> bool:
    return any(word in event.type for word in BAD_NEWS)


def row_of(event: Event) -> tuple[str, str, str]:
    return shown_time(event.at), shown_type(event.type), event.named_sentence


def record_of(event: Event) -> dict[str, Json]:
    return {
        "type": "event",
        "id": event.id,
        "eventType": event.type,
        "at": format_rfc3339(event.at),
        "pipeline": event.pipeline,
        "schedule": event.schedule,
        "period": event.period,
        "message": event.message,
        "detail": dict(event.detail),
    }


events_app = typer.Typer()

EVENTS_HELP = f"""List events, oldest first (default: last 24 hours).

\b
Examples:
  interlock events --since 2h
  interlock events --pipeline orders-daily --follow
  interlock events --type SLA_BREACH --type JOB_FAILED --since 168h --json

{EXIT_CODES}"""


@events_app.command(help=EVENTS_HELP)
def events(
    context: typer.Context,
    *,
    pipeline: Annotated[str | None, typer.Option(metavar="ID", help="Only of this pipeline.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only of this type; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="2h, 7d, 2026-03-03 or 2026-03-03T12:00:00Z.")] = "24h",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="How many past events at most.")] = 500,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        request = EventsRequest(
            since=time_before(since, at.clock.now()),
            pipeline=pipeline,
            types=event_types(kind or [], any_name=pipeline is not None),
            limit=limit,
            as_json=as_json,
        )
        return await (follow_events if follow else run_events)(screen, at, request)

    on_store_until_interrupted(context, store, work)
