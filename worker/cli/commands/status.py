"""`interlock status`: show active and recent runs."""

from typing import Annotated

import typer

from worker.cli.commands.status_table import DAYS, LIMIT, StatusRequest, show_runs
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl
from worker.core.model.ids import PipelineId

status_app = typer.Typer()

STATUS_HELP = f"""Show active and recent runs, failures first.

A run is waiting, paused, starting, running, stopping, completed, failed, cancelled, missed or a dry run. Without \
PIPELINE: all active runs, and those that ended in the last days. With it: the latest periods of its schedules. Both \
list missed runs: the watchdog reported in the last days that the run did not start, and it still does not exist. \
`interlock schedule missed` gives the reason.

Ended runs count by calendar day in UTC, missed runs by the hour: with --days 2, those that were reported in the last \
48 hours.

\b
Examples:
  interlock status
  interlock status orders-daily --watch
  interlock status --json | jq 'select(.kind == "failed")'

{EXIT_CODES}"""


@status_app.command(help=STATUS_HELP)
def status(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Argument(metavar="PIPELINE", help="Only this pipeline.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 seconds, until Ctrl-C.")] = False,
    days: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=30, help="How many days of ended runs, including today, and of missed runs."
        ),
    ] = DAYS,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="How many runs of each kind at most.")
    ] = LIMIT,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None
    request = StatusRequest(pipeline=name, days=days, limit=limit, as_json=as_json)
    raise typer.Exit(show_runs(context.obj, store, request, watch=watch))
