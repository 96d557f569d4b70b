"""Show progress on a terminal: a bar on standard error that disappears when the work is done."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from worker.cli.terminal.console import Screen


@contextmanager
def progress_bar(screen: Screen, what: str, total: int) -> Generator[Callable[[], None]]:
    """Yield a function that counts one step. Off a terminal there is no bar."""
    if not screen.err.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen.err.console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
