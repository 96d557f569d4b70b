"""Every call to AWS that the program makes while it is tested, held against what its task roles allow.

A call counts if its client was opened by the program, which is known by its user agent; what tests do to set the stage
does not, nor a look that a person asked for, which has an agent of its own. Calls of processes that tests start are not
seen here; they run the same code.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from aiobotocore.client import AioBaseClient

MODULE: Final = Path(__file__).parents[1] / "deploy/terraform"
PREFIXES: Final = {
    "dynamodbstreams": "dynamodb",
    "emr": "elasticmapreduce",
    "stepfunctions": "states",
}
# One action for several operations, or with another name.
RENAMED: Final = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "sqs:SendMessageBatch": "sqs:SendMessage",
}
# What a person does with `interlock store init`, or with an inbox before its first day: by rights of their own.
BY_PEOPLE: Final = frozenset(
    {
        "dynamodb:CreateTable",
        "dynamodb:UpdateTable",
        "dynamodb:UpdateTimeToLive",
        "dynamodb:DescribeTimeToLive",
        "dynamodb:ListStreams",
        "s3:ListObjectsV2",
    }
)
# Changes can come through Kinesis too; the module reads streams.
OTHER_SOURCES: Final = frozenset(
    {"kinesis:DescribeStreamSummary", "kinesis:ListShards", "kinesis:GetShardIterator", "kinesis:GetRecords"}
)
TRANSACTED: Final = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
READS: Final = re.compile(r":(Get|BatchGet|Describe|List|Query|ConditionCheck|Filter|Receive)")
# Allowed beside calls: a role that a job is given is passed, which no client of ours calls by this name; keys are
# used by the services on our behalf.
NO_CALLS: Final = frozenset({"iam:PassRole", "kms:Decrypt", "kms:GenerateDataKey"})


class Recorder:
    """What was called, as actions of policies."""

    def __init__(self) -> None:
        self.actions: set[str] = set()

    def install(self) -> Callable[[], None]:
        """Listen to every client of this process; gives what ends it."""
        library: Any = AioBaseClient
        stock: Callable[..., Awaitable[Any]] = library._make_api_call
        record = self.record

        async def listening(client: Any, operation: str, parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401
            if str(client.meta.config.user_agent or "").startswith("interlock"):
                record(client.meta.service_model.service_name, operation, parameters)
            return await stock(client, operation, parameters)

        library._make_api_call = listening

        def remove() -> None:
            library._make_api_call = stock

        return remove

    def record(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        if operation == "TransactWriteItems":
            self.actions |= {TRANSACTED[kind] for item in parameters["TransactItems"] for kind in item}
            return
        action = f"{PREFIXES.get(service, service)}:{operation}"
        self.actions.add(RENAMED.get(action, action))


@cache
def allowed() -> frozenset[str]:
    """All actions of the task roles, whichever duty they are for."""
    text = (MODULE / "roles.tf").read_text() + (MODULE / "jobs.tf").read_text()
    tasks = text.partition("# --- what ECS itself needs")[0] + (MODULE / "jobs.tf").read_text()
    return frozenset(re.findall(r'"([a-z-]+:[A-Za-z]+)"', tasks)) - {"sts:AssumeRole"}


def not_allowed(called: Iterable[str]) -> list[str]:
    return sorted(set(called) - allowed() - BY_PEOPLE - OTHER_SOURCES)


def never_called(called: Iterable[str]) -> list[str]:
    """Writes that a role may do and nobody does."""
    writes = {action for action in allowed() if not READS.search(action)}
    return sorted(writes - set(called) - NO_CALLS)


def save(actions: Iterable[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sorted(actions)))


def load(directory: Path) -> set[str]:
    return {action for path in directory.glob("*.json") for action in json.loads(path.read_text())}
