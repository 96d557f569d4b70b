"""Collects the problems of a file: where, what was found, what is accepted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from worker.config.suggestions import suggest
from worker.yaml.document import Document, Fault, Path, TextMark

# One broken file must not hide the others, and a reader cannot use more messages than this.
PROBLEMS_MAX = 100
_SHOWN_MAX = 60
_LISTED_MAX = 20

# Searching for the intended word takes time, so it waits until the message is certain to be kept.
Hint: TypeAlias = str | Callable[[], str]
# Returns where a path is in the file, and a note if the part itself is written in another file.
Locate: TypeAlias = Callable[[Path, bool], tuple[TextMark, str]]


class ProblemSeverity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Describes one problem. `path` is written as a person would: `validation.rules[2].check`."""

    file: str
    line: int
    column: int
    path: str
    severity: ProblemSeverity
    message: str
    hint: str = ""

    def __str__(self) -> str:
        subject = f"{self.path}: " if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {subject}{self.message}{hint}"


def format_path(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_shorten(part)}" for part in path)
    return text.removeprefix(".")


def show(value: object) -> str:
    """Format a value for a message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f'the text "{_shorten(value)}"'
        case int() | float():
            return f"the number {value}"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def advise(word: object, options: Iterable[str], *, kind: str = "accepted") -> str:
    """Return a suggestion if there is one, followed by what is accepted."""
    known = list(options)
    more = ["…"] if len(known) > _LISTED_MAX else []
    accepted = f"{kind}: {', '.join([*known[:_LISTED_MAX], *more])}" if known else ""
    return " ".join(part for part in (suggest(word, known), accepted) if part)


def _shorten(text: str) -> str:
    flat = text if text.isprintable() else repr(text)[1:-1]
    return flat if len(flat) <= _SHOWN_MAX else f"{flat[:_SHOWN_MAX]}…"


class Problems:
    """Collects the problems of one file.

    A path already known to be broken is not reported again, nor is anything below it: one mistake gives one message.
    `lenient` is for rows and files of the Lambda edition: what that edition would have ignored or replaced by a default
    is a warning.
    """

    def __init__(self, file: str, document: Document | None, *, lenient: bool = False) -> None:
        self.file, self.lenient = file, lenient
        self._document = document
        self._broken: set[Path] = set()
        self._found: list[Problem] = []
        self._has_more = False
        self.has_errors = False
        self._locate: Locate | None = None

    def relocate(self, locate: Locate) -> None:
        """Say from now on where the parts of a file are that was merged from several."""
        self._locate = locate

    @property
    def found(self) -> tuple[Problem, ...]:
        if not self._has_more:
            return tuple(self._found)
        last = f"there are more than these {PROBLEMS_MAX} problems; fix them first"
        severity = ProblemSeverity.ERROR if self.has_errors else ProblemSeverity.WARNING
        return (*self._found, Problem(file=self.file, line=1, column=1, path="", severity=severity, message=last))

    @property
    def is_full(self) -> bool:
        """Return whether no further message will be kept, except that there are more."""
        return len(self._found) >= PROBLEMS_MAX

    def error(self, path: Path, message: str, hint: Hint = "", *, key: bool = False) -> None:
        self._add(ProblemSeverity.ERROR, path, message, hint, key=key)

    def warning(self, path: Path, message: str, hint: Hint = "", *, key: bool = False) -> None:
        self._add(ProblemSeverity.WARNING, path, message, hint, key=key)

    def tolerate(self, path: Path, message: str, hint: Hint = "", *, instead: str, key: bool = False) -> None:
        """Report an error; in a lenient reading, a warning that says what is done instead."""
        if self.lenient:
            self.warning(path, f"{message}; {instead}", hint, key=key)
        else:
            self.error(path, message, hint, key=key)

    def fault(self, fault: Fault) -> None:
        """Report a mistake in the YAML itself, which has a position but no path."""
        mark = fault.mark
        self._keep(
            Problem(
                file=self.file,
                line=mark.line,
                column=mark.column,
                path="",
                severity=ProblemSeverity.ERROR,
                message=fault.message,
                hint=fault.hint,
            )
        )

    def mark_broken(self, path: Path) -> None:
        self._broken.add(path)

    def is_broken(self, path: Path) -> bool:
        return any(path[:length] in self._broken for length in range(len(path) + 1))

    def _add(self, severity: ProblemSeverity, path: Path, message: str, hint: Hint, *, key: bool) -> None:
        if self.is_broken(path):
            return
        if self.is_full:
            self._has_more = True
            self.has_errors = self.has_errors or severity is ProblemSeverity.ERROR
            return
        mark, elsewhere = self._place(path, key=key)
        self._keep(
            Problem(
                file=self.file,
                line=mark.line if mark else 1,
                column=mark.column if mark else 1,
                path=format_path(path),
                severity=severity,
                message=f"{message}{elsewhere}",
                hint=hint if isinstance(hint, str) else hint(),
            )
        )

    def _place(self, path: Path, *, key: bool) -> tuple[TextMark | None, str]:
        if self._locate is not None:
            return self._locate(path, key)
        return (self._document.locate(path, key=key) if self._document else None), ""

    def _keep(self, problem: Problem) -> None:
        self.has_errors = self.has_errors or problem.severity is ProblemSeverity.ERROR
        if self.is_full:
            self._has_more = True
        else:
            self._found.append(problem)
