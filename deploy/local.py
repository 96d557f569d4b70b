"""Make the bus, the alerts queue and the rule between them on an emulator, for `deploy/compose.yaml`.

On AWS the Terraform module makes them. Everything may be there already: then nothing changes.
"""

import asyncio
import json
import os
from typing import Any

from aiobotocore.session import AioSession

from consumers.outbox.severities import told_pattern

NAME = "interlock"


async def main(endpoint: str) -> None:
    create: Any = AioSession().create_client
    async with create("sqs", endpoint_url=endpoint) as sqs, create("events", endpoint_url=endpoint) as events:
        arns: dict[str, str] = {}
        for name in ("alerts-dlq", "alerts"):
            redrive = {"deadLetterTargetArn": arns.get("alerts-dlq"), "maxReceiveCount": 100}
            attributes = {"RedrivePolicy": json.dumps(redrive)} if arns else {}
            url = (await sqs.create_queue(QueueName=f"{NAME}-{name}", Attributes=attributes))["QueueUrl"]
            asked = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            arns[name] = asked["Attributes"]["QueueArn"]
        if NAME not in {bus["Name"] for bus in (await events.list_event_buses())["EventBuses"]}:
            await events.create_event_bus(Name=NAME)
        await events.put_rule(Name=f"{NAME}-alerts", EventBusName=NAME, EventPattern=json.dumps(told_pattern()))
        target = {"Id": "alerts", "Arn": arns["alerts"], "DeadLetterConfig": {"Arn": arns["alerts-dlq"]}}
        await events.put_targets(Rule=f"{NAME}-alerts", EventBusName=NAME, Targets=[target])


if __name__ == "__main__":
    asyncio.run(main(os.environ["ENDPOINT"]))
