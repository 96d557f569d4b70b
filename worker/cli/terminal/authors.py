"""Who uses a command: named with `--as`, otherwise by the user name of the process."""

from typing import Annotated

import typer

from worker.cli.terminal.arguments import read_requester
from worker.operations.operator_actions import Requester

VIA = "cli"

AsWho = Annotated[
    str | None, typer.Option("--as", metavar="WHO", help="Who asks; recorded.", show_default="your user name")
]


def author_of(name: str | None) -> Requester:
    """Return who asks. Raises `ConfigError` for a name that cannot be recorded."""
    return Requester(name=read_requester(name), via=VIA)
