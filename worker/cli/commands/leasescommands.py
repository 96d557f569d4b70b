"""The words of `interlock leases`."""

from typing import Annotated

import typer

from worker.cli.commands.leases import run_leases
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store

leases_app = typer.Typer()

LEASES_HELP = f"""Show who works on what: every worker, every lease with its holder and how far it got, and the plan.

Leases are shards of streams, change feeds, groups of active runs, and duties that one worker has at a time. All \
workers make the same plan from the same rows; `plan` says what it does about each lease, and why. "Done up to" is the \
time of the last record that is done: while nothing comes it grows old, and that is no lag. Where workers have \
different duties, a lease goes to those that have its duty.

\b
Examples:
  interlock leases
  interlock leases stream.control
  interlock leases --json | jq 'select(.type == "lease" and .holder == null)'

{EXIT_CODES}"""


@leases_app.command(help=LEASES_HELP)
def leases(
    context: typer.Context,
    stream: Annotated[str | None, typer.Argument(metavar="STREAM", help="Only the leases of one stream.")] = None,
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_leases(screen, at, stream, as_json=as_json))
