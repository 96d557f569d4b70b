"""Rows that are listed again and again: what has not changed since the last time is not read anew."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from worker.store.table import Row

T = TypeVar("T")


class RowMemory(Generic[T]):
    """Remembers what the rows of the last list were read as, and nothing of the lists before."""

    def __init__(self, read: Callable[[Row], T]) -> None:
        self._read = read
        self._known: dict[object, tuple[Row, T]] = {}

    def read(self, rows: Iterable[Row]) -> list[T]:
        """Read the rows of one list, all of one partition."""
        known, self._known = self._known, {}
        for row in rows:
            before = known.get(row["SK"])
            self._known[row["SK"]] = before if before is not None and before[0] == row else (row, self._read(row))
        return [value for _, value in self._known.values()]
