"""The inbox in tests: messages as S3, topics and buses send them, and an inbox on a store in memory."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.rules import Rules
from consumers.inbox.rules_file import rules_of
from consumers.queues.queue import Message
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.remote_store import FaultyTables
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

BUCKET = "landing"
RULES = """\
rules:
  - name: orders
    object: {bucket: landing, key: "orders/${date}/*.csv", deletes: report}
    pipeline: orders
    sensor: export
    period: ${date}
    fields: {event: "${event}", etag: "${etag}"}
  - name: invoices
    event: {source: [acme.billing]}
    pipeline: invoices
    sensor: books
  - name: plain
    message: {kind: [load]}
    pipeline: loads
    sensor: ${table}
    fields: {rows: "${rows}", note: "${note}"}
"""


def message(body: object, receive_count: int = 1, message_id: str = "m1") -> Message:
    text = body if isinstance(body, str) else json.dumps(body)
    return Message(id=message_id, handle="h", body=text, sent_at=NOON, receive_count=receive_count)


def an_object(key: str = "orders/2026-03-03/a.csv", etag: str = "e1", sequencer: str = "01") -> dict[str, Any]:
    found = {"key": key, "eTag": etag, "sequencer": sequencer, "size": 12}
    return {name: value for name, value in found.items() if value != ""}


def notification(*objects: Mapping[str, Any], name: str = "ObjectCreated:Put", bucket: str = BUCKET) -> dict[str, Any]:
    """As a bucket sends it."""
    records = [
        {"eventName": name, "eventTime": "2026-03-03T12:00:00.000Z", "s3": {"bucket": {"name": bucket}, "object": each}}
        for each in objects
    ]
    return {"Records": records}


def over_topic(body: object) -> dict[str, Any]:
    return {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": json.dumps(body)}


def over_bus(key: str, etag: str, sequencer: str, kind: str = "Object Created") -> dict[str, Any]:
    found = {"key": key, "etag": etag, "sequencer": sequencer, "size": 12}
    detail = {"bucket": {"name": BUCKET}, "object": found}
    return {"source": "aws.s3", "detail-type": kind, "time": "2026-03-03T12:00:00Z", "detail": detail}


@dataclass
class InboxWorld:
    rules: Rules = field(default_factory=lambda: rules_of(RULES))
    clock: VirtualClock = field(default_factory=VirtualClock)
    delivered: int = 0

    def __post_init__(self) -> None:
        self.tables = FaultyTables(SqliteTables.in_memory(self.clock))
        self.inbox = self.worker()

    def worker(self) -> SensorInbox:
        return SensorInbox(self.tables, self.rules, self.clock)

    async def take_in(self, body: object) -> None:
        """Deliver it as a message of its own, once."""
        self.delivered += 1
        await self.inbox.handle(message(body, message_id=f"m{self.delivered}"))

    async def sensor(self, pipeline: str = "orders", key: str = "export#2026-03-03") -> Mapping[str, Json] | None:
        found = await Sensors(self.tables).get(PipelineId(pipeline), key)
        return None if found is None else found.data
