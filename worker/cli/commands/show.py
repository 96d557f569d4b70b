"""The words of the commands that show what is: `explain`, `status`, `events` and `history`."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from worker.cli.commands.events import EventsRequest, event_types, follow_events, run_events
from worker.cli.commands.explain import ExplainQuery, run_explain
from worker.cli.commands.history import run_history
from worker.cli.commands.status import StatusRequest, run_status, watch_status
from worker.cli.terminal.arguments import PipelineArgument, ScheduleOption, read_period, time_before
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, Exit, StoreAccess, StoreUrl, on_store
from worker.core.model.pipeline import PipelineId

reading_app = typer.Typer()

EXPLAIN_HELP = f"""Say why a pipeline runs or does not: every gate in order, and the smallest change that makes it run.

The gates are the configuration, schedule, calendar, pause, trigger, run, rules, budgets and deadline. Each condition \
shows the value seen and the value wanted. Without PERIOD it is that of the active run (of several, the newest; the \
others are named), else the last one that ran or was expected.

\b
Examples:
  interlock explain orders-daily
  interlock explain orders-daily 2026-03-03
  interlock explain orders-daily 2026-03-03 --json | jq .needed

{EXIT_CODES}"""

STATUS_HELP = f"""Show where runs stand, failures first: state, since when, attempt, deadline, and what each waits for.

Without PIPELINE: everything active, and what ended on the last days. With it: the latest periods of its schedules. \
Nothing is scanned; lists may lag behind by a moment.

\b
Examples:
  interlock status
  interlock status orders-daily --watch
  interlock status --json | jq 'select(.kind == "failed")'

{EXIT_CODES}"""

EVENTS_HELP = f"""Show what was told, oldest first: the last 24 hours unless --since says otherwise.

\b
Examples:
  interlock events --since 2h
  interlock events --pipeline orders-daily --follow
  interlock events --type SLA_BREACH --type JOB_FAILED --since 168h --json

{EXIT_CODES}"""

HISTORY_HELP = f"""Show everything that was recorded about one run, in order: events, job log, reruns, state, deadline.

Without PERIOD it is that of the active run (of several, the newest; the others are named), else the last one that ran \
or was expected. The job log and reruns are kept 30 days, events 90, the run itself 400.

\b
Examples:
  interlock history orders-daily
  interlock history orders-daily 2026-03-03 --schedule cron
  interlock history orders-daily 2026-03-03 --json | jq .what

{EXIT_CODES}"""

MaybePeriod = Annotated[
    str | None, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")
]


@reading_app.command(help=EXPLAIN_HELP)
def explain(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: MaybePeriod = None,
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_explain(screen, at, _question(pipeline, period, schedule), as_json=as_json)

    on_store(context, store, work)


@reading_app.command(help=STATUS_HELP)
def status(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Argument(metavar="PIPELINE", help="Only this pipeline.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every 2 seconds, until Ctrl-C.")] = False,
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=30, help="How many days of ended runs, today included.")
    ] = 2,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="How many runs of each kind at most.")] = 50,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None
    request = StatusRequest(pipeline=name, days=days, limit=limit, as_json=as_json)
    show = watch_status if watch else run_status
    _until_interrupted(context, store, lambda screen, at: show(screen, at, request))


@reading_app.command(help=EVENTS_HELP)
def events(
    context: typer.Context,
    *,
    pipeline: Annotated[str | None, typer.Option(metavar="ID", help="Only of this pipeline.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only of this type; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="2h, 2026-03-03 or 2026-03-03T12:00:00Z.")] = "24h",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
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

    _until_interrupted(context, store, work)


@reading_app.command(help=HISTORY_HELP)
def history(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: MaybePeriod = None,
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_history(screen, at, _question(pipeline, period, schedule), as_json=as_json)

    on_store(context, store, work)


def _question(pipeline: str, period: str | None, schedule: str | None) -> ExplainQuery:
    meant = read_period(period) if period else None
    return ExplainQuery(pipeline=PipelineId(pipeline), period=meant, schedule=schedule)


def _until_interrupted(
    context: typer.Context, url: str | None, work: Callable[[Screen, StoreAccess], Awaitable[int]]
) -> None:
    """Ctrl-C is how a command that goes on for ever is meant to end."""
    try:
        on_store(context, url, work)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.DONE) from None
