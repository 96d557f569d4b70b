"""Where the command line writes: colour and tables on a terminal, plain lines on a pipe, JSON on request.

Results go to standard output; progress and remarks go to standard error, so that a pipe carries results alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.core.rules import Json

Row = Sequence[str]


class Screen:
    """One command's output. Nothing is wrapped or cut on a pipe, and no control character reaches it."""

    def __init__(self, *, out: Console | None = None, err: Console | None = None) -> None:
        # Text from files is never markup: a message with [brackets] must come out as it went in.
        self.out = out or Console(highlight=False, markup=False, emoji=False)
        self.err = err or Console(highlight=False, markup=False, emoji=False, stderr=True)

    def line(self, text: str = "", style: str = "") -> None:
        self.out.print(Text(visible(text), style=style), soft_wrap=True)

    def remark(self, text: str, style: str = "dim") -> None:
        """Say something about the work, not part of its result."""
        self.err.print(Text(visible(text), style=style), soft_wrap=True)

    def table(self, rows: Sequence[Row], *, styles: Sequence[str] = (), indent: int = 2) -> None:
        """Show rows in aligned columns; `styles` colours each row. Empty columns take no room."""
        shown = without_empty_columns(rows)
        if self.out.is_terminal:
            self.out.print(_grid(shown, styles or [""] * len(shown), indent))
        else:
            for text in aligned(shown):
                self.line(" " * indent + text)

    def record(self, record: Mapping[str, Json]) -> None:
        """Write one record of a stream as a line of JSON."""
        self.out.file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")

    def document(self, text: str) -> None:
        """Write text exactly as it is."""
        self.out.file.write(text if text.endswith("\n") else text + "\n")


def visible(text: str) -> str:
    """Show control characters instead of obeying them: file names and values come from outside."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,000 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def without_empty_columns(rows: Sequence[Row]) -> list[list[str]]:
    kept = [index for index, column in enumerate(zip(*rows, strict=True)) if any(column)]
    return [[row[index] for index in kept] for row in rows]


def aligned(rows: Sequence[Row]) -> Iterable[str]:
    """Pad every column but the last to its widest cell."""
    widths = [max(len(visible(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [visible(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _grid(rows: Sequence[Row], styles: Sequence[str], indent: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=indent - 2 if indent > 2 else 0)
    for index in range(len(rows[0]) if rows else 0):
        # The last column holds sentences and may fold; names and times are only useful whole.
        grid.add_column(no_wrap=index < len(rows[0]) - 1, overflow="fold")
    for row, style in zip(rows, styles, strict=True):
        grid.add_row("", *(Text(visible(cell), style=style) for cell in row))
    return grid
