"""A store that passes everything on: what others count, meter or delay is theirs to add."""

from collections.abc import Sequence

from worker.store.table import Between, Index, Key, Page, Prefix, Row, TableName, Tables, Write


class ForwardingTables:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._tables.ping()

    async def get(self, table: TableName, key: Key) -> Row | None:
        return await self._tables.get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
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
        return await self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)

    async def commit(self, *writes: Write) -> None:
        await self._tables.commit(*writes)
