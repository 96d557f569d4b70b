"""A store that counts what is asked of it."""

from collections import Counter
from collections.abc import Sequence

from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.worlds.engine import World, a_world
from worker.core.errors import RetryLater
from worker.store.table import Between, Index, Key, Page, Prefix, Row, TableName, Tables, Write


class CountingTables(ForwardingTables):
    """The store, with every request and every row read and written counted."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.rows: Counter[str] = Counter()
        self.requests = 0
        self.is_down = False

    async def get(self, table: TableName, key: Key) -> Row | None:
        self._answer()
        self.rows["read"] += 1
        return await super().get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        self._answer()
        self.rows["read"] += len(keys)
        return await super().get_many(table, keys)

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
        page = await super().query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        self.rows["read"] += 1 + len(page.rows)
        return page

    def _answer(self) -> None:
        self.requests += 1
        if self.is_down:
            raise RetryLater("the store is down, as the test wants it")

    async def commit(self, *writes: Write) -> None:
        self.requests += 1
        self.rows["written"] += len(writes)
        await super().commit(*writes)


async def counted() -> tuple[World, CountingTables]:
    counters: list[CountingTables] = []

    def count(tables: Tables) -> CountingTables:
        counters.append(CountingTables(tables))
        return counters[0]

    return await a_world(count), counters[0]
