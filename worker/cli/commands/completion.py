"""`interlock completion`: print the script with which a shell completes commands and options."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import shell_complete

from worker.cli.terminal.help import COMPLETION_VARIABLE, PROGRAM, register_shells


class CompletionShell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


completion_app = typer.Typer()

COMPLETION_HELP = """Print a completion script for bash, zsh or fish.

Load it in your shell's start-up file. The shell asks `interlock` itself, so the script stays valid after an upgrade.

\b
Examples:
  echo 'eval "$(interlock completion bash)"' >> ~/.bashrc
  echo 'eval "$(interlock completion zsh)"' >> ~/.zshrc
  interlock completion fish > ~/.config/fish/completions/interlock.fish

\b
Exit codes:
  0  printed
  2  the command itself was wrong
"""


@completion_app.command(help=COMPLETION_HELP)
def completion(
    context: typer.Context,
    shell: Annotated[CompletionShell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    register_shells()
    root = context.find_root().command
    raise typer.Exit(shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, f"source_{shell}"))
