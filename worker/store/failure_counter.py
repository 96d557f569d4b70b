"""Failure counter: counts failed store calls, so a retry can tell a store outage from a bad record."""

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.store.availability import AccessKind, StoreAvailability
from worker.store.table import Between, Index, Key, Page, Prefix, Row, StaleWrite, TableName, Tables, Write

T = TypeVar("T")


class CallMeasure(Protocol):
    """Measures calls of the store."""

    def took(self, operation: str, seconds: float) -> None: ...

    def conflicted(self) -> None:
        """Note a commit that was refused because a row had changed."""
        ...


class FailureCountingTables:
    """Wraps `Tables` and counts the calls without an answer. All callers of a worker share one instance."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.failures = 0
        self._availability: StoreAvailability | None = None
        self._clock: Clock | None = None
        self._measure: CallMeasure | None = None

    def report_to(
        self, availability: StoreAvailability, clock: Clock, measure: "CallMeasure | None" = None
    ) -> "FailureCountingTables":
        """Report the result of each call to `availability`, and how long it took to `measure`, from now on."""
        self._availability, self._clock, self._measure = availability, clock, measure
        return self

    @property
    def below(self) -> Tables:
        """Return the store whose calls are counted."""
        return self._tables

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._watch("ping", AccessKind.READ, self._tables.ping())

    async def get(self, table: TableName, key: Key) -> Row | None:
        return await self._watch("get", AccessKind.READ, self._tables.get(table, key))

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        return await self._watch("get_many", AccessKind.READ, self._tables.get_many(table, keys))

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
        asked = self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        return await self._watch("query", AccessKind.READ, asked)

    async def commit(self, *writes: Write) -> None:
        await self._watch("commit", AccessKind.WRITE, self._tables.commit(*writes))

    async def _watch(self, operation: str, access: AccessKind, call: Awaitable[T]) -> T:
        began_at = 0.0 if self._clock is None else self._clock.monotonic()
        try:
            answer = await call
        except RetryLater as error:
            self.failures += 1
            if self._availability is not None:
                self._availability.failed(access, began_at=began_at, reason=str(error))
            raise
        except StaleWrite:
            if self._measure is not None:
                self._measure.conflicted()
            raise
        if self._measure is not None and self._clock is not None:
            self._measure.took(operation, self._clock.monotonic() - began_at)
        # A commit that its condition refused has written nothing, so it proves nothing about a full disk.
        if self._availability is not None:
            self._availability.answered(access)
        return answer


def count_failures(tables: Tables) -> FailureCountingTables:
    """Return `tables` wrapped in a failure counter; an existing counter is returned unchanged."""
    return tables if isinstance(tables, FailureCountingTables) else FailureCountingTables(tables)
