"""The files a command was given, read with progress that people can see."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from worker.cli.terminal.console import Screen
from worker.config.load import Directory, Forbids, OnFile, load_directory

REMARK_EVERY = 250  # files between two lines of progress where there is no terminal to draw on


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Files and directories, and how to read them. `today` is where warnings about the coming year begin."""

    paths: Sequence[Path]
    today: date
    calendars: Path | None = None
    lenient: bool = False
    forbids: Forbids | None = None  # which targets are none; None: whoever reads the files cannot know


def read_files(screen: Screen, sources: Sources) -> Directory:
    with progress(screen) as on_file:
        found = load_directory(
            sources.paths,
            calendars_dir=sources.calendars,
            lenient=sources.lenient,
            on_file=on_file,
            today=sources.today,
            forbids=sources.forbids,
        )
    if not found.files:
        where = ", ".join(map(str, sources.paths))
        screen.remark(f"no *.yaml or *.yml in {where}: nothing to read", style="red")
    return found


@contextmanager
def progress(screen: Screen) -> Generator[OnFile]:
    """Give what the loader calls for each file: a bar on a terminal, now and then a line elsewhere."""
    if not screen.err.is_terminal:
        yield lambda _path, done, total: _remark(screen, done, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415  only a terminal has it

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen.err.console, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda _path, done, total: bar.update(task, completed=done, total=total)


def _remark(screen: Screen, done: int, total: int) -> None:
    if done % REMARK_EVERY == 0:
        screen.remark(f"read {done:,} of {total:,} files")
