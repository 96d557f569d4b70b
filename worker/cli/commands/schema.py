"""`interlock schema`: print the JSON Schema with which editors complete and check pipeline files."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.cli.terminal.console import Screen
from worker.config.schema import CalendarFile, FileModel, PipelineFile, archetype_schema, file_schema


class FileKind(StrEnum):
    PIPELINE = "pipeline"
    ARCHETYPE = "archetype"
    CALENDAR = "calendar"


MODELS: dict[FileKind, FileModel] = {FileKind.PIPELINE: PipelineFile, FileKind.CALENDAR: CalendarFile}


def schema_of(kind: FileKind) -> dict[str, Any]:
    return archetype_schema() if kind is FileKind.ARCHETYPE else file_schema(MODELS[kind])


def run_schema(screen: Screen, kind: FileKind, *, output: Path | None, header: bool) -> int:
    """Print the schema or write it to a file; print only the header line if that is requested."""
    line = header_line(str(output or f"interlock-{kind}.schema.json"))
    if header:
        screen.document(line)
        return 0
    text = json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        screen.document(text)
    elif not _is_written(screen, output, text):
        return 2
    screen.remark(f"put this first line into your {kind} files, and editors with YAML support use the schema:")
    screen.remark(line, style="")
    return 0


def _is_written(screen: Screen, output: Path, text: str) -> bool:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        screen.remark(f"{output} cannot be written: {error.strerror or error}", style="red")
        return False
    return True


def header_line(schema: str) -> str:
    """Return the comment that links a YAML file to its schema in editors with a YAML language server."""
    return f"# yaml-language-server: $schema={schema}"


schema_app = typer.Typer()

SCHEMA_HELP = """Print the JSON Schema of pipeline, archetype or calendar files, for editors.

The line that ties a file to the schema is printed on standard error, or alone with --header.

\b
Examples:
  interlock schema -o pipeline.schema.json
  interlock schema --kind archetype -o archetype.schema.json
  interlock schema -o pipeline.schema.json --header

\b
Exit codes:
  0  written
  2  the command itself was wrong
"""


@schema_app.command(help=SCHEMA_HELP)
def schema(
    kind: Annotated[FileKind, typer.Option(help="Which kind of file.")] = FileKind.PIPELINE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", dir_okay=False, help="Write to this file instead of the screen.")
    ] = None,
    header: Annotated[bool, typer.Option("--header", help="Print only the line for the top of your files.")] = False,
) -> None:
    raise typer.Exit(run_schema(Screen(), kind, output=output, header=header))
