"""Reads every row of an installation on a Redis server, for a copy that a person asked for."""

from typing import Any, Final

from worker.store.redis.keys import StoreKeys
from worker.store.redis.lane import Lane
from worker.store.redis.values import decode_row
from worker.store.table import TableName
from worker.store.whole_store import StoredRows

COUNT: Final = 500  # keys that the server looks at for one answer: it looks at those of other programs, too


class WholePrefix:
    """Reads with SCAN, which may return a row twice and misses none that exists throughout."""

    def __init__(self, keys: StoreKeys, lane: Lane) -> None:
        self._keys, self._lane = keys, lane

    async def rows(self, table: TableName, cursor: str | None) -> StoredRows:
        pattern = f"{self._keys.tag}:r:{table}:*"
        following, found = await self._lane.run(("SCAN", cursor or "0", "MATCH", pattern, "COUNT", COUNT))
        bodies: list[Any] = await self._lane.run(("MGET", *found)) if found else []
        rows = [decode_row(body) for body in bodies if body is not None]
        return StoredRows(rows, None if following == b"0" else following.decode())
