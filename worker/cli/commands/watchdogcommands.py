"""The words of `interlock watchdog`."""

from typing import Annotated

import typer

from worker.cli.commands.watchdog import PassRequest, run_watchdog
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store

watchdog_app = typer.Typer(
    name="watchdog",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""What did not happen: see it and have it told, without waiting for the next round.

The worker that holds the scheduler's duty makes a round every minute. A round by hand is safe beside it: each alert \
is told once, whoever finds it first.""",
)

RUN_HELP = f"""Make one round of the watchdog now, and show what each check found.

With --dry-run nothing is told or changed. What is found counts from the last round of the workers on. Runs that are \
begun by it, and jobs, are taken up by a worker within a minute.

\b
Examples:
  interlock watchdog run --dry-run
  interlock watchdog run --check missed-schedules --check trigger-deadlines
  interlock watchdog run --json | jq 'select(.problems | length > 0)'

{EXIT_CODES}"""


@watchdog_app.command("run", help=RUN_HELP)
def run(
    context: typer.Context,
    *,
    check: Annotated[
        list[str] | None, typer.Option("--check", metavar="NAME", help="Only this check; may be said more than once.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Find, and do nothing about it.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    request = PassRequest(checks=check or [], dry_run=dry_run, as_json=as_json)
    on_store(context, store, lambda screen, at: run_watchdog(screen, at, request))


@watchdog_app.callback()
def watchdog() -> None:
    """A group of its own, so that more commands may follow."""
