"""`interlock schema`: the JSON Schema by which editors complete and check pipeline files."""

import json
from enum import StrEnum
from pathlib import Path

from worker.cli.terminal.console import Screen
from worker.config.schema import CalendarFile, FileModel, PipelineFile, file_schema


class FileKind(StrEnum):
    PIPELINE = "pipeline"
    CALENDAR = "calendar"


MODELS: dict[FileKind, FileModel] = {FileKind.PIPELINE: PipelineFile, FileKind.CALENDAR: CalendarFile}


def run_schema(screen: Screen, kind: FileKind, *, output: Path | None, header: bool) -> int:
    """Print the schema or write it to a file; the header alone if that is asked for."""
    line = header_line(str(output or f"interlock-{kind}.schema.json"))
    if header:
        screen.document(line)
        return 0
    text = json.dumps(file_schema(MODELS[kind]), indent=2, ensure_ascii=False) + "\n"
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
    """The comment that ties a YAML file to its schema in editors with a YAML language server."""
    return f"# yaml-language-server: $schema={schema}"
