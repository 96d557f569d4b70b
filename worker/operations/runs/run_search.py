"""Shared by all searches of runs: candidates with their positions, and the budget of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from worker.core.model.values import Json
from worker.core.run.state import ForeignRun, Run
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.runs import UnreadableRow
from worker.store.rows import BadRow
from worker.store.table import Key, Row

FoundRun: TypeAlias = Run | ForeignRun | UnreadableRow
# Where a search continues; part of a cursor.
Position: TypeAlias = Mapping[str, Json]


@dataclass(slots=True)
class SearchBudget:
    """Counts examined rows. A query that finds nothing counts as one row, because it is a request too.

    `wanted` is how many more runs fit on the page.
    """

    rows_max: int
    wanted: int
    used: int = 0

    def take(self, rows: int) -> None:
        self.used += max(1, rows)

    @property
    def left(self) -> int:
        return max(0, self.rows_max - self.used)


@dataclass(frozen=True, slots=True)
class SearchStep:
    """Holds candidates in order, each with the position after it.

    `rest` is the position after all of them; None: nothing follows. With `is_whole`, the search can continue only after
    all of them, and they are no more than the page has room for.
    """

    candidates: Sequence[tuple[FoundRun, Position]]
    rest: Position | None
    is_whole: bool = False


def read_run(row: Row) -> FoundRun:
    try:
        return run_from_row(row)
    except BadRow as error:
        return UnreadableRow(Key(str(row["PK"]), str(row["SK"])), str(error))


def text_at(position: Position | None, name: str) -> str:
    value = (position or {}).get(name)
    return value if isinstance(value, str) else ""


def number_at(position: Position | None, name: str) -> int:
    value = (position or {}).get(name)
    return value if isinstance(value, int) and value >= 0 else 0
