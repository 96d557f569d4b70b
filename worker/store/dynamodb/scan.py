"""Which pipelines a control table holds, where no index lists them: a scan, once, because a person asked for it.

Nothing else in this program scans a table. Tables that the reference made have no list of pipelines, so whoever has no
files of them either has no other way to find out. It is not in `Tables`, so no worker can do it.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.store.dynamodb.errors import CALL_ERRORS, translate

UNIT_BYTES: Final = 8192  # an eventually consistent read of so much costs one read unit


@dataclass(frozen=True, slots=True)
class Size:
    """As DynamoDB last counted, some hours ago at most."""

    rows: int
    bytes: int

    @property
    def read_units(self) -> int:
        """What reading all of it costs: by size, however little of it is wanted."""
        return -(-self.bytes // UNIT_BYTES)


@dataclass(frozen=True, slots=True)
class Stretch:
    """One page: how many rows were looked at, and the pipelines among them."""

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
        """Read the table to its end, a page at a time, one after the other. Raises `RetryLater`, `ConfigError`."""
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
