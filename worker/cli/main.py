"""The `interlock` command: one program made of all commands, each in a module of its own."""

from importlib.metadata import version
from typing import Annotated

import typer

from worker.cli.commands.dlq import dlq_app
from worker.cli.commands.doctor import doctor_app
from worker.cli.commands.events import events_app
from worker.cli.commands.explain import explain_app
from worker.cli.commands.history import history_app
from worker.cli.commands.inbox import inbox_app
from worker.cli.commands.leases import leases_app
from worker.cli.commands.migrate import migrate_app
from worker.cli.commands.pipelines import pipelines_app
from worker.cli.commands.requests import asking_app
from worker.cli.commands.run import run_app
from worker.cli.commands.schedule import schedule_app
from worker.cli.commands.schema import schema_app
from worker.cli.commands.sensors import sensor_app
from worker.cli.commands.status import status_app
from worker.cli.commands.store import store_app
from worker.cli.commands.validate import validate_app
from worker.cli.commands.watchdog import watchdog_app
from worker.cli.demo.demo import demo_app
from worker.cli.plan.command import plan_app
from worker.cli.terminal.console import OutputFailed, Screen
from worker.cli.terminal.help import PlainGroup
from worker.cli.terminal.store_access import exit_code, show_error
from worker.runtime.clock import SystemClock

app = typer.Typer(
    name="interlock",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""A safety controller for data pipelines: starts jobs only when declarative rules hold, and says why.

Begin with [bold]interlock demo[/bold]; each command has its own --help, with examples.""",
)
for _each in (
    demo_app, run_app, store_app, pipelines_app, sensor_app, inbox_app, dlq_app, leases_app, schedule_app, watchdog_app,
    migrate_app, doctor_app, explain_app, status_app, events_app, history_app, asking_app, validate_app, schema_app,
    plan_app,
):  # fmt: skip
    app.add_typer(_each)


def _show_version(wanted: bool) -> None:
    if wanted:
        Screen().line(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def interlock(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_show_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Options that belong to no command."""


def main() -> None:
    screen = Screen()
    try:
        try:
            app(obj=SystemClock())
        finally:
            screen.flush()  # results have arrived before the exit code says so
    except OutputFailed as failed:
        show_error(screen, failed)
        raise SystemExit(exit_code(failed)) from None
