"""`interlock init`: create a folder with a first pipeline, inbox rules, a calendar and a CI file."""

import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.commands.configure.project import ProjectFile, project_files, write_project
from worker.cli.terminal.arguments import today
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import EXIT_CODES, AsJson
from worker.cli.terminal.store_session import Exit, exit_code, show_error
from worker.core.errors import ConfigError


def run_init(screen: Screen, folder: Path, files: list[ProjectFile], *, as_json: bool) -> int:
    try:
        write_project(folder, files)
    except ConfigError as error:
        show_error(screen, error)
        return exit_code(error)
    if as_json:
        for file in files:
            screen.record({"type": "file", "path": str(folder / file.path), "purpose": file.purpose})
        return Exit.DONE
    where = "this folder" if folder == Path() else str(folder)
    screen.line(f"created {counted(len(files), 'file')} in {where}", style="green")
    screen.table([(str(file.path), file.purpose) for file in files])
    show_next_steps(screen, folder)
    return Exit.DONE


def show_next_steps(screen: Screen, folder: Path) -> None:
    screen.line("\nNext:", style="bold")
    if folder != Path():
        screen.line(f"  cd {shlex.quote(str(folder))}")
    for command, comment in (
        ("interlock validate pipelines/", "check the files"),
        ("interlock run --pipelines pipelines/", "start a worker; then, in a second terminal:"),
    ):
        screen.line(f"  {command:<38}# {comment}")
    # Longer than the others, and not aligned with a comment: people copy it.
    screen.line("  interlock sensor put orders orders-export status=complete rows=1200")
    screen.line(f"  {'interlock status':<38}# the run, and its job's result")


init_app = typer.Typer()

INIT_HELP = f"""Create a folder with a first pipeline, a calendar, inbox rules and a CI file.

The pipeline is explained line by line and runs at once, with a job that prints a line. Editors complete and check the \
files with the schemas beside them. The CI file is a GitHub Actions workflow that validates every change. No file is \
ever replaced: if one exists, the command names it and writes nothing.

\b
Examples:
  interlock init
  interlock init my-pipelines
  interlock init my-pipelines --json

{EXIT_CODES}"""


@init_app.command("init", help=INIT_HELP)
def init(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where; it is made if needed.", show_default="this folder")
    ] = Path(),
    *,
    as_json: AsJson = False,
) -> None:
    files = list(project_files(today(context), version("interlock")))
    raise typer.Exit(run_init(Screen(), folder, files, as_json=as_json))
