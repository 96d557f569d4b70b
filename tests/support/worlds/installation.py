"""A whole installation on an emulator: tables, bus, rule and queue, and what happens on it when a worker is killed."""

import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiobotocore.session import AioSession

from consumers.outbox.severities import told_pattern
from tests.support.aws.emulators import AWS_ENVIRONMENT, Server, new_names, use_test_credentials
from tests.support.fakes.slack import TOKEN, FakeSlack
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import TableName
from worker.store.url import TableNames

REGION: Final = AWS_ENVIRONMENT["AWS_DEFAULT_REGION"]
ROLE: Final = "arn:aws:iam::000000000000:role/orders"
CHANNEL: Final = "C0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where everything is."""

    store: str
    bus: str
    alerts_queue: str
    endpoint: str
    names: TableNames

    def variables(self, slack_api: str) -> Mapping[str, str]:
        """The environment of a worker here, as its task definition gives it."""
        return {
            **AWS_ENVIRONMENT,
            "INTERLOCK_STORE": self.store,
            "INTERLOCK_BUS": self.bus,
            "INTERLOCK_ALERTS_QUEUE": self.alerts_queue,
            "INTERLOCK_SLACK_TOKEN": TOKEN,
            "INTERLOCK_SLACK_CHANNEL": CHANNEL,
            "INTERLOCK_SLACK_API": slack_api,
            "INTERLOCK_METRICS": "emf",
        }


def endpoint_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


@asynccontextmanager
async def client(service: str, endpoint: str) -> AsyncGenerator[Any]:
    create: Any = AioSession().create_client
    async with create(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=AWS_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    ) as opened:
        yield opened


async def install(endpoint: str) -> Installation:
    """Make what the Terraform module makes, as far as a worker needs it."""
    use_test_credentials()
    name, names = f"i{secrets.token_hex(4)}", new_names()
    tables = DynamoTables(names, SystemClock(), ClientSettings(region=REGION, endpoint=endpoint))
    await tables.ensure_tables()
    await tables.stop()
    async with client("sqs", endpoint) as sqs, client("events", endpoint) as events:
        queue = (await sqs.create_queue(QueueName=f"{name}-alerts"))["QueueUrl"]
        asked = await sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
        await events.create_event_bus(Name=name)
        await events.put_rule(Name=f"{name}-alerts", EventBusName=name, EventPattern=json.dumps(told_pattern()))
        target = {"Id": "alerts", "Arn": asked["Attributes"]["QueueArn"]}
        await events.put_targets(Rule=f"{name}-alerts", EventBusName=name, Targets=[target])
    where = "&".join(f"{table}={names[table]}" for table in TableName)
    store = f"dynamodb://?{where}&region={REGION}&endpoint={endpoint}"
    return Installation(store=store, bus=name, alerts_queue=queue, endpoint=endpoint, names=names)


async def make_state_machine(endpoint: str, *, seconds: int, outcome: str = "Succeed") -> str:
    """A job that takes its time and then ends; gives its ARN."""
    states = {
        "Wait": {"Type": "Wait", "Seconds": seconds, "Next": "End"},
        "End": {"Type": outcome, **({"Error": "Bad", "Cause": "the rows are bad"} if outcome == "Fail" else {})},
    }
    definition = json.dumps({"StartAt": "Wait", "States": states})
    async with client("stepfunctions", endpoint) as functions:
        name = f"m{secrets.token_hex(4)}"
        made = await functions.create_state_machine(name=name, roleArn=ROLE, definition=definition)
    return str(made["stateMachineArn"])


async def executions_of(endpoint: str, machine: str) -> list[str]:
    async with client("stepfunctions", endpoint) as functions:
        pages = functions.get_paginator("list_executions").paginate(stateMachineArn=machine)
        return [execution["name"] async for page in pages for execution in page["executions"]]


def write_pipeline(directory: Path, name: str, machine: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.yaml").write_text(
        f"""
pipeline: {{id: {name}, owner: commerce}}
schedule:
  trigger: {{key: landed, check: exists}}
  evaluation: {{window: 1h, interval: 1m}}
validation:
  rules: [{{key: landed, field: rows, check: gte, value: 10}}]
job:
  type: step-function
  config: {{stateMachineArn: "{machine}"}}
  pollIntervalSeconds: 1
  maxRetries: 0
"""
    )


@asynccontextmanager
async def slack_on_loopback() -> AsyncGenerator[tuple[FakeSlack, str]]:
    slack = FakeSlack(SystemClock())
    async with slack.on_loopback() as api:
        yield slack, api
