"""The words of `interlock schedule`."""

from typing import Annotated

import typer

from worker.cli.commands.schedule import NextRequest, run_missed, run_next
from worker.cli.terminal.arguments import time_before
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store
from worker.core.model.pipeline import PipelineId

schedule_app = typer.Typer(
    name="schedule",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="See the times of the schedules in the store: which come next, and which passed without their run.",
)

NEXT_HELP = f"""Show the next time of every schedule that has a cron, soonest first, and what keeps it from starting.

Times are those of the store; `interlock plan` shows those of files. With PIPELINE: the next ten of each schedule, \
those that a calendar leaves out included.

\b
Examples:
  interlock schedule next
  interlock schedule next orders-daily --count 30
  interlock schedule next --json | jq 'select(.sentence)'

{EXIT_CODES}"""

MISSED_HELP = f"""Show runs whose time came and that were never begun, each with the reason as far as it is known.

A schedule's `misfire` says which of the times that passed are made up for; dates that a calendar leaves out are not \
missed. Exit code 1 if any is.

\b
Examples:
  interlock schedule missed
  interlock schedule missed orders-daily --since 168h
  interlock schedule missed --since 2026-03-01 --json | jq .sentence

{EXIT_CODES}"""

PipelineName = Annotated[str | None, typer.Argument(metavar="PIPELINE", help="Only this pipeline.")]


@schedule_app.command("next", help=NEXT_HELP)
def show_next(
    context: typer.Context,
    pipeline: PipelineName = None,
    *,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=1000, help="How many times of each schedule.", show_default="1, or 10 of a PIPELINE"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many times in all.")] = 100,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None
    request = NextRequest(pipeline=name, each=count, limit=limit, as_json=as_json)
    on_store(context, store, lambda screen, at: run_next(screen, at, request))


@schedule_app.command("missed", help=MISSED_HELP)
def show_missed(
    context: typer.Context,
    pipeline: PipelineName = None,
    *,
    since: Annotated[str, typer.Option(metavar="TIME", help="24h, 2026-03-03 or 2026-03-03T12:00:00Z.")] = "24h",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None

    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_missed(screen, at, name, time_before(since, at.clock.now()), as_json=as_json)

    on_store(context, store, work)
