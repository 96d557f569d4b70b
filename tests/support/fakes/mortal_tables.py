"""A store on which a worker dies at one of its writes."""

import asyncio

from tests.support.fakes.remote_store import FaultyTables
from worker.store.table import Key, Row, TableName, Tables, Write


class MortalTables(FaultyTables):
    """The store as a worker sees it that dies at one of its writes: from then on nothing answers."""

    def __init__(self, tables: Tables, at: int | None, *, is_applied: bool) -> None:
        super().__init__(tables)
        self._at, self._is_applied, self.writes = at, is_applied, 0
        self.died = asyncio.Event()

    async def commit(self, *writes: Write) -> None:
        await self._live()
        self.writes += 1
        if self.writes - 1 != self._at:
            return await self._tables.commit(*writes)
        if self._is_applied:
            await self._tables.commit(*writes)
        self.died.set()
        return await self._live()

    async def get(self, table: TableName, key: Key) -> Row | None:
        await self._live()
        return await self._tables.get(table, key)

    async def _live(self) -> None:
        if self.died.is_set():
            await asyncio.Event().wait()
