"""Declare the options about the store that commands share, and run a command's work on the store."""

from typing import Annotated

import typer

from worker.cli.terminal.store_session import Work, work_on_store, work_until_interrupted

EXIT_CODES = """\b
Exit codes:
  0  done
  1  problems were found; the output says which
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer: try again later
"""
RUN_EXIT_CODES = f"""{EXIT_CODES}  4  nobody reads its output or its log any more: it stopped in order
"""

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="sqlite:///PATH, dynamodb://PREFIX?region=REGION or redis://HOST:PORT/DB.",
        show_default="INTERLOCK_STORE, else sqlite:///interlock.db",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one record a line, for programs.")]


def on_store(context: typer.Context, url: str | None, work: Work) -> None:
    """Run a command's work on its store and exit with its exit code."""
    raise typer.Exit(work_on_store(context.obj, url, work))


def on_store_until_interrupted(context: typer.Context, url: str | None, work: Work) -> None:
    """Run as `on_store`; Ctrl-C is the normal end of a command that does not end by itself."""
    raise typer.Exit(work_until_interrupted(context.obj, url, work))
