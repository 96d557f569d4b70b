"""A table whose every state is a value: the shipped stores write to it, and any of their writes may go astray."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias, TypeVar

from worker.core.errors import RetryLater
from worker.store.sqlite.conditions import holds
from worker.store.table import (
    Between,
    Check,
    Delete,
    Index,
    Key,
    Page,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Update,
    Value,
    Write,
)

T = TypeVar("T")
Rows: TypeAlias = tuple[tuple[str, tuple[tuple[str, Value], ...]], ...]  # by sort key, hashable
Mutate: TypeAlias = Callable[[Sequence[Write]], Sequence[Sequence[Write]]]  # into separate commits


# What no condition and no decision of the protocol looks at: states that differ in it alone are the same.
UNTOLD = frozenset({"ttl", "rate", "deaths", "att", "attseq"})


class Fate(Enum):
    """What becomes of a commit."""

    CLEAN = auto()
    REPLY_LOST = auto()  # applied, and its sender does not hear of it
    LATE = auto()  # its sender gives up waiting, and it is applied some time
    TWICE = auto()  # applied now, and once more some time


class ModelTable:
    """`Tables` for one operation. What is still on its way when it is over is in `flying`."""

    def __init__(self, rows: Rows, fate: Fate = Fate.CLEAN, mutate: Mutate = lambda writes: [writes]) -> None:
        self._rows: dict[str, Row] = {sk: dict(items) for sk, items in rows}
        self._fate, self._mutate = fate, mutate
        self.flying: list[Sequence[Write]] = []
        self.has_written = False

    @property
    def rows(self) -> Rows:
        return tuple((sk, _told(self._rows[sk])) for sk in sorted(self._rows))

    @property
    def all_rows(self) -> Mapping[str, Row]:
        """With everything that is on them."""
        return self._rows

    def copy(self, mutate: Mutate = lambda writes: [writes]) -> "ModelTable":
        other = ModelTable((), mutate=mutate)
        other._rows = dict(self._rows)
        return other

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ping(self) -> None: ...

    async def get(self, table: TableName, key: Key) -> Row | None:
        return self._rows.get(key.sk)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        return {key: self._rows[key.sk] for key in keys if key.sk in self._rows}

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        assert isinstance(sk, Prefix)
        return Page([self._rows[each] for each in sorted(self._rows) if each.startswith(sk.text)], None)

    async def commit(self, *writes: Write) -> None:
        first, *rest = self._mutate(writes)
        fate, self._fate = self._fate, Fate.CLEAN  # one mishap for each operation
        self.has_written = True
        if fate is Fate.LATE:
            self.flying += [first, *rest]
            raise RetryLater("no answer")
        self.apply(first)
        self.flying += [first, *rest] if fate is Fate.TWICE else rest
        if fate is Fate.REPLY_LOST:
            raise RetryLater("no answer")

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            row = self._rows.get(write.key.sk)
            if write.condition is not None and not holds(write.condition, row):
                raise StaleWrite(write, row)
        for write in writes:
            self._write(write)

    def _write(self, write: Write) -> None:
        sk = write.key.sk
        match write:
            case Put():
                self._rows[sk] = write.row
            case Update():
                found = self._rows.get(sk) or {"PK": write.key.pk, "SK": sk}
                merged: Mapping[str, Value] = {**write.set_if_absent, **found, **write.set}
                self._rows[sk] = {name: value for name, value in merged.items() if name not in write.remove}
            case Delete():
                self._rows.pop(sk, None)
            case Check():
                return


def _told(row: Row) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted((name, value) for name, value in row.items() if name not in UNTOLD))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a model table answers at once")
