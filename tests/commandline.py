"""Run the `interlock` command in this process, on a clock that stands still."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

from typer import testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.manualclock import ManualClock
from worker.cli.main import app
from worker.runtime.clock import Clock

TODAY = datetime(2027, 3, 22, 12, tzinfo=UTC)

# The runner makes all commands anew for each call, which takes twice as long as most of them take to run.
testing.__dict__["_get_command"] = cache(get_command)


def interlock(*arguments: object, typed: str | None = None, clock: Clock | None = None) -> Result:
    """Run a command; `typed` is what comes in by standard input."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, input=typed, obj=clock or ManualClock(TODAY))


def records(output: str) -> list[dict[str, Any]]:
    """What a command with --json printed."""
    return [json.loads(line) for line in output.splitlines()]
