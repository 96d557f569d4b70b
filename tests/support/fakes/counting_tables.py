"""A store that counts what is asked of it."""

from collections import Counter
from collections.abc import Sequence

from tests.support.worlds.engine import World, a_world
from worker.core.errors import RetryLater
from worker.store.table import Between, Index, Key, Page, Prefix, Row, TableName, Tables, Write


class CountingTables:
    """The store, with every request and every row read and written counted."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.rows: Counter[str] = Counter()
        self.requests = 0
        self.is_down = False

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._tables.ping()

    async def get(self, table: TableName, key: Key) -> Row | None:
        self._answer()
        self.rows["read"] += 1
        return await self._tables.get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        self._answer()
        self.rows["read"] += len(keys)
        return await self._tables.get_many(table, keys)

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
        self._answer()
        page = await self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        self.rows["read"] += 1 + len(page.rows)
        return page

    def _answer(self) -> None:
        self.requests += 1
        if self.is_down:
            raise RetryLater("the store is down, as the test wants it")

    async def commit(self, *writes: Write) -> None:
        self.requests += 1
        self.rows["written"] += len(writes)
        await self._tables.commit(*writes)


async def counted() -> tuple[World, CountingTables]:
    counters: list[CountingTables] = []

    def count(tables: Tables) -> CountingTables:
        counters.append(CountingTables(tables))
        return counters[0]

    return await a_world(count), counters[0]
