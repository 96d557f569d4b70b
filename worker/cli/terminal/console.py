"""Write output: colours and tables on a terminal, plain lines on a pipe, JSON on request.

Results go to standard output. Progress and remarks go to standard error, so that a pipe carries only results. If the
reader of the results has closed the pipe, the command ends quietly, as other tools do. Results that cannot be written
for another reason are an error. A remark that cannot be written is left out.
"""

import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TextIO, cast

from worker.core.errors import ConfigError
from worker.core.model.values import Json
from worker.runtime.shown_text import visible

if TYPE_CHECKING:
    from rich.console import Console

Row = Sequence[str]

SENTENCE_WIDTH_MIN = 40
TERMINAL_WISHES = ("FORCE_COLOR", "TTY_COMPATIBLE")  # variables that say whether the stream counts as a terminal
READER_GONE = 141  # the exit code that a shell shows for a tool that SIGPIPE ended: 128 + 13


class OutputFailed(ConfigError):
    """OutputFailed says that results could not be written; the user must free space or redirect them."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"standard output cannot be written: {error.strerror or error}; "
            "make room where it goes, or send it elsewhere, and run the command again"
        )


class OutputStream:
    """OutputStream writes to standard output or standard error.

    It loads Rich only for a terminal, because most commands take less time than loading Rich.
    """

    def __init__(self, file: TextIO | None = None, *, is_error: bool = False, console: "Console | None" = None) -> None:
        self._file, self._is_error, self._console = file, is_error, console

    @property
    def file(self) -> TextIO:
        # A stream that was closed before the program started is None; Rich then provides one that discards its output.
        found = self._file or cast("TextIO | None", sys.stderr if self._is_error else sys.stdout)
        return cast("TextIO", self.console.file) if self._console is not None or found is None else found

    @property
    def is_terminal(self) -> bool:
        """Return whether the stream has colours and a width.

        Rich decides if the environment has a variable that overrides the stream.
        """
        if self._console is not None or not os.environ.keys().isdisjoint(TERMINAL_WISHES):
            return self.console.is_terminal
        try:
            return self.file.isatty()
        except ValueError:  # the stream is closed
            return False

    @property
    def console(self) -> "Console":
        if self._console is None:
            from worker.cli.terminal.rich_console import PlainConsole  # noqa: PLC0415

            self._console = PlainConsole(file=self._file, stderr=self._is_error)
        return self._console

    @property
    def width(self) -> int:
        return self.console.width

    def clear(self) -> None:
        self.console.clear()

    def print(self, text: str, style: str = "") -> None:
        """Write a line. On a pipe, write the text without a style."""
        if self.is_terminal:
            from rich.text import Text  # noqa: PLC0415

            self.console.print(Text(visible(text), style=style), soft_wrap=True)
        else:
            self.file.write(f"{visible(text)}\n")
            self.file.flush()  # as on a terminal: results and remarks appear in the order in which they were written

    def rendered(self, text: str, style: str = "") -> str:
        """Return what `print` would write."""
        if not self.is_terminal:
            return f"{visible(text)}\n"
        with self.console.capture() as captured:
            self.print(text, style)
        return captured.get()

    def wrapped(self, text: str, width: int) -> list[str]:
        """Break a text into lines as Rich does: by the cells that its characters take."""
        from rich.text import Text  # noqa: PLC0415

        return [line.plain for line in Text(text).wrap(self.console, width)]


class Screen:
    """Screen writes one command's output.

    On a pipe it neither wraps nor cuts text. It writes no control characters.
    """

    def __init__(
        self, *, out: "OutputStream | Console | None" = None, err: "OutputStream | Console | None" = None
    ) -> None:
        self.out = _stream(out, is_error=False)
        self.err = _stream(err, is_error=True)

    def line(self, text: str = "", style: str = "") -> None:
        with self._writing():
            self.out.print(text, style)

    def rendered(self, text: str, style: str = "") -> str:
        """Return what `line` would write, so that the caller can write it elsewhere."""
        return self.out.rendered(text, style)

    def remark(self, text: str, style: str = "dim") -> None:
        """Write a remark about the work, which is not part of the result, to standard error."""
        try:
            self.err.print(text, style)
        except OSError:
            silence(self.err.file)

    def flush(self) -> None:
        """Write what is buffered, because a write error appears only then."""
        with self._writing():
            self.out.file.flush()

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            silence(self.out.file)
            raise SystemExit(READER_GONE) from None
        except OSError as error:
            silence(self.out.file)
            raise OutputFailed(error) from error

    def table(self, rows: Sequence[Row], *, styles: Sequence[str] = (), indent: int = 2) -> None:
        """Show rows in aligned columns, without the empty ones; `styles` colours each row.

        The last column holds sentences. If a terminal leaves them too little room, each sentence gets lines of its own.
        """
        shown = without_empty_columns(rows)
        heads, sentences = list(aligned([row[:-1] for row in shown])), [row[-1] for row in shown]
        width = max(map(len, heads), default=0) + indent
        wanted = min(max(map(len, sentences), default=0) + 2, SENTENCE_WIDTH_MIN)
        beside = not self.out.is_terminal or self.out.width - width >= wanted
        for head, sentence, style in zip(heads, sentences, styles or [""] * len(shown), strict=True):
            first = " " * indent + head
            if beside:
                self._hang(f"{first.ljust(width)}  {sentence}".rstrip(), width + 2, style)
            else:
                self._hang(first, indent, style)
                self._hang(" " * (indent + 2) + sentence, indent + 2, style)

    def _hang(self, text: str, indent: int, style: str) -> None:
        """Write one line; on a terminal, continue text that does not fit on the next line, indented."""
        if not text.strip():
            return
        if not self.out.is_terminal:
            self.line(text, style)
            return
        begin, rest = text[:indent], visible(text[indent:])
        for line in self.out.wrapped(rest, max(SENTENCE_WIDTH_MIN // 2, self.out.width - indent)):
            self.line(f"{begin}{line}", style)
            begin = " " * indent

    def record(self, record: Mapping[str, Json]) -> None:
        """Write one record of a stream as a line of JSON."""
        self.document(json_text(record))

    def document(self, text: str) -> None:
        """Write text unchanged, and end it with a newline."""
        with self._writing():
            self.out.file.write(text if text.endswith("\n") else text + "\n")


def _stream(given: "OutputStream | Console | None", *, is_error: bool) -> OutputStream:
    if given is None:
        return OutputStream(is_error=is_error)
    return given if isinstance(given, OutputStream) else OutputStream(console=given)


def silence(stream: object) -> None:
    """Redirect a failed stream to the null device.

    Otherwise Python would write to it again at exit and set an exit code of its own.
    """
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, cast("TextIO", stream).fileno())
        finally:
            os.close(nowhere)


def json_text(value: object) -> str:
    """Return JSON on one line, with every digit of a decimal.

    A value of a type that JSON does not have becomes text.
    """
    match value:
        case Decimal():
            return str(value)
        case Mapping():
            members = cast("Mapping[object, object]", value).items()
            return "{" + ", ".join(f"{json_text(str(name))}: {json_text(member)}" for name, member in members) + "}"
        case list() | tuple():
            return "[" + ", ".join(json_text(member) for member in cast("Sequence[object]", value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def json_lines(value: object, indent: int = 0) -> str:
    """Return JSON for people: each member on its own line, with every digit of a number."""
    inner, end = " " * (indent + 2), " " * indent
    match value:
        case Mapping() if value:
            members = cast("Mapping[object, object]", value).items()
            lines = [f"{inner}{json_text(str(name))}: {json_lines(member, indent + 2)}" for name, member in members]
            return "{\n" + ",\n".join(lines) + f"\n{end}}}"
        case list() | tuple() if value:
            lines = [inner + json_lines(member, indent + 2) for member in cast("Sequence[object]", value)]
            return "[\n" + ",\n".join(lines) + f"\n{end}]"
        case _:
            return json_text(value)


def shown_time(at: datetime) -> str:
    """Return a time for a column that people read: in UTC, to the millisecond, always equally wide."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def passed(time: timedelta) -> str:
    """Return a rounded duration such as `45s`, `12m`, `3h20m` or `4d`."""
    seconds = max(0, int(time.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes == 0:
        return f"{seconds}s"
    if hours == 0:
        return f"{minutes}m"
    return f"{hours}h{minutes % 60:02d}m" if days < 2 else f"{days}d"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`, `1,000 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def without_empty_columns(rows: Sequence[Row]) -> list[list[str]]:
    kept = [index for index, column in enumerate(zip(*rows, strict=True)) if any(column)]
    return [[row[index] for index in kept] for row in rows]


def aligned(rows: Sequence[Row]) -> Iterable[str]:
    """Pad every cell to the width of its column."""
    widths = [max(len(visible(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [visible(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
