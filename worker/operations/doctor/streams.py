"""Whether the changes of a table can be read: its stream is found, and nothing is read from its newest end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from worker.core.errors import WorkerError
from worker.operations.doctor.aws_calls import Refused
from worker.operations.doctor.iam import Calls, unanswered
from worker.operations.doctor.report import Diagnosis, fine, wrong

PROOF: Final = "reads no record from the newest end of a shard"
_NO_STREAM: Final = "enable it with new images: `interlock store init`, or in your infrastructure code"


@dataclass(slots=True)
class StreamLook:
    """One look at the stream of a table; `step` is how far it got."""

    calls: Calls
    name: str
    step: str = field(default="", init=False)

    async def diagnose(self) -> Diagnosis:
        try:
            return await self._look()
        except Refused as refusal:
            remedy = "see that the table and its stream are there"
            if refusal.is_for_lack_of_rights:
                remedy = f"allow dynamodb:{self.step} on the stream of {self.name}"
            return wrong("streams", self.name, f"{self.step} was refused: {refusal}", remedy, proven_by=PROOF)
        except WorkerError as trouble:
            return unanswered(f"dynamodb:{self.step}", trouble)

    async def _look(self) -> Diagnosis:
        table = (await self._call("dynamodb", "DescribeTable", TableName=self.name))["Table"]
        arn = table.get("LatestStreamArn")
        if not arn:
            return wrong("streams", self.name, "the table has no stream", _NO_STREAM)
        stream = (await self._call("dynamodbstreams", "DescribeStream", StreamArn=arn))["StreamDescription"]
        shards: list[Mapping[str, str]] = stream["Shards"]
        if shards:
            await self._read_nothing(arn, shards[-1]["ShardId"])
        finding = f"{len(shards)} shards, {stream.get('StreamViewType')}; they can be read"
        return fine("streams", self.name, finding, proven_by=PROOF)

    async def _read_nothing(self, arn: str, shard: str) -> None:
        begin = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "LATEST"}
        iterator = (await self._call("dynamodbstreams", "GetShardIterator", **begin))["ShardIterator"]
        await self._call("dynamodbstreams", "GetRecords", ShardIterator=iterator, Limit=1)

    async def _call(self, service: str, operation: str, **parameters: object) -> Mapping[str, Any]:
        self.step = operation
        return (await self.calls.call(service, operation, parameters)).body
