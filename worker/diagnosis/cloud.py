"""Everything on AWS that a worker with given settings needs: who it is, its clock, its rights, its bus and queues."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from worker.core.errors import RetryLater, WorkerError
from worker.core.skew import SKEW_MAX
from worker.core.values import Json
from worker.diagnosis.aws_calls import Answer, Refused
from worker.diagnosis.diagnosis import Diagnosis, doubtful, fine, wrong
from worker.diagnosis.probes import Probe, followed_tables, queue_probes, queues, secret_probe, table_probes
from worker.settings import Duty, Settings
from worker.store.dynamodb_requests import TableNames
from worker.store.table import TableName

RULES_MAX: Final = 100
MANAGED: Final = "secretsmanager://"


class Calls(Protocol):
    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Answer:
        """Raises `Refused`, and `RetryLater` where nothing answered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """`told`: the pattern of events that people must hear of, which the alerts' rule has to have."""

    calls: Calls
    settings: Settings
    names: TableNames
    told: Mapping[str, Json]

    async def look(self) -> AsyncIterator[Diagnosis]:
        """One thing after the other; what fails keeps nothing else from being looked at."""
        async for found in self._identity():
            yield found
        async for found in self._rights(table_probes(self.names, self.settings.duties)):
            yield found
        for table in followed_tables(self.settings.duties):
            async for found in self._stream(table):
                yield found
        if Duty.RELAY in self.settings.duties:
            async for found in self._bus():
                yield found
        for name, address in queues(self.settings.aws, self.settings.duties).items():
            async for found in self._queue(name, address):
                yield found
        token = self.settings.people.slack_token
        if token.startswith(MANAGED):
            yield await self._ask(secret_probe(token.removeprefix(MANAGED).partition("#")[0]))

    # --- who we are, and when -----------------------------------------------------------------------------------------

    async def _identity(self) -> AsyncIterator[Diagnosis]:
        try:
            answer = await self.calls.call("sts", "GetCallerIdentity", {})
        except (Refused, WorkerError) as trouble:
            remedy = "set AWS_PROFILE or the task's role, and the region; an endpoint must be one that answers"
            yield wrong("credentials", "who we are", f"no usable credentials: {trouble}", remedy)
            return
        yield fine("credentials", "who we are", f"{answer.body.get('Arn')} in account {answer.body.get('Account')}")
        yield _clock(answer.ahead_s)

    # --- rights -------------------------------------------------------------------------------------------------------

    async def _rights(self, probes: Iterable[Probe]) -> AsyncIterator[Diagnosis]:
        for probe in probes:
            yield await self._ask(probe)

    async def _ask(self, probe: Probe) -> Diagnosis:
        try:
            await self.calls.call(probe.service, probe.operation, probe.parameters)
        except Refused as refusal:
            return _judged(probe, refusal)
        except WorkerError as trouble:
            return _unanswered(probe.action, trouble)
        return fine("permissions", probe.action, f"allowed on {probe.resource}", proven_by=probe.proof)

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _stream(self, table: TableName) -> AsyncIterator[Diagnosis]:
        """Find the stream, then read nothing from the newest end of one of its shards."""
        name, step = self.names[table], "DescribeTable"
        try:
            described = await self.calls.call("dynamodb", step, {"TableName": name})
            arn = described.body["Table"].get("LatestStreamArn")
            if not arn:
                remedy = "enable it with new images: `interlock store init`, or in your infrastructure code"
                yield wrong("streams", name, "the table has no stream", remedy)
                return
            step = "DescribeStream"
            shards = (await self.calls.call("dynamodbstreams", step, {"StreamArn": arn})).body["StreamDescription"]
            if shards["Shards"]:
                step = "GetShardIterator"
                begin = {"StreamArn": arn, "ShardId": shards["Shards"][-1]["ShardId"], "ShardIteratorType": "LATEST"}
                iterator = (await self.calls.call("dynamodbstreams", step, begin)).body["ShardIterator"]
                step = "GetRecords"
                await self.calls.call("dynamodbstreams", step, {"ShardIterator": iterator, "Limit": 1})
        except Refused as refusal:
            remedy = f"allow dynamodb:{step} on the stream of {name}" if refusal.is_for_lack_of_rights else "look at it"
            yield wrong("streams", name, f"{step} was refused: {refusal}", remedy)
        except WorkerError as trouble:
            yield _unanswered(f"dynamodb:{step}", trouble)
        else:
            found = f"{len(shards['Shards'])} shards, {shards.get('StreamViewType')}; they can be read"
            yield fine("streams", name, found, proven_by="reads no record from the newest end of a shard")

    # --- the bus ------------------------------------------------------------------------------------------------------

    async def _bus(self) -> AsyncIterator[Diagnosis]:
        bus = self.settings.aws.bus
        if not bus:
            yield doubtful(
                "bus", "INTERLOCK_BUS", "no bus is set, so events go to people only", "set it, if others listen"
            )
            return
        yield await self._publishing(bus)
        try:
            await self.calls.call("events", "DescribeEventBus", {"Name": bus})
            listed = await self.calls.call("events", "ListRules", {"EventBusName": bus, "Limit": RULES_MAX})
        except Refused as refusal:
            if refusal.is_for_lack_of_rights:
                remedy = "a worker needs no such right; for this check, use a role that may describe the bus"
                yield doubtful("bus", bus, f"it cannot be looked at: {refusal}", remedy)
            else:
                yield wrong("bus", bus, f"{refusal}", "correct INTERLOCK_BUS, or make the bus")
            return
        except WorkerError as trouble:
            yield _unanswered("events:DescribeEventBus", trouble)
            return
        yield fine("bus", bus, "it is there", proven_by="describes the bus")
        rules: list[Mapping[str, Any]] = list(listed.body.get("Rules", []))
        if not any(_has_pattern(rule, self.told) for rule in rules):
            remedy = "deploy the module's rule again, so that people hear of every kind of event"
            yield doubtful("rules", bus, "no rule has the present pattern of what people are told", remedy)
        for rule in rules:
            yield await self._rule(bus, rule)

    async def _publishing(self, bus: str) -> Diagnosis:
        """An event whose detail is not JSON is refused by itself, after the right to put it was granted."""
        action, proof = "events:PutEvents", "puts an event that is not JSON, and it is refused"
        entry = {"EventBusName": bus, "Source": "interlock.doctor", "DetailType": "NOTHING", "Detail": "not JSON"}
        try:
            answer = await self.calls.call("events", "PutEvents", {"Entries": [entry]})
        except Refused as refusal:
            remedy = f"allow {action} on {bus}, or use the role of the worker"
            return wrong("permissions", action, f"refused on bus {bus}: {refusal}", remedy, proven_by=proof)
        except WorkerError as trouble:
            return _unanswered(action, trouble)
        code = str(answer.body["Entries"][0].get("ErrorCode", ""))
        if Refused(code, "").is_for_lack_of_rights:
            return wrong(
                "permissions", action, f"refused on bus {bus}: {code}", f"allow {action} on it", proven_by=proof
            )
        return fine("permissions", action, f"allowed on bus {bus}", proven_by=proof)

    async def _rule(self, bus: str, rule: Mapping[str, Any]) -> Diagnosis:
        name = str(rule["Name"])
        if rule.get("State") == "DISABLED":
            return wrong("rules", name, "it is disabled", "enable it, or delete it")
        try:
            answer = await self.calls.call("events", "ListTargetsByRule", {"Rule": name, "EventBusName": bus})
        except (Refused, RetryLater) as trouble:
            return doubtful("rules", name, f"its targets are unknown: {trouble}", "use a role that may list them")
        targets: list[Mapping[str, Any]] = list(answer.body.get("Targets", []))
        if not targets:
            return wrong("rules", name, "it has no target", "give it one, or delete it")
        careless = [str(target["Id"]) for target in targets if not target.get("DeadLetterConfig")]
        if careless:
            finding = f"target {', '.join(careless)} has no dead-letter queue: what it refuses is lost"
            return doubtful("rules", name, finding, "give the target a dead-letter queue")
        return fine("rules", name, f"enabled, with {len(targets)} targets and their dead-letter queues")

    # --- queues -------------------------------------------------------------------------------------------------------

    async def _queue(self, name: str, address: str) -> AsyncIterator[Diagnosis]:
        if not address:
            variable = f"INTERLOCK_{name.upper()}_QUEUE"
            yield doubtful(
                "queues", name, f"{variable} is not set, so this duty does nothing", "set it, or drop the duty"
            )
            return
        asked = {"QueueUrl": address, "AttributeNames": ["All"]}
        try:
            found: Mapping[str, str] = (await self.calls.call("sqs", "GetQueueAttributes", asked)).body["Attributes"]
        except Refused as refusal:
            yield wrong("queues", name, f"{refusal}", "correct its address, or allow sqs:GetQueueAttributes")
            return
        except WorkerError as trouble:
            yield _unanswered("sqs:GetQueueAttributes", trouble)
            return
        if "RedrivePolicy" in found:
            receives = json.loads(found["RedrivePolicy"]).get("maxReceiveCount")
            yield fine("queues", name, f"given up after {receives} receives; {_waiting(found)}")
        else:
            finding = f"it has no dead-letter queue; {_waiting(found)}"
            yield doubtful("queues", name, finding, "give it one: a message nobody settles is lost after its retention")
        async for right in self._rights(queue_probes(name, address)):
            yield right


def _clock(ahead_s: float | None) -> Diagnosis:
    if ahead_s is None:
        return doubtful("clock", "skew", "the service did not say what time it is", "compare the clock by hand")
    said = f"this clock is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    if abs(ahead_s) > SKEW_MAX.total_seconds():
        remedy = f"set the clock: beyond {SKEW_MAX.total_seconds():.0f} s a worker takes no decision"
        return wrong("clock", "skew", said, remedy)
    return fine("clock", "skew", said if ahead_s else "this clock agrees with the service's")


def _judged(probe: Probe, refusal: Refused) -> Diagnosis:
    if refusal.code in probe.refusals:
        return fine("permissions", probe.action, f"allowed on {probe.resource}", proven_by=probe.proof)
    if refusal.is_for_lack_of_rights:
        remedy = f"allow {probe.action} on {probe.resource}, or use the role of the worker"
        return wrong(
            "permissions", probe.action, f"refused on {probe.resource}: {refusal}", remedy, proven_by=probe.proof
        )
    finding = f"{probe.resource} answered {refusal}"
    return wrong("permissions", probe.action, finding, "see that it is there and as it must be", proven_by=probe.proof)


def _unanswered(action: str, trouble: WorkerError) -> Diagnosis:
    return wrong("permissions", action, f"no answer: {trouble}", "see the network, the region and the endpoint")


def _has_pattern(rule: Mapping[str, Any], told: Mapping[str, Json]) -> bool:
    try:
        return json.loads(str(rule.get("EventPattern") or "null")) == told
    except ValueError:
        return False


def _waiting(found: Mapping[str, str]) -> str:
    return f"{found.get('ApproximateNumberOfMessages', '?')} messages wait"
