"""`interlock reruns|replays|late-data list`: list what happened to runs, of one pipeline or of all."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen, counted, shown_time
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.model.events import EventType
from worker.core.model.given_times import time_before
from worker.core.model.ids import PipelineId
from worker.operations.records import EndRecord, as_json
from worker.operations.runs.recorded_events import RecordedKind, recorded_events, recorded_record
from worker.store.repos.pipelines import Pipelines

NOUNS = {RecordedKind.RERUN: "rerun", RecordedKind.REPLAY: "replay", RecordedKind.LATE_DATA: "late arrival"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """RecordedRequest says what to list. Without `pipeline`, of all pipelines."""

    kind: RecordedKind
    since: datetime
    pipeline: str | None
    limit: int
    as_json: bool


async def run_recorded(screen: Screen, access: StoreAccess, request: RecordedRequest) -> int:
    async with access.tables() as tables:
        found = await recorded_events(
            tables, request.kind, request.since, access.clock.now(), pipeline=request.pipeline, limit=request.limit
        )
        if not found.events and request.pipeline is not None:
            pipeline = PipelineId(request.pipeline)
            if await Pipelines(tables).get(pipeline) is None:
                return await say_unknown(screen, tables, pipeline)
    if request.as_json:
        for event in found.events:
            screen.record(recorded_record(event, request.kind))
        screen.record(as_json(EndRecord(count=len(found.events), complete=found.is_complete)))
        return Exit.DONE
    rows = [(shown_time(event.at), event.named_sentence) for event in found.events]
    screen.table(rows, styles=["red" if event.type == EventType.RERUN_REJECTED else "" for event in found.events])
    screen.line(f"{counted(len(found.events), NOUNS[request.kind])} since {shown_time(request.since)}")
    if not found.is_complete:
        screen.remark("there are or may be more; raise --limit, or choose with --pipeline or --since", style="yellow")
    return Exit.DONE


Since = Annotated[str, typer.Option("--since", metavar="TIME", help="7d, 2h, 2026-03-03 or 2026-03-03T12:00:00Z.")]
OfPipeline = Annotated[str | None, typer.Option("--pipeline", metavar="ID", help="Only of this pipeline.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="How many at most.")]


def _group(name: str, kind: RecordedKind, summary: str, about: str) -> typer.Typer:
    help_text = f"""{summary}

{about} Events are kept for 90 days. A list that is cut says so; with --json the last record is `end`, with `complete`.

\b
Examples:
  interlock {name} list
  interlock {name} list --pipeline orders-daily --since 7d
  interlock {name} list --since 30d --limit 1000 --json

{EXIT_CODES}"""
    group = typer.Typer(name=name, no_args_is_help=True, rich_markup_mode="rich", help=help_text)

    @group.callback()
    def _only_a_group() -> None:  # pyright: ignore[reportUnusedFunction]  it keeps `list` a command of its own
        return None

    @group.command("list", help=help_text)
    def _list(  # pyright: ignore[reportUnusedFunction]  the decorator registers it
        context: typer.Context,
        *,
        pipeline: OfPipeline = None,
        since: Since = "7d",
        limit: Limit = 100,
        store: StoreUrl = None,
        as_json: AsJson = False,
    ) -> None:
        async def work(screen: Screen, at: StoreAccess) -> int:
            request = RecordedRequest(
                kind=kind,
                since=time_before(since, at.clock.now()),
                pipeline=pipeline,
                limit=limit,
                as_json=as_json,
            )
            return await run_recorded(screen, at, request)

        on_store(context, store, work)

    return group


RERUNS = "List accepted and rejected reruns, latest first."
REPLAYS = "List reruns that replays requested, latest first."
LATE_DATA = "List data that changed after its run had started, latest first."

reruns_app = _group("reruns", RecordedKind.RERUN, RERUNS, "Includes those that Interlock itself requests.")
replays_app = _group("replays", RecordedKind.REPLAY, REPLAYS, "A replay is a rerun outside the budgets.")
late_data_app = _group("late-data", RecordedKind.LATE_DATA, LATE_DATA, "Each change is listed once for each content.")
