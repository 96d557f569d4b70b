"""Run the `interlock` command in this process, on a clock that stands still."""

from datetime import UTC, datetime

from typer.testing import CliRunner, Result

from tests.manualclock import ManualClock
from worker.cli.main import app

TODAY = datetime(2027, 3, 22, 12, tzinfo=UTC)


def interlock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], obj=ManualClock(TODAY))
