"""`interlock validate`: report every problem of every file, with its place and its fix."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, assert_never

import typer

from worker.cli.terminal.arguments import AsNdjson, CalendarsOption, PathsArgument, today
from worker.cli.terminal.console import Screen, counted, json_lines
from worker.cli.terminal.files import Sources, read_files
from worker.cli.terminal.store_session import exit_code, show_error
from worker.cli.terminal.workflow_commands import workflow_command
from worker.config.load import Directory, Forbids
from worker.config.problems import Problem, ProblemSeverity
from worker.config.settings import HTTP_ALLOW
from worker.core.errors import ConfigError
from worker.net.address_policy import AddressPolicy, AddressRefused

STYLES = {ProblemSeverity.ERROR: "red", ProblemSeverity.WARNING: "yellow"}
REPOSITORY = "GITHUB_WORKSPACE"  # where GitHub Actions checks the repository out


class ReportFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


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
            # The machine that checks files need not have the worker's settings.
            return f"{refused}, and set the same variable for this command"
        return None

    return forbids


def run_validate(
    screen: Screen,
    sources: Sources,
    *,
    strict_warnings: bool = False,
    report: ReportFormat = ReportFormat.TEXT,
    root: Path | None = None,
) -> int:
    """Check the files, print the problems, and return the exit code.

    `root` is where the repository is, to which the files of an annotation are relative; None: the current directory.
    """
    found = read_files(screen, sources)
    counts = tally(found)
    where = (root or Path.cwd()).resolve()
    match report:
        case ReportFormat.TEXT:
            show_problems(screen, found.problems)
            screen.line(summary(counts), style="red" if counts.errors else "green")
        case ReportFormat.JSON:
            show_records(screen, found.problems, counts)
        case ReportFormat.GITHUB:
            for problem in found.problems:
                screen.document(workflow_command(problem, where))
            screen.line(summary(counts))
        case ReportFormat.SARIF:
            from worker.cli.terminal.sarif import sarif_log  # noqa: PLC0415  it reads the version of the package

            screen.document(json_lines(sarif_log(found.problems, where, is_complete=bool(counts.files))))
        case _:
            assert_never(report)
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

With --format github, GitHub Actions shows each problem at its line of the pull request. With --format sarif, the \
output is a SARIF 2.1.0 file for code scanning. Files are named relative to the repository: $GITHUB_WORKSPACE if it is \
set, else the current directory.

\b
Examples:
  interlock validate pipelines/
  interlock validate pipelines/orders-daily.yaml --strict-warnings
  interlock validate pipelines/ --format sarif > pipelines.sarif
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
    report: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="How to report the problems.", show_default="text"),
    ] = None,
    as_json: AsNdjson = False,
) -> None:
    screen = Screen()
    if as_json and report not in {None, ReportFormat.JSON}:
        show_error(screen, ConfigError(f"--json and --format {report} contradict each other; give one of them"))
        raise typer.Exit(2)
    try:
        forbids = address_check(os.environ)
    except ConfigError as problem:
        show_error(screen, problem)
        raise typer.Exit(exit_code(problem)) from None
    sources = Sources(paths=paths, calendars=calendars, lenient=lenient, today=today(context), forbids=forbids)
    chosen = report or (ReportFormat.JSON if as_json else ReportFormat.TEXT)
    repository = os.environ.get(REPOSITORY)
    root = Path(repository) if repository else None
    raise typer.Exit(run_validate(screen, sources, strict_warnings=strict_warnings, report=chosen, root=root))
