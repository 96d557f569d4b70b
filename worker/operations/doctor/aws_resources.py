"""Checks the AWS resources of a worker: the event bus and its rules, queues, and table streams."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from worker.core.errors import WorkerError
from worker.core.model.values import Json
from worker.operations.doctor.aws_calls import AwsRefusal
from worker.operations.doctor.checks import queue_probes
from worker.operations.doctor.iam import IamCalls, ask, denied, granted, unanswered
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong

PAGE: Final = 100
PAGES_MAX: Final = 20  # of rules; the default quota of a bus is 300 rules
PUBLISHED: Final = "puts an event that is not JSON, which the bus refuses by itself"
_PUT: Final = "events:PutEvents"


@dataclass(frozen=True, slots=True, kw_only=True)
class BusLook:
    """Checks the bus. `told` is the pattern of events that people must receive; the alerts' rule needs it."""

    calls: IamCalls
    bus: str
    told: Mapping[str, Json]

    async def diagnose(self) -> AsyncIterator[Diagnosis]:
        if not self.bus:
            finding = "no bus is set, so events go to people only"
            yield doubtful("bus", "INTERLOCK_BUS", finding, "set it, if others listen")
            return
        yield await self._publishing()
        try:
            rules, is_whole = await self._rules()
        except AwsRefusal as refusal:
            yield self._not_there(refusal)
            return
        except WorkerError as trouble:
            yield unanswered("events:DescribeEventBus", trouble)
            return
        yield fine("bus", self.bus, "it exists", proven_by="describes the bus")
        if not is_whole:
            finding = f"it has more than {len(rules):,} rules, and the others were not checked"
            yield doubtful("rules", self.bus, finding, "check the others yourself")
        if not any(_has_pattern(rule, self.told) for rule in rules):
            remedy = "deploy the module's rule again, so that every alert reaches people"
            yield doubtful("rules", self.bus, "no rule has the current pattern of alerts", remedy)
        for rule in rules:
            yield await self._rule(rule)

    async def _publishing(self) -> Diagnosis:
        entry = {"EventBusName": self.bus, "Source": "interlock.doctor", "DetailType": "NOTHING", "Detail": "not JSON"}
        try:
            answer = await self.calls.call("events", "PutEvents", {"Entries": [entry]})
        except AwsRefusal as refusal:
            return denied(_PUT, f"bus {self.bus}", refusal, PUBLISHED)
        except WorkerError as trouble:
            return unanswered(_PUT, trouble)
        refusal = AwsRefusal(str(answer.body["Entries"][0].get("ErrorCode", "")), "")
        if refusal.is_for_lack_of_rights:
            return denied(_PUT, f"bus {self.bus}", refusal, PUBLISHED)
        return granted(_PUT, f"bus {self.bus}", PUBLISHED)

    async def _rules(self) -> tuple[list[Mapping[str, Any]], bool]:
        """Return the rules of the bus; False if there are more than `PAGES_MAX` pages."""
        await self.calls.call("events", "DescribeEventBus", {"Name": self.bus})
        rules: list[Mapping[str, Any]] = []
        more: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            asked = {"EventBusName": self.bus, "Limit": PAGE, **more}
            listed = await self.calls.call("events", "ListRules", asked)
            rules += listed.body.get("Rules", [])
            if not (token := listed.body.get("NextToken")):
                return rules, True
            more = {"NextToken": str(token)}
        return rules, False

    def _not_there(self, refusal: AwsRefusal) -> Diagnosis:
        if refusal.is_for_lack_of_rights:
            remedy = "a worker needs no such right; for this check, use a role that may describe the bus"
            return doubtful("bus", self.bus, f"it cannot be checked: {refusal}", remedy)
        return wrong("bus", self.bus, str(refusal), "correct INTERLOCK_BUS, or make the bus")

    async def _rule(self, rule: Mapping[str, Any]) -> Diagnosis:
        name = str(rule["Name"])
        if rule.get("State") == "DISABLED":
            return wrong("rules", name, "it is disabled", "enable it, or delete it")
        try:
            answer = await self.calls.call("events", "ListTargetsByRule", {"Rule": name, "EventBusName": self.bus})
        except (AwsRefusal, WorkerError) as trouble:
            return doubtful("rules", name, f"its targets are unknown: {trouble}", "use a role that may list them")
        return _judged(name, list(answer.body.get("Targets", [])))


def _judged(rule: str, targets: list[Mapping[str, Any]]) -> Diagnosis:
    if not targets:
        return wrong("rules", rule, "it has no target", "give it one, or delete it")
    careless = [str(target["Id"]) for target in targets if not target.get("DeadLetterConfig")]
    if careless:
        finding = f"target {', '.join(careless)} has no dead-letter queue: what it refuses is lost"
        return doubtful("rules", rule, finding, "give the target a dead-letter queue")
    return fine("rules", rule, f"enabled, with {len(targets)} targets and their dead-letter queues")


def _has_pattern(rule: Mapping[str, Any], told: Mapping[str, Json]) -> bool:
    try:
        return json.loads(str(rule.get("EventPattern") or "null")) == told
    except ValueError:
        return False


async def look_at_queue(calls: IamCalls, name: str, address: str) -> AsyncIterator[Diagnosis]:
    if not address:
        finding = f"INTERLOCK_{name.upper()}_QUEUE is not set, so this role does nothing"
        yield doubtful("queues", name, finding, "set it, or remove the role")
        return
    try:
        answer = await calls.call("sqs", "GetQueueAttributes", {"QueueUrl": address, "AttributeNames": ["All"]})
    except AwsRefusal as refusal:
        yield wrong("queues", name, str(refusal), "correct its address, or allow sqs:GetQueueAttributes")
        return
    except WorkerError as trouble:
        yield unanswered("sqs:GetQueueAttributes", trouble)
        return
    yield _judged_queue(name, answer.body.get("Attributes", {}))
    for probe in queue_probes(name, address):
        yield await ask(calls, probe)


def _judged_queue(name: str, attributes: Mapping[str, str]) -> Diagnosis:
    waiting = f"{attributes.get('ApproximateNumberOfMessages', '?')} messages wait"
    if "RedrivePolicy" not in attributes:
        remedy = "give it one: a message that is not processed is lost after its retention"
        return doubtful("queues", name, f"it has no dead-letter queue; {waiting}", remedy)
    receives = json.loads(attributes["RedrivePolicy"]).get("maxReceiveCount")
    return fine("queues", name, f"given up after {receives} receives; {waiting}")


PROOF: Final = "reads no record from the newest end of a shard"
_NO_STREAM: Final = "enable it with new images: `interlock store init`, or in your infrastructure code"


@dataclass(slots=True)
class StreamLook:
    """Checks the stream of a table once; `step` is the last operation called."""

    calls: IamCalls
    name: str
    step: str = field(default="", init=False)

    async def diagnose(self) -> Diagnosis:
        try:
            return await self._look()
        except AwsRefusal as refusal:
            remedy = "check that the table and its stream exist"
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
