"""`interlock render`: print a pipeline file with its archetype merged in, and each line's origin."""

from pathlib import Path
from typing import Annotated, cast

import typer

from worker.archetypes.annotate import annotated
from worker.cli.commands.validate import show_problems
from worker.cli.terminal.arguments import CalendarsOption, today
from worker.cli.terminal.console import Screen
from worker.cli.terminal.files import Sources, read_files
from worker.config.documents import read_document
from worker.config.files import read_text


def run_render(screen: Screen, path: Path, sources: Sources) -> int:
    """Print the resolved file, and its problems on standard error; return 1 if it has any."""
    found = read_files(screen, sources)
    [loaded] = found.files
    err = Screen(out=screen.err, err=screen.err)
    show_problems(err, found.errors)
    document = None if loaded.resolved is None and found.errors else read_document(read_text(path), str(path))[0]
    if document is None:
        return 1
    value = document.value if loaded.resolved is None else cast("object", loaded.resolved.value)
    if loaded.resolved is not None:
        archetype = loaded.resolved.archetype
        screen.document(f"# resolved from {path} and {archetype.file} (sha256 {archetype.hash})\n")
    screen.document(annotated(value, document, str(path), loaded.resolved))
    return 1 if found.errors else 0


render_app = typer.Typer()

RENDER_HELP = """Print a pipeline file with its archetype merged in, and where each line is written.

The output is a complete pipeline file: it loads as the same pipeline without the archetype, as the store keeps it. \
Archetypes are read from `archetypes/` next to the file.

\b
Examples:
  interlock render pipelines/orders-hourly.yaml
  interlock render pipelines/orders-hourly.yaml > resolved.yaml
  interlock render pipelines/orders-hourly.yaml --calendars shared/calendars

\b
Exit codes:
  0  resolved, without errors
  1  the file or its archetype has a problem
  2  the command itself was wrong
"""


@render_app.command(help=RENDER_HELP)
def render(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A pipeline file.")],
    *,
    calendars: CalendarsOption = None,
) -> None:
    sources = Sources(paths=[file], calendars=calendars, today=today(context), upstreams_required=False)
    raise typer.Exit(run_render(Screen(), file, sources))
