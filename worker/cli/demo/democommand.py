"""The words of `interlock demo`."""

from pathlib import Path
from typing import Annotated

import typer

from worker.cli.demo.demo import run_demo
from worker.cli.demo.folder import FolderRequest
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, told
from worker.runtime.clock import Clock

demo_app = typer.Typer()

DEMO_HELP = f"""See Interlock at work, on this machine alone: a small lake of three pipelines, with real jobs.

In under a minute: data that is not good enough yet, a start, a retry, an SLA warning, late data, a rerun after drift, \
a dry run. It leaves a store to explore. Everything is in one directory, ./interlock-demo unless --dir says otherwise; \
where there is no terminal to ask on, a new one.

\b
Examples:
  interlock demo
  interlock demo --dir /tmp/demo
  interlock demo --yes

{EXIT_CODES}"""


@demo_app.command("demo", help=DEMO_HELP)
def demo(
    context: typer.Context,
    *,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where to play.", show_default="./interlock-demo")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace an earlier demo without asking.")] = False,
) -> None:
    screen = Screen()
    clock: Clock = context.obj
    request = FolderRequest(directory=directory, consent=Consent.by_option(yes))
    raise typer.Exit(told(screen, lambda: run_demo(screen, clock, request)))
