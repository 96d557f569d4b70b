"""The `interlock` command: what can be asked, in words that teach. Each command parses here and works elsewhere."""

import os
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.commands.dlq import dlq_app
from worker.cli.commands.doctor import doctor_app
from worker.cli.commands.inbox import inbox_app
from worker.cli.commands.leases import leases_app
from worker.cli.commands.migrate import migrate_app
from worker.cli.commands.pipelines import pipelines_app
from worker.cli.commands.requests import asking_app
from worker.cli.commands.run import run_app
from worker.cli.commands.schedule import schedule_app
from worker.cli.commands.schema import FileKind, run_schema
from worker.cli.commands.sensors import sensor_app
from worker.cli.commands.show import reading_app
from worker.cli.commands.store import store_app
from worker.cli.commands.validate import address_check, run_validate
from worker.cli.commands.watchdog import watchdog_app
from worker.cli.demo.demo import demo_app
from worker.cli.plan.command import PlanRequest, run_diff, run_plan
from worker.cli.plan.expected import Span
from worker.cli.terminal.console import OutputFailed, Screen
from worker.cli.terminal.files import Sources
from worker.cli.terminal.help import PlainGroup
from worker.cli.terminal.store_access import exit_code, show_error
from worker.config.scalars import read_date
from worker.core.errors import ConfigError
from worker.runtime.clock import Clock, SystemClock

DAYS_MAX = 366
FIRST_DAY, LAST_DAY = date(1970, 1, 2), date(2999, 12, 31)

app = typer.Typer(
    name="interlock",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""A safety controller for data pipelines: starts jobs only when declarative rules hold, and says why.

Begin with [bold]interlock demo[/bold]; each command has its own --help, with examples.""",
)
app.add_typer(demo_app)
app.add_typer(run_app)
app.add_typer(store_app)
app.add_typer(pipelines_app)
app.add_typer(sensor_app)
app.add_typer(inbox_app)
app.add_typer(dlq_app)
app.add_typer(leases_app)
app.add_typer(schedule_app)
app.add_typer(watchdog_app)
app.add_typer(migrate_app)
app.add_typer(doctor_app)
app.add_typer(reading_app)
app.add_typer(asking_app)

VALIDATE_HELP = """Check pipeline files and report every problem at once, each with its line and what to do.

PATH is a file or a directory; of a directory, its *.yaml and *.yml files are read (not those further down). \
Calendars are read from `calendars/` beside the files, or from --calendars.

\b
Examples:
  interlock validate pipelines/
  interlock validate pipelines/orders-daily.yaml --strict-warnings
  interlock validate pipelines/ --json | jq 'select(.severity == "error")'

\b
Exit codes:
  0  no errors (warnings are allowed unless --strict-warnings)
  1  at least one file has a problem
  2  the command itself was wrong
"""

SCHEMA_HELP = """Print the JSON Schema (draft 2020-12) of a file, so that editors complete and check it while you type.

The line that ties a file to the schema is printed on standard error, or alone with --header.

\b
Examples:
  interlock schema -o pipeline.schema.json
  interlock schema --kind calendar -o calendar.schema.json
  interlock schema -o pipeline.schema.json --header

\b
Exit codes:
  0  written
  2  the command itself was wrong
"""

PLAN_HELP = """Show every expected run: local time and UTC, period, deadlines, and what is left out and why.

Nothing is started or stored. A busy schedule is one line a day unless --all. With --against, shows instead what \
changes from the files in OLD to those in PATH: runs added, removed or moved, and deadlines that change.

\b
Examples:
  interlock plan pipelines/
  interlock plan pipelines/ --from 2027-03-22 --days 7 --pipeline orders-daily
  interlock plan pipelines/ --json | jq 'select(.excluded)'
  interlock plan --against deployed/ pipelines/

\b
Exit codes:
  0  planned; with --against: nothing changes
  1  files with problems or nothing to plan; with --against: something changes
  2  the command itself was wrong; with --against: some file has a problem
     (also if there is no such pipeline)
"""

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH", exists=True, help="Pipeline files, or directories of them.")
]
Calendars = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="beside PATH"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON record a line (NDJSON), the last one a summary.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        Screen().line(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def interlock(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_show_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Options that belong to no command."""


@app.command(help=VALIDATE_HELP)
def validate(
    context: typer.Context,
    paths: Paths,
    *,
    calendars: Calendars = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Read old files: what can be ignored or defaulted is a warning.")
    ] = False,
    strict_warnings: Annotated[bool, typer.Option("--strict-warnings", help="Warnings too give exit code 1.")] = False,
    as_json: AsJson = False,
) -> None:
    screen = Screen()
    try:
        forbids = address_check(os.environ)
    except ConfigError as problem:
        show_error(screen, problem)
        raise typer.Exit(exit_code(problem)) from None
    sources = Sources(paths=paths, calendars=calendars, lenient=lenient, today=_today(context), forbids=forbids)
    raise typer.Exit(run_validate(screen, sources, strict_warnings=strict_warnings, as_json=as_json))


@app.command(help=SCHEMA_HELP)
def schema(
    kind: Annotated[FileKind, typer.Option(help="Which kind of file.")] = FileKind.PIPELINE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", dir_okay=False, help="Write to this file instead of the screen.")
    ] = None,
    header: Annotated[bool, typer.Option("--header", help="Print only the line for the top of your files.")] = False,
) -> None:
    raise typer.Exit(run_schema(Screen(), kind, output=output, header=header))


@app.command(help=PLAN_HELP)
def plan(
    context: typer.Context,
    paths: Paths,
    *,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day; today if absent.")] = None,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=DAYS_MAX, help="How many days.")] = 14,
    pipeline: Annotated[str | None, typer.Option(metavar="ID", help="Only this pipeline.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="OLD", exists=True, help="Show the difference from these files to PATH.")
    ] = None,
    calendars: Calendars = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every run on its own line, however many.")] = False,
    as_json: AsJson = False,
) -> None:
    today = _today(context)
    span = Span(first=_first_day(start) if start else today, days=days)
    request = PlanRequest(span=span, pipeline=pipeline, show_all=show_all, as_json=as_json)
    new = Sources(paths=paths, calendars=calendars, today=today)
    if against is None:
        raise typer.Exit(run_plan(Screen(), new, request))
    raise typer.Exit(run_diff(Screen(), replace(new, paths=[against]), new, request))


def _first_day(text: str) -> date:
    day = read_date(text)
    if day is None:
        raise typer.BadParameter(f"{text!r} is not a date; write YYYY-MM-DD", param_hint="--from")
    if not FIRST_DAY <= day <= LAST_DAY:
        raise typer.BadParameter(f"{day} is not between {FIRST_DAY} and {LAST_DAY}", param_hint="--from")
    return day


def _today(context: typer.Context) -> date:
    """The current date in UTC, by the clock that `main` passed in."""
    clock: Clock = context.obj
    return clock.now().date()


def main() -> None:
    screen = Screen()
    try:
        try:
            app(obj=SystemClock())
        finally:
            screen.flush()  # results have arrived before the exit code says so
    except OutputFailed as failed:
        show_error(screen, failed)
        raise SystemExit(exit_code(failed)) from None
