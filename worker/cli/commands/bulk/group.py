"""`interlock runs`: the commands about many runs, and about runs as records."""

import typer

from worker.cli.commands.bulk.deletion import deletion_app
from worker.cli.commands.bulk.requests import bulk_app
from worker.cli.terminal.store_access import EXIT_CODES

runs_app = typer.Typer(
    name="runs",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help=f"""Find, rerun, cancel and delete runs.

\b
Examples:
  interlock runs rerun --state failed --since 1d --reason "warehouse is back"
  interlock runs cancel --state waiting --pipeline "orders-*" --reason "no data today"
  interlock runs delete orders-daily 2026-03-03 --reason "test data"

{EXIT_CODES}""",
)
runs_app.add_typer(bulk_app)
runs_app.add_typer(deletion_app)
