"""Row memory: a list of rows that is read repeatedly parses only the rows that have changed."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from worker.store.table import Row

T = TypeVar("T")


class RowMemory(Generic[T]):
    """Remembers the parsed rows of the last list, and nothing of the lists before."""

    def __init__(self, read: Callable[[Row], T]) -> None:
        self._read = read
        self._known: dict[object, tuple[Row, T]] = {}

    def read(self, rows: Iterable[Row]) -> list[T]:
        """Parse the rows of one list, which must all be of one partition."""
        known, self._known = self._known, {}
        for row in rows:
            before = known.get(row["SK"])
            self._known[row["SK"]] = before if before is not None and before[0] == row else (row, self._read(row))
        return [value for _, value in self._known.values()]
