"""`interlock validate`: report every problem of every file, with its place and its fix."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated

import typer

from worker.cli.terminal.arguments import AsNdjson, CalendarsOption, PathsArgument, today
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.files import Sources, read_files
from worker.cli.terminal.store_session import exit_code, show_error
from worker.config.load import Directory, Forbids
from worker.config.problems import Problem, ProblemSeverity
from worker.config.settings import HTTP_ALLOW
from worker.core.errors import ConfigError
from worker.net.address_policy import AddressPolicy, AddressRefused

STYLES = {ProblemSeverity.ERROR: "red", ProblemSeverity.WARNING: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Tally counts what a check of all files found."""

    files: int
    pipelines: int
    calendars: int
    errors: int
    warnings: int


def tally(found: Directory) -> Tally:
    return Tally(
        files=len(found.files),
        pipelines=len(found.pipelines),
        calendars=len(found.calendars),
        errors=len(found.errors),
        warnings=len(found.warnings),
    )


def address_check(environment: Mapping[str, str]) -> Forbids:
    """Return a check of hosts by the rules of a worker with this environment.

    Raises `ConfigError` for an invalid allow list.
    """
    policy = AddressPolicy.parse(environment.get(HTTP_ALLOW, "").split(","))

    def forbids(host: str) -> str | None:
        try:
            policy.check_host(host)
        except AddressRefused as refused:
            return f"{refused}, and here"  # the machine that checks files need not have the worker's settings
        return None

    return forbids


def run_validate(screen: Screen, sources: Sources, *, strict_warnings: bool = False, as_json: bool = False) -> int:
    """Check the files, print the problems, and return the exit code."""
    found = read_files(screen, sources)
    counts = tally(found)
    if as_json:
        show_records(screen, found.problems, counts)
    else:
        show_problems(screen, found.problems)
        screen.line(summary(counts), style="red" if counts.errors else "green")
    # A mistyped directory without files must not look like a valid one.
    return 1 if counts.errors or not counts.files or (strict_warnings and counts.warnings) else 0


def show_records(screen: Screen, problems: Iterable[Problem], counts: Tally) -> None:
    for problem in problems:
        screen.record({"type": "problem", **asdict(problem)})
    screen.record({"type": "summary", **asdict(counts)})


def show_problems(screen: Screen, problems: Iterable[Problem]) -> None:
    """Show problems by file, in the order of the files; in a file from top to bottom, as users fix them."""
    for _, group in groupby(problems, key=lambda problem: problem.file):
        for problem in sorted(group, key=lambda problem: (problem.line, problem.column)):
            screen.line(place_and_message(problem), style=STYLES[problem.severity])
            if problem.hint:
                screen.line(f"    {problem.hint}", style="dim")
        screen.line()


def place_and_message(problem: Problem) -> str:
    """Return a problem as text that begins with a place that terminals and editors make clickable."""
    subject = f" {problem.path}:" if problem.path else ""
    remark = "" if problem.severity is ProblemSeverity.ERROR else " warning:"
    return f"{problem.file}:{problem.line}:{problem.column}{remark}{subject} {problem.message}"


def summary(counts: Tally) -> str:
    checked = f"{counted(counts.files, 'file')} checked: {counted(counts.pipelines, 'pipeline')} valid"
    return f"{checked}, {counted(counts.errors, 'error')}, {counted(counts.warnings, 'warning')}"


validate_app = typer.Typer()

VALIDATE_HELP = """Check pipeline files and report every problem with its line and its fix.

PATH is a file or a directory; of a directory, its *.yaml and *.yml files are read, without subdirectories. Calendars \
are read from `calendars/` next to the files, or from --calendars.

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


@validate_app.command(help=VALIDATE_HELP)
def validate(
    context: typer.Context,
    paths: PathsArgument,
    *,
    calendars: CalendarsOption = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Read old files: what can be ignored or defaulted is a warning.")
    ] = False,
    strict_warnings: Annotated[bool, typer.Option("--strict-warnings", help="Warnings too give exit code 1.")] = False,
    as_json: AsNdjson = False,
) -> None:
    screen = Screen()
    try:
        forbids = address_check(os.environ)
    except ConfigError as problem:
        show_error(screen, problem)
        raise typer.Exit(exit_code(problem)) from None
    sources = Sources(paths=paths, calendars=calendars, lenient=lenient, today=today(context), forbids=forbids)
    raise typer.Exit(run_validate(screen, sources, strict_warnings=strict_warnings, as_json=as_json))
