"""`interlock migrate`: check the Lambda edition's tables, compare a shadow, accept cron starts."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.commands.migrate_check import PipelineSelector, run_accept, run_check
from worker.cli.commands.migrate_compare import CompareRequest, run_compare
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.core.model.ids import PipelineId
from worker.runtime.clock import Clock

migrate_app = typer.Typer(
    name="migrate",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Migrate in place from the Lambda edition: check, shadow, cut over.

Tables of the Lambda edition have no list of pipelines. Name them, or give the directory of their files; --read-all \
reads the whole control table once and shows the cost first.""",
)

CHECK_HELP = """Report which existing pipelines are understood, changed or rejected (read-only).

Checks the configuration, the sensors, the runs and the rerun requests of each pipeline, at most the latest 5,000 of \
each kind.

\b
Examples:
  interlock migrate check orders-daily --store dynamodb://prod-interlock
  interlock migrate check --files pipelines/ --quiet
  interlock migrate check --read-all --json | jq 'select(.weight=="refused")'

\b
Exit codes:
  0  everything means the same here
  1  something changes or is refused, or no pipeline was found
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer: try again later
"""

ACCEPT_HELP = f"""Take over pipelines of the Lambda edition: list them and start their cron runs.

Until then, Interlock starts no cron runs of pipelines that are older than this installation, because the Lambda \
edition started none. Cron times before this moment are not caught up. Safe to repeat.

\b
Examples:
  interlock migrate accept orders-daily
  interlock migrate accept --files pipelines/ --dry-run
  interlock migrate accept --files pipelines/ --keep-cron-silent

{EXIT_CODES}"""

COMPARE_HELP = f"""Compare what shadow mode decided with what the old system did, run by run.

Run a worker with INTERLOCK_SHADOW=1 alongside the old system first. Runs that the old system started before the \
shadow worker are left out. Shows the runs that differ; --all shows every run.

\b
Examples:
  interlock migrate compare --files pipelines/
  interlock migrate compare orders-daily --days 14 --all
  interlock migrate compare --listed --json | jq .result

{EXIT_CODES}"""

Names = Annotated[list[str] | None, typer.Argument(metavar="PIPELINE", help="Ids of pipelines.", show_default=False)]
Files = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="The pipelines that have a file in this directory."),
]
Listed = Annotated[bool, typer.Option("--listed", help="The pipelines that the store lists already.")]
ReadAll = Annotated[
    bool, typer.Option("--read-all", help="Find them by reading the whole control table once; shows the cost.")
]


@migrate_app.command("check", help=CHECK_HELP)
def check_command(
    context: typer.Context,
    names: Names = None,
    *,
    files: Files = None,
    listed: Listed = False,
    read_all: ReadAll = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what changes or is refused.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    which = _which(names, files, listed=listed, read_all=read_all)
    on_store(context, store, lambda screen, at: run_check(screen, at, which, quiet=quiet, as_json=as_json))


@migrate_app.command("accept", help=ACCEPT_HELP)
def accept_command(
    context: typer.Context,
    names: Names = None,
    *,
    files: Files = None,
    listed: Listed = False,
    read_all: ReadAll = False,
    keep_cron_silent: Annotated[
        bool, typer.Option("--keep-cron-silent", help="Only have them listed; cron still starts nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    which = _which(names, files, listed=listed, read_all=read_all)
    on_store(
        context,
        store,
        lambda screen, at: run_accept(
            screen, at, which, keep_silent=keep_cron_silent, dry_run=dry_run, as_json=as_json
        ),
    )


@migrate_app.command("compare", help=COMPARE_HELP)
def compare(
    context: typer.Context,
    names: Names = None,
    *,
    files: Files = None,
    listed: Listed = False,
    read_all: ReadAll = False,
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=90, help="How many days back, by the runs' periods.")
    ] = 7,
    show_all: Annotated[bool, typer.Option("--all", help="Also what they agree on.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    clock: Clock = context.obj
    # In some time zone it is tomorrow already.
    last = clock.now().date() + timedelta(days=1)
    request = CompareRequest(
        which=_which(names, files, listed=listed, read_all=read_all),
        first=last - timedelta(days=days + 1),
        last=last,
        show_all=show_all,
        as_json=as_json,
    )
    on_store(context, store, lambda screen, at: run_compare(screen, at, request))


def _which(names: list[str] | None, files: Path | None, *, listed: bool, read_all: bool) -> PipelineSelector:
    named = [PipelineId(name) for name in names or []]
    return PipelineSelector(named=named, files=files, listed=listed, read_all=read_all)
