"""Every call to AWS that the program makes while it is tested, here and in the processes that tests start.

A call counts if its client was opened by the program, which is known by its user agent; what tests do to set the stage
does not, nor a look that a person asked for, which has an agent of its own. `task_roles.py` holds the calls
against what the roles of the deployment allow.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiobotocore.client import AioBaseClient

DIRECTORY: Final = "TESTS_AWS_CALLS"  # where the processes of one run leave what they saw; they inherit it
PREFIXES: Final = {
    "dynamodbstreams": "dynamodb",
    "emr": "elasticmapreduce",
    "stepfunctions": "states",
}
# One action for several operations, or with another name.
RENAMED: Final = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "s3:CopyObject": "s3:PutObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "sqs:SendMessageBatch": "sqs:SendMessage",
}
TRANSACTED: Final = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
# What a job's call is about, in the words of the policies: who asks about an execution needs a right on executions.
JOB_RESOURCES: Final = {
    "glue": "glue/job",
    "emr": "emr/cluster",
    "emr-serverless": "emr-serverless/application",
    "stepfunctions": "states/machine",
    "lambda": "lambda/function",
    "athena": "probe/workgroups",
}
PARTS_OF_JOBS: Final = {
    "emr-serverless:GetJobRun": "emr-serverless/run",
    "emr-serverless:CancelJobRun": "emr-serverless/run",
    "states:DescribeExecution": "states/execution",
    "states:StopExecution": "states/execution",
    "glue:GetPartition": "probe/catalogue",
}
# What probes ask of S3; the archive writes objects and looks at its bucket.
OF_INBOX: Final = frozenset({"CopyObject", "DeleteObject"})  # only the objects of completed runs are moved
OF_PROBES: Final = {"HeadObject": "probe/objects", "ListObjectsV2": "probe/buckets"}
TABLES: Final = frozenset({"control", "joblog", "rerun", "events"})
QUEUES: Final = frozenset({"alerts", "events", "sensors"})


@dataclass(frozen=True, slots=True)
class Call:
    """An action as policies name it, on what it was called, and in which family of partitions; "" is not known."""

    action: str
    on: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """Who called. `roles`: those of a worker's process; None for anything else."""

    call: Call
    roles: frozenset[str] | None = None

    def __str__(self) -> str:
        call = self.call
        where = "".join(f" {word} {name}" for word, name in (("on", call.on), ("in", call.partition)) if name)
        by = "" if self.roles is None else f" by a worker for {', '.join(sorted(self.roles))}"
        return f"{call.action}{where}{by}"


class Recorder:
    """Notes each call in a file of its own when it is first made: a process may be killed at any time."""

    def __init__(self, directory: Path, roles: frozenset[str] | None = None) -> None:
        self._path = directory / f"{os.getpid()}.calls"
        self._who = "" if roles is None else ",".join(sorted(roles))
        self._seen: set[Call] = set()

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
        for made in calls_of(service, operation, parameters):
            # Tests write any row of any table, so of their own calls the action alone says something. But what is about
            # a job is chosen by the program, whoever has it called.
            call = made if self._who or service in JOB_RESOURCES or service == "logs" else Call(made.action)
            if call not in self._seen:
                self._seen.add(call)
                with self._path.open("a") as file:
                    file.write(f"{self._who}\t{call.action}\t{call.on}\t{call.partition}\n")


def load(directory: Path) -> set[Heard]:
    return {_heard(line) for path in directory.glob("*.calls") for line in path.read_text().splitlines()}


def _heard(line: str) -> Heard:
    who, *call = line.split("\t")
    return Heard(Call(*call), frozenset(who.split(",")) if who else None)


# --- what a request is, in the words of a policy ----------------------------------------------------------------------


def calls_of(service: str, operation: str, parameters: Mapping[str, Any]) -> Iterator[Call]:
    """A transaction and a batch are several calls, each with a right of its own."""
    if operation == "TransactWriteItems":
        for item in parameters["TransactItems"]:
            for kind, request in item.items():
                yield from _rows(TRANSACTED[kind], request)
        return
    named = f"{PREFIXES.get(service, service)}:{operation}"
    action = RENAMED.get(named, named)
    match service:
        case "dynamodb" if operation == "BatchGetItem":
            for name, asked in parameters["RequestItems"].items():
                yield from _in_partitions(action, _kind(name, TABLES), asked["Keys"])
        case "dynamodb":
            yield from _rows(action, parameters)
        case "dynamodbstreams" if "StreamArn" in parameters:
            table = _kind(parameters["StreamArn"].partition("/stream/")[0], TABLES)
            yield Call(action, table and f"{table}/stream")
        case "sqs":
            queue = _kind(parameters.get("QueueUrl", ""), QUEUES)
            yield Call(action, queue and f"queue/{queue}")
        case "events":
            yield Call(action, "bus")
        case "s3" if operation in OF_PROBES:
            yield Call(action, OF_PROBES[operation])
        case "s3" if operation in OF_INBOX:
            yield Call(action, "inbox/objects")
        case "s3":
            yield Call(action, "archive/objects" if "Key" in parameters else "archive/bucket")
        case "logs":
            yield Call(action, f"logs:{parameters.get('logGroupName', '')}")
        case _ if service in JOB_RESOURCES:
            yield Call(action, PARTS_OF_JOBS.get(action, JOB_RESOURCES[service]))
        case _:
            yield Call(action)


def _rows(action: str, request: Mapping[str, Any]) -> Iterator[Call]:
    table = _kind(request.get("TableName", ""), TABLES)
    if action == "dynamodb:GetItem" and "PK" not in request.get("Key", {}):
        yield Call(action, "probe/tables")  # a table of somebody else: all of ours have this key
        return
    if "IndexName" in request:
        yield Call(action, table and f"{table}/index")
    elif "KeyConditionExpression" in request:
        # A partition is always asked for first, and by equality.
        asked = request["KeyConditionExpression"].split()[2]
        yield from _in_partitions(action, table, [{"PK": request["ExpressionAttributeValues"][asked]}])
    else:
        yield from _in_partitions(action, table, [request.get("Key") or request.get("Item") or {}])


def _in_partitions(action: str, table: str, keys: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
    for partition in {str(key.get("PK", {}).get("S", "")) for key in keys}:
        yield Call(action, table, family_of(partition))


def family_of(partition: str) -> str:
    """The partition of no pipeline is a family of its own: somebody may write there who may not write elsewhere."""
    family, mark, _ = partition.partition("#")
    return partition if partition == f"{family}{mark}" else f"{family}{mark}…"


def _kind(name: str, kinds: frozenset[str]) -> str:
    """Names end in what they are of, in the module as in the tests; "" for those that do not."""
    kind = name.rpartition("-")[2]
    return kind if kind in kinds else ""
