"""Describe and draw the program's help page without loading any command.

Each command has a name, a summary of one line, and a function that loads it.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typer import Typer

WIDTH_MIN: Final = 40
DIM, NAME, PLAIN = "\x1b[2m", "\x1b[1;36m", "\x1b[0m"


class CommandEntry(NamedTuple):
    """CommandEntry names a command or a group of commands, and how to load it.

    `summary` is the first paragraph of its help; a test compares the two.
    """

    name: str
    summary: str
    load: Callable[[], "Typer"]


class CommandPanel(NamedTuple):
    """CommandPanel groups the commands that serve one purpose."""

    title: str
    commands: tuple[CommandEntry, ...]


class RootPage(NamedTuple):
    """RootPage holds the help page of the program itself."""

    introduction: str
    options: tuple[tuple[str, str], ...]
    panels: tuple[CommandPanel, ...]
    epilogue: str = ""

    @property
    def entries(self) -> dict[str, CommandEntry]:
        return {entry.name: entry for panel in self.panels for entry in panel.commands}

    def text(self, *, width: int | None = None, colours: bool | None = None) -> str:
        """Return the page in the layout that Rich gives to the pages of commands.

        Rich does not draw this page, because loading Rich would take most of the time.
        """
        wide = max(WIDTH_MIN, width or shutil.get_terminal_size().columns)
        lines = ["", " Usage: interlock [OPTIONS] COMMAND [ARGS]...", "", *_paragraphs(self.introduction, wide), ""]
        lines += _box("Options", self.options, wide)
        for panel in self.panels:
            lines += _box(panel.title, [(entry.name, entry.summary) for entry in panel.commands], wide)
        if self.epilogue:
            lines += ["", *_paragraphs(self.epilogue, wide)]
        plain = "\n".join([*(line.rstrip() for line in lines), ""])
        return _coloured(plain) if (_has_colours() if colours is None else colours) else plain


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        yield from [""] * (number > 0)
        if paragraph.startswith("\b\n"):
            yield from (f" {line}" for line in paragraph.splitlines()[1:])
        else:
            yield from (f" {line}" for line in textwrap.wrap(paragraph, width - 2))


def _box(title: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    head = max(len(name) for name, _ in rows)
    room = width - head - 6
    yield f"╭─ {title} {'─' * (width - len(title) - 5)}╮"
    for name, summary in rows:
        for number, line in enumerate(textwrap.wrap(summary, room)):
            yield f"│ {(name if number == 0 else '').ljust(head)}  {line.ljust(room)} │"
    yield f"╰{'─' * (width - 2)}╯"


def _has_colours() -> bool:
    environment = os.environ
    return (
        sys.stdout.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") not in {"dumb", "unknown"}
    )


def _coloured(page: str) -> str:
    return "\n".join(_coloured_line(line) for line in page.split("\n"))


def _coloured_line(line: str) -> str:
    if line.startswith(("╭", "╰")):
        return f"{DIM}{line}{PLAIN}"
    if not line.startswith("│"):
        return line
    name, gap, rest = line[2:-2].partition("  ")
    return f"{DIM}│{PLAIN} {NAME}{name}{PLAIN}{gap}{rest} {DIM}│{PLAIN}"
