"""Define the `interlock` Typer application, which loads each command when it is invoked."""

from typing import Annotated, ClassVar

import typer

from worker.cli.catalogue import PAGE
from worker.cli.terminal.command_list import RootPage
from worker.cli.terminal.console import Screen
from worker.cli.terminal.help import LazyGroup
from worker.cli.version import version_line


class InterlockCommands(LazyGroup):
    page: ClassVar[RootPage] = PAGE


app = typer.Typer(
    name="interlock",
    cls=InterlockCommands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        Screen().document(version_line())
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
