"""The files that `interlock init` creates; writing them replaces no file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Final

from worker.config.schema import CalendarFile, FileModel, PipelineFile, file_schema
from worker.core.errors import ConfigError

TEMPLATES: Final = Path(__file__).parent / "files"  # inside the package, so that an installed wheel has them


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """Holds one file to create: where, what it is for, and its text."""

    path: PurePosixPath
    purpose: str
    text: str


def project_files(today: date, version: str) -> Iterator[ProjectFile]:
    """Yield every file of a first project.

    `today` dates its calendar, and `version` is the one that its CI installs.
    """
    named = {"NEXT_YEAR": str(today.year + 1), "VERSION": version}
    for path, template, purpose in (
        ("pipelines/orders.yaml", "orders.yaml", "a first pipeline, explained line by line"),
        ("pipelines/calendars/holidays.yaml", "holidays.yaml", "days on which nothing runs"),
        ("jobs/load.sh", "load.sh", "the job of the first pipeline"),
        ("inbox.yaml", "inbox.yaml", "rules that turn messages into sensors"),
        (".github/workflows/pipelines.yaml", "workflow.yaml", "checks the pipelines of every change"),
    ):
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        for name, value in named.items():
            text = text.replace(name, value)
        yield ProjectFile(PurePosixPath(path), purpose, text)
    yield _schema("pipeline", PipelineFile)
    yield _schema("calendar", CalendarFile)


def _schema(kind: str, model: FileModel) -> ProjectFile:
    text = json.dumps(file_schema(model), indent=2, ensure_ascii=False) + "\n"
    path = PurePosixPath(f"schemas/{kind}.schema.json")
    return ProjectFile(path, f"JSON Schema of {kind} files, for editors", text)


def write_project(folder: Path, files: list[ProjectFile]) -> None:
    """Create the files, all or, if one of them exists, none. Raises `ConfigError`."""
    there = [str(file.path) for file in files if (folder / file.path).exists()]
    if there:
        raise ConfigError(
            f"{folder} has {', '.join(there)} already, and `interlock init` replaces no file, so it wrote nothing; "
            "name another folder, or move what is there"
        )
    try:
        for file in files:
            place = folder / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as new:  # not even one that another program creates meanwhile
                new.write(file.text)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}; name another folder") from error
