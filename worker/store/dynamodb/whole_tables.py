"""Reads every row of DynamoDB tables, for a copy that a person asked for. The reads cost money."""

from typing import Any

from worker.core.errors import RetryLater
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.store.dynamodb.errors import CALL_ERRORS, translate
from worker.store.dynamodb.expressions import cursor_from_key, key_from_cursor
from worker.store.dynamodb.values import decode_row
from worker.store.table import TableName
from worker.store.url import TableNames
from worker.store.whole_store import StoredRows


class WholeTables:
    """Reads with consistent scans."""

    def __init__(self, names: TableNames, settings: ClientSettings, clock: Clock) -> None:
        self._names, self._settings, self._clock = names, settings, clock

    async def rows(self, table: TableName, cursor: str | None) -> StoredRows:
        request: dict[str, Any] = {"TableName": self._names[table], "ConsistentRead": True}
        if cursor is not None:
            request["ExclusiveStartKey"] = key_from_cursor(cursor)
        patience = RetryLoop(Backoff(), self._clock)
        while True:
            try:
                async with open_client(self._settings) as client:
                    answer: Any = await client.scan(**request)
                    break
            except CALL_ERRORS as error:
                trouble = translate(error, "Scan")
                if not isinstance(trouble, RetryLater):
                    raise trouble from error
                await patience.wait(trouble)
        return StoredRows(
            [decode_row(item) for item in answer["Items"]], cursor_from_key(answer.get("LastEvaluatedKey"))
        )
