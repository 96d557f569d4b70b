"""Who uses a command: named with `--as`, otherwise by the user name of the process."""

from typing import Annotated

import typer

from worker.core.errors import ConfigError
from worker.operations.operator_actions import Requester

NAME_MAX = 100
VIA = "cli"

AsWho = Annotated[
    str | None, typer.Option("--as", metavar="WHO", help="Who asks; recorded.", show_default="your user name")
]


def author_of(name: str | None) -> Requester:
    """Return who asks. Raises `ConfigError` for a name that is empty or too long."""
    if name is None:
        import getpass  # noqa: PLC0415  few commands need it

        try:
            name = getpass.getuser()
        except (OSError, KeyError):  # a container may run under a user id without a name
            name = "unknown"
    if not 0 < len(name.strip()) <= NAME_MAX:
        raise ConfigError(f"--as must have 1 to {NAME_MAX} characters, got {len(name)}; name a person or a program")
    return Requester(name=name.strip(), via=VIA)
