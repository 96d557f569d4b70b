"""Scans a control table for its pipelines where no index lists them, when a person asks for it.

Nothing else in this program scans a table. Tables that the Lambda edition created have no list of pipelines, so without
the pipeline files there is no other way to find them. The scan is not part of `Tables`, so no worker can do it.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.store.dynamodb.errors import CALL_ERRORS, translate

UNIT_BYTES: Final = 8192  # an eventually consistent read of this size costs one read unit


@dataclass(frozen=True, slots=True)
class Size:
    """Holds a table's size as DynamoDB last counted it, some hours ago at most."""

    rows: int
    bytes: int

    @property
    def read_units(self) -> int:
        """Return the cost of a full scan, which depends on the size and not on the filter."""
        return -(-self.bytes // UNIT_BYTES)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Holds one page: how many rows were read, and the pipelines among them."""

    rows: int
    pipelines: tuple[PipelineId, ...]


class WholeTable:
    def __init__(self, name: str, settings: ClientSettings, clock: Clock) -> None:
        self._name, self._settings, self._clock = name, settings, clock

    async def size(self) -> Size:
        async with open_client(self._settings) as client:
            try:
                table: Any = (await client.describe_table(TableName=self._name))["Table"]
            except CALL_ERRORS as error:
                raise translate(error, "DescribeTable") from error
        return Size(rows=int(table.get("ItemCount", 0)), bytes=int(table.get("TableSizeBytes", 0)))

    async def pipelines(self) -> AsyncIterator[Stretch]:
        """Yield the whole table page by page. Raises `RetryLater` and `ConfigError`."""
        request: dict[str, Any] = {
            "TableName": self._name,
            "FilterExpression": "SK = :config",
            "ExpressionAttributeValues": {":config": {"S": keys.CONFIG}},
            "ProjectionExpression": "PK",
        }
        async with open_client(self._settings) as client:
            while True:
                answer = await self._page(client, request)
                found = (keys.pipeline_of(item["PK"]["S"]) for item in answer["Items"])
                yield Stretch(int(answer["ScannedCount"]), tuple(name for name in found if name))
                if not answer.get("LastEvaluatedKey"):
                    return
                request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def _page(self, client: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401 - the library's own types
        patience = RetryLoop(Backoff(), self._clock)
        while True:
            try:
                return await client.scan(**request)
            except CALL_ERRORS as error:
                trouble = translate(error, "Scan")
                if not isinstance(trouble, RetryLater):
                    raise trouble from error
                await patience.wait(trouble)
