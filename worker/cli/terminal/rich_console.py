"""Configure Rich for a terminal. It is a separate module, because Rich takes long to load."""

from typing import TextIO

from rich.console import Console


class PlainConsole(Console):
    """PlainConsole never reads text as markup, so that it prints a message with [brackets] unchanged."""

    def __init__(self, *, file: TextIO | None = None, stderr: bool = False) -> None:
        super().__init__(file=file, stderr=stderr, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  Rich calls this while it handles the error; `Screen` handles it
