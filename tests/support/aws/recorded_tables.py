"""A store that notes each access as the call that DynamoDB would get, for a comparison with the roles."""

from collections.abc import Sequence

from tests.support.aws.calls import Call, family_of
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
    TableName,
    Tables,
    Update,
    Write,
)

_ACTIONS = {Put: "PutItem", Update: "UpdateItem", Delete: "DeleteItem", Check: "ConditionCheckItem"}


class RecordedTables:
    """Passes everything on to another store."""

    def __init__(self, below: Tables) -> None:
        self._below = below
        self.calls: set[Call] = set()
        self.start, self.stop, self.ping = below.start, below.stop, below.ping

    async def get(self, table: TableName, key: Key) -> Row | None:
        self._note("GetItem", table, key.pk)
        return await self._below.get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        for key in keys:
            self._note("BatchGetItem", table, key.pk)
        return await self._below.get_many(table, keys)

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
        if index is None:
            self._note("Query", table, pk)
        else:
            self.calls.add(Call("dynamodb:Query", f"{table.value}/index"))
        return await self._below.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)

    async def commit(self, *writes: Write) -> None:
        for write in writes:
            self._note(_ACTIONS[type(write)], write.table, write.key.pk)
        await self._below.commit(*writes)

    def _note(self, operation: str, table: TableName, pk: str) -> None:
        self.calls.add(Call(f"dynamodb:{operation}", table.value, family_of(pk)))
