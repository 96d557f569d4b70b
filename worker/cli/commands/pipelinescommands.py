"""The words of `interlock pipelines`."""

from pathlib import Path
from typing import Annotated

import typer

from worker.cli.commands.pipelines import run_list, run_remove, run_show
from worker.cli.commands.push import PushRequest, run_push
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock

pipelines_app = typer.Typer(
    name="pipelines",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Put pipelines into the store, and see what is in it.",
)

PUSH_HELP = f"""Bring the store to what the files say: check them, show what changes, ask, write only what changes.

Files are checked strictly, and nothing is written if any has an error. Runs under way finish with the configuration \
they began with. A pipeline without a file stays in the store: `interlock pipelines remove` takes it out.

\b
Examples:
  interlock pipelines push pipelines/ --dry-run
  interlock pipelines push pipelines/orders-daily.yaml --yes
  interlock pipelines push pipelines/ --yes --json

{EXIT_CODES}"""

LIST_HELP = f"""List the pipelines in the store: version, job, schedules, owner, and what is paused or in dry run.

\b
Examples:
  interlock pipelines list
  interlock pipelines list --json
  interlock pipelines list --store sqlite:///interlock.db

{EXIT_CODES}"""

SHOW_HELP = f"""Show the configuration in force as a file that can be edited and pushed again.

Calendars it uses are written into it.

\b
Examples:
  interlock pipelines show orders-daily
  interlock pipelines show orders-daily --json
  interlock pipelines show orders-daily --yaml

{EXIT_CODES}"""

REMOVE_HELP = f"""Take a pipeline out of the store, so that no new run of it starts.

Its runs, events, sensors and earlier versions stay. Push its file to bring it back.

\b
Examples:
  interlock pipelines remove orders-daily --yes
  interlock pipelines remove fraud-scores --yes --json
  interlock pipelines remove payment-files -y

{EXIT_CODES}"""

Id = Annotated[str, typer.Argument(metavar="ID", help="The pipeline's id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]


@pipelines_app.command(help=PUSH_HELP)
def push(
    context: typer.Context,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", exists=True, help="Pipeline files, or directories of them.")
    ],
    *,
    calendars: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="beside PATH"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    yes: Yes = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    clock: Clock = context.obj
    sources = Sources(paths=paths, calendars=calendars, today=clock.now().date())
    request = PushRequest(sources=sources, consent=Consent.by_option(yes), dry_run=dry_run, as_json=as_json)
    on_store(context, store, lambda screen, at: run_push(screen, at, request))


@pipelines_app.command("list", help=LIST_HELP)
def list_pipelines(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: run_list(screen, at, as_json=as_json))


@pipelines_app.command(help=SHOW_HELP)
def show(
    context: typer.Context,
    pipeline: Id,
    *,
    as_json: Annotated[bool, typer.Option("--json/--yaml", help="The form of the file.")] = False,
    store: StoreUrl = None,
) -> None:
    on_store(context, store, lambda screen, at: run_show(screen, at, PipelineId(pipeline), as_json=as_json))


@pipelines_app.command(help=REMOVE_HELP)
def remove(
    context: typer.Context, pipeline: Id, *, yes: Yes = False, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    consent, name = Consent.by_option(yes), PipelineId(pipeline)
    on_store(context, store, lambda screen, at: run_remove(screen, at, name, consent=consent, as_json=as_json))
