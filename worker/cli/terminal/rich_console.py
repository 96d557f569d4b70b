"""Rich, as a terminal gets it. A module of its own, because it takes long to load."""

from typing import TextIO

from rich.console import Console


class PlainConsole(Console):
    """A console on which text is never markup: a message with [brackets] must come out as it went in."""

    def __init__(self, *, file: TextIO | None = None, stderr: bool = False) -> None:
        super().__init__(file=file, stderr=stderr, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  called while the error is handled; `Screen` knows what it means
