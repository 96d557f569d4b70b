"""Run the `interlock` command in this process, on a clock that stands still."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

import typer
from typer import testing
from typer.main import get_command, get_group
from typer.testing import CliRunner, Result

from tests.support.clock.manual import ManualClock
from tests.support.pages.record_meanings import undocumented
from worker.cli.app import app
from worker.cli.catalogue import PAGE
from worker.cli.terminal import help as help_pages
from worker.cli.terminal.help import load_command
from worker.runtime.clock import Clock

TODAY = datetime(2027, 3, 22, 12, tzinfo=UTC)

# The runner makes all commands anew for each call, which takes twice as long as most of them take to run. So does what
# loads the one that is invoked: those of `runs` take 7 ms.
testing.__dict__["_get_command"] = cache(get_command)
help_pages.__dict__["get_group"] = cache(get_group)


def interlock(*arguments: object, typed: str | None = None, clock: Clock | None = None) -> Result:
    """Run a command; `typed` is what comes in by standard input."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words, input=typed, obj=clock or ManualClock(TODAY))
    assert undocumented(words, result.stdout) == [], "describe the record in tests/support/pages/record_meanings.py"
    return result


@cache
def loaded_commands() -> dict[str, Any]:
    """Every command and group, each loaded as if it were invoked."""
    context = typer.Context(get_command(app))
    return {name: load_command(entry, context) for name, entry in PAGE.entries.items()}


def records(output: str) -> list[dict[str, Any]]:
    """What a command with --json printed."""
    return [json.loads(line) for line in output.splitlines()]
