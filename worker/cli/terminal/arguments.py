"""Read the periods, schedules, reasons and times that are given on the command line."""

import getpass
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from worker.core.errors import ConfigError
from worker.core.model.pipeline import Pipeline, Schedule, ScheduleId
from worker.core.time.periods import Period
from worker.runtime.clock import Clock

REASON_MAX = 500
REQUESTER_MAX = 100


def read_period(text: str) -> Period:
    """Read a period in either spelling. Raises `ConfigError` if the text is not a period."""
    period = Period.parse(text) or Period.parse_compact(text)
    if period is None:
        raise ConfigError(f"{text!r} is not a period; write 2026-03-03, 2026-03-03T07 or 2026-03-03T0730")
    return period


def chosen_schedules(pipeline: Pipeline, name: str | None) -> tuple[Schedule, ...]:
    """Return the named schedule, or all if `name` is None. Raises `ConfigError` if it is unknown."""
    if name is None:
        return pipeline.schedules
    from worker.operations.explain.load import schedule_of  # noqa: PLC0415  it loads everything that explains a run

    return (schedule_of(pipeline, ScheduleId(name)),)


def chosen_schedule(pipeline: Pipeline, name: str | None) -> Schedule:
    """Return the only or the named schedule.

    Raises `ConfigError` if the pipeline has several schedules and `name` is None, or if the name is unknown.
    """
    first, *others = chosen_schedules(pipeline, name)
    if others:
        names = ", ".join(schedule.id for schedule in (first, *others))
        raise ConfigError(f"pipeline {pipeline.id} has several schedules: {names}; name one with --schedule")
    return first


def read_reason(text: str) -> str:
    """Return the reason without outer spaces. Raises `ConfigError` if it is empty or too long."""
    reason = text.strip()
    if not 0 < len(reason) <= REASON_MAX:
        raise ConfigError(f"a reason has 1 to {REASON_MAX} characters, not {len(reason)}; state it in a sentence")
    return reason


def read_requester(text: str | None) -> str:
    """Return who makes a request: the name given, else the name of the user account.

    Raises `ConfigError` if the name is empty, too long or not one line, or if the account has no name.
    """
    if text is None:
        try:
            text = getpass.getuser()
        except (OSError, KeyError) as error:  # Python 3.13 raises OSError where earlier versions raise KeyError
            raise ConfigError("this user account has no name; say who you are with --as") from error
    name = text.strip()
    if not 0 < len(name) <= REQUESTER_MAX or not name.isprintable():
        raise ConfigError(f"--as is {text!r}; give a name of 1 to {REQUESTER_MAX} characters on one line")
    return name


def today(context: typer.Context) -> date:
    """Return the current date in UTC, from the clock that `main` passed in."""
    clock: Clock = context.obj
    return clock.now().date()


PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id.")]

PeriodMaybe = Annotated[
    str | None, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")
]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", metavar="ID", help="Which schedule, where there are several.")
]

PathsArgument = Annotated[
    list[Path], typer.Argument(metavar="PATH", exists=True, help="Pipeline files, or directories of them.")
]

CalendarsOption = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="next to PATH"),
]

AsNdjson = Annotated[bool, typer.Option("--json", help="One JSON record a line (NDJSON), the last one a summary.")]
