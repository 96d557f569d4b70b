"""Read the pipeline files that a command was given, and show progress."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from worker.cli.terminal.console import Screen
from worker.config.load import Directory, Forbids, OnFile, load_directory
from worker.core.model.ids import PipelineId
from worker.core.model.pipeline import Pipeline
from worker.runtime.gc_tuning import collector_paused

REMARK_EVERY = 250  # files between two progress lines if standard error is not a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources names files and directories and says how to read them.

    `today` is the date from which warnings about the coming year count.
    """

    paths: Sequence[Path]
    today: date
    calendars: Path | None = None
    lenient: bool = False
    # pipelines outside the files that those inside may run after; None: nothing is known of them
    known: Mapping[PipelineId, Pipeline] | None = None
    upstreams_required: bool = True  # whether a pipeline of a directory may run after known pipelines only
    forbids: Forbids | None = None  # says which targets are forbidden; None: the command cannot know


def read_files(screen: Screen, sources: Sources) -> Directory:
    with progress(screen) as on_file, collector_paused():
        found = load_directory(
            sources.paths,
            calendars_dir=sources.calendars,
            lenient=sources.lenient,
            on_file=on_file,
            today=sources.today,
            forbids=sources.forbids,
            known=sources.known,
            upstreams_required=sources.upstreams_required,
        )
    if not found.files:
        where = ", ".join(map(str, sources.paths))
        screen.remark(f"no *.yaml or *.yml in {where}: nothing to read", style="red")
    return found


@contextmanager
def progress(screen: Screen) -> Generator[OnFile]:
    """Yield the function that the loader calls for each file.

    It draws a bar on a terminal, and elsewhere writes a line every `REMARK_EVERY` files.
    """
    if not screen.err.is_terminal:
        yield lambda _path, done, total: _remark(screen, done, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415  for a terminal only

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen.err.console, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda _path, done, total: bar.update(task, completed=done, total=total)


def _remark(screen: Screen, done: int, total: int) -> None:
    if done % REMARK_EVERY == 0:
        screen.remark(f"read {done:,} of {total:,} files")
