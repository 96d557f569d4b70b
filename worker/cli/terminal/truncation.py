"""Report what a list leaves out: a sentence for people, a record for programs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from worker.cli.terminal.console import Screen
from worker.core.model.values import Json

RAISE_LIMIT: Final = "raise --limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Truncation says how many entries a list shows and leaves out.

    `total` is None if there may be more and they were not counted. If `is_exact` is false, there are at least `total`.
    """

    what: str
    shown: int
    total: int | None = None
    is_exact: bool = True
    hint: str

    @property
    def sentence(self) -> str:
        if self.total is None:
            return f"{self.what}: {self.shown:,} shown, and there may be more; {self.hint}"
        about = "" if self.is_exact else "at least "
        return f"{self.what}: {self.shown:,} of {about}{self.total:,} shown; {self.hint}"

    @property
    def record(self) -> dict[str, Json]:
        return {
            "type": "truncated",
            "what": self.what,
            "shown": self.shown,
            "total": self.total,
            "isExact": self.total is not None and self.is_exact,
            "hint": self.hint,
        }


def report(screen: Screen, cuts: Iterable[Truncation], *, as_json: bool) -> None:
    """Report what a list left out: as records after the list with JSON, else as remarks."""
    for cut in cuts:
        if as_json:
            screen.record(cut.record)
        else:
            screen.remark(cut.sentence, style="yellow")
