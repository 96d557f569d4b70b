"""The words of `interlock doctor`."""

from typing import Annotated

import typer

from worker.cli.commands.doctor import run_doctor
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store

doctor_app = typer.Typer()

DOCTOR_HELP = """Look at everything a worker with these settings needs, and change nothing.

Run it where a worker runs, with its environment and its role. SQLite: the disk, the file, its layout and its log. \
AWS: credentials, clock, tables, indexes, expiry, streams, bus, rules, queues, and each right, by a call that reads \
what is not there or writes what a condition forbids; --json says for each what was done. One message of a queue may \
be received without being kept.

\b
Examples:
  interlock doctor
  interlock doctor --quiet
  interlock doctor --json | jq 'select(.health == "fail")'

\b
Exit codes:
  0  nothing is wrong; something may be worth a look
  1  something is wrong, and the output says what to do
  2  the command or the settings are wrong
"""


@doctor_app.command("doctor", help=DOCTOR_HELP)
def doctor(
    context: typer.Context,
    *,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what is not as it should be.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_doctor(screen, at, quiet=quiet, as_json=as_json))
