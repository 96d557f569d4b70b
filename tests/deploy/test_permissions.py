"""The comparison of what is called with what is allowed; the calls themselves are gathered over the whole suite."""

import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws import calls as awscalls
from tests.support.aws import task_roles
from tests.support.aws.calls import Call, Heard
from worker.config.roles import Role
from worker.jobs.aws.glue_logs import DEFAULT_LOG_GROUP
from worker.operations.doctor.checks import table_probes
from worker.store.table import TableName

# One process reads the files: that takes seconds.
pytestmark = pytest.mark.xdist_group("terraform")

ROOT = Path(__file__).parents[2]
ALERTS, SENSORS = frozenset({"alerts"}), frozenset({"sensors"})

KEY = {"PK": {"S": "PIPELINE#orders"}, "SK": {"S": "CONFIG"}}
NOBODYS = {"PK": {"S": "PIPELINE#"}, "SK": {"S": "MARK"}}
PUT, CHECK = {"TableName": "t-joblog", "Item": KEY}, {"TableName": "t-control", "Key": KEY}
WANTED = {"KeyConditionExpression": "#p = :p AND begins_with(#s, :s)", "ExpressionAttributeValues": {":p": KEY["PK"]}}
STREAM = "arn:aws:dynamodb:eu-west-1:000000000000:table/t-events/stream/2027-01-01T00:00:00.000"


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "calls"),
    [
        ("dynamodb", "GetItem", CHECK, {Call("dynamodb:GetItem", "control", "PIPELINE#…")}),
        ("dynamodb", "PutItem", PUT | {"Item": NOBODYS}, {Call("dynamodb:PutItem", "joblog", "PIPELINE#")}),
        ("dynamodb", "Query", {"TableName": "x", **WANTED}, {Call("dynamodb:Query", "", "PIPELINE#…")}),
        (
            "dynamodb",
            "Query",
            {"TableName": "t-control", "IndexName": "LISTS", **WANTED},
            {Call("dynamodb:Query", "control/index")},
        ),
        (
            "dynamodb",
            "BatchGetItem",
            {"RequestItems": {"t-events": {"Keys": [KEY, KEY]}}},
            {Call("dynamodb:BatchGetItem", "events", "PIPELINE#…")},
        ),
        (
            "dynamodb",
            "TransactWriteItems",
            {"TransactItems": [{"Put": PUT}, {"ConditionCheck": CHECK}]},
            {
                Call("dynamodb:PutItem", "joblog", "PIPELINE#…"),
                Call("dynamodb:ConditionCheckItem", "control", "PIPELINE#…"),
            },
        ),
        (
            "dynamodbstreams",
            "GetShardIterator",
            {"StreamArn": STREAM},
            {Call("dynamodb:GetShardIterator", "events/stream")},
        ),
        ("dynamodbstreams", "GetRecords", {"ShardIterator": "i"}, {Call("dynamodb:GetRecords")}),
        (
            "sqs",
            "DeleteMessageBatch",
            {"QueueUrl": "http://x/0/t-alerts"},
            {Call("sqs:DeleteMessage", "queue/alerts")},
        ),
        ("events", "PutEvents", {}, {Call("events:PutEvents", "bus")}),
        ("s3", "PutObject", {"Bucket": "b", "Key": "k"}, {Call("s3:PutObject", "archive/objects")}),
        ("s3", "HeadBucket", {"Bucket": "b"}, {Call("s3:ListBucket", "archive/bucket")}),
        ("s3", "HeadObject", {"Bucket": "b", "Key": "k"}, {Call("s3:GetObject", "probe/objects")}),
        ("s3", "ListObjectsV2", {"Bucket": "b"}, {Call("s3:ListBucket", "probe/buckets")}),
        ("glue", "GetPartition", {}, {Call("glue:GetPartition", "probe/catalogue")}),
        (
            "dynamodb",
            "GetItem",
            {"TableName": "feeds", "Key": {"day": {"S": "d"}}},
            {Call("dynamodb:GetItem", "probe/tables")},
        ),
        *(
            ("athena", name, {}, {Call(f"athena:{name}", "probe/workgroups")})
            for name in ("StartQueryExecution", "GetQueryExecution", "GetQueryResults", "StopQueryExecution")
        ),
        ("stepfunctions", "StartExecution", {}, {Call("states:StartExecution", "states/machine")}),
        ("stepfunctions", "DescribeExecution", {}, {Call("states:DescribeExecution", "states/execution")}),
        ("emr-serverless", "CancelJobRun", {}, {Call("emr-serverless:CancelJobRun", "emr-serverless/run")}),
        ("glue", "GetJob", {}, {Call("glue:GetJob", "glue/job")}),
        ("lambda", "Invoke", {}, {Call("lambda:InvokeFunction", "lambda/function")}),
        (
            "logs",
            "FilterLogEvents",
            {"logGroupName": DEFAULT_LOG_GROUP},
            {Call("logs:FilterLogEvents", f"logs:{DEFAULT_LOG_GROUP}")},
        ),
        (
            "logs",
            "GetLogEvents",
            {"logGroupName": "/aws/lambda/load", "logStreamName": "s"},
            {Call("logs:GetLogEvents", "logs:/aws/lambda/load")},
        ),
    ],
)
def test_a_request_is_known_by_the_action_a_policy_names_and_by_what_it_is_about(
    service: str, operation: str, parameters: Mapping[str, Any], calls: set[Call]
) -> None:
    assert set(awscalls.calls_of(service, operation, parameters)) == calls
    assert task_roles.not_allowed(Heard(call) for call in calls) == []


def test_what_a_process_called_is_read_again_with_its_worker_roles(tmp_path: Path) -> None:
    recorder = awscalls.Recorder(tmp_path, ALERTS)

    recorder.record("dynamodb", "GetItem", CHECK)
    recorder.record("dynamodb", "GetItem", CHECK)

    assert awscalls.load(tmp_path) == {Heard(Call("dynamodb:GetItem", "control", "PIPELINE#…"), ALERTS)}
    assert len(next(tmp_path.iterdir()).read_text().splitlines()) == 1


# --- against the task roles -------------------------------------------------------------------------------------------


def test_a_call_that_no_task_role_allows_is_found() -> None:
    heard = {Heard(Call("dynamodb:Scan", "control")), Heard(Call("dynamodb:GetItem"))}

    assert task_roles.not_allowed(heard) == ["dynamodb:Scan on control"]


@pytest.mark.parametrize("roles", [None, frozenset({"engine"})])
@pytest.mark.parametrize("group", [DEFAULT_LOG_GROUP, "/aws-glue/jobs/own", "/aws-glue/jobs-role-secured/logs-v2"])
def test_the_logs_that_say_whether_a_glue_run_really_succeeded_may_be_read(
    group: str, roles: frozenset[str] | None
) -> None:
    """Otherwise every success would be called unchecked."""
    heard = {Heard(call, roles) for call in awscalls.calls_of("logs", "FilterLogEvents", {"logGroupName": group})}

    assert task_roles.not_allowed(heard) == []


@pytest.mark.parametrize("roles", [None, frozenset({"engine"})])
@pytest.mark.parametrize(
    "call",
    [
        Call("logs:FilterLogEvents", "logs:/prod/worker"),
        Call("states:DescribeExecution", "states/machine"),
        Call("emr-serverless:GetJobRun", "emr-serverless/application"),
        Call("glue:GetJob", "glue/crawler"),
        # Probes and workers have this one on buckets, and nobody on objects.
        Call("s3:ListBucket", "archive/objects"),
        Call("s3:GetObject", "archive/objects"),
        Call("glue:GetPartition", "glue/job"),
        Call("athena:StartQueryExecution", "athena/catalogue"),
        Call("dynamodb:GetItem", "probe/items"),
    ],
)
def test_a_jobs_call_on_what_no_task_role_names_is_found(call: Call, roles: frozenset[str] | None) -> None:
    assert len(task_roles.not_allowed([Heard(call, roles)])) == 1


@pytest.mark.parametrize(
    ("roles", "call"),
    [
        (ALERTS, Call("states:StartExecution")),
        (ALERTS, Call("glue:GetPartition", "probe/catalogue")),
        (SENSORS, Call("athena:StartQueryExecution", "probe/workgroups")),
        (SENSORS, Call("dynamodb:GetItem", "probe/tables")),
        (ALERTS, Call("dynamodb:GetRecords")),
        (ALERTS, Call("dynamodb:PutItem", "control", "PIPELINE#…")),
        (ALERTS, Call("sqs:ReceiveMessage", "queue/events")),
        (SENSORS, Call("dynamodb:PutItem", "control", "MARKER#…")),
        (SENSORS, Call("dynamodb:PutItem", "joblog", "PIPELINE#…")),
        (frozenset({"relay"}), Call("dynamodb:GetShardIterator", "control/stream")),
        (frozenset({"engine"}), Call("dynamodb:UpdateItem", "joblog", "PIPELINE#…")),
        (frozenset({"engine"}), Call("dynamodb:DeleteItem", "joblog", "OTHER#…")),
        (frozenset({"engine"}), Call("dynamodb:DeleteItem", "events", "PIPELINE#…")),
    ],
)
def test_a_call_beyond_the_task_role_of_a_worker_is_found(roles: frozenset[str], call: Call) -> None:
    assert task_roles.not_allowed([Heard(call, roles)]) == [str(Heard(call, roles))]


@pytest.mark.parametrize(
    ("roles", "call"),
    [
        (ALERTS, Call("dynamodb:PutItem", "control", "PIPELINE#")),
        (ALERTS, Call("dynamodb:PutItem", "control", "GROUP#…")),
        (SENSORS, Call("dynamodb:PutItem", "control", "PIPELINE#…")),
        (frozenset({"engine"}), Call("glue:StartJobRun")),
        (frozenset({"engine"}), Call("dynamodb:GetItem", "probe/tables")),
        (frozenset({"engine"}), Call("athena:StopQueryExecution", "probe/workgroups")),
        (frozenset(Role), Call("dynamodb:GetItem", "control", "PING")),
    ],
)
def test_a_call_within_the_task_role_of_a_worker_is_none_to_speak_of(roles: frozenset[str], call: Call) -> None:
    assert task_roles.not_allowed([Heard(call, roles)]) == []


def test_a_write_that_nobody_makes_is_found_in_a_whole_run_and_in_no_other() -> None:
    heard = [Heard(Call(action)) for action in task_roles.allowed() - {"events:PutEvents"}]

    assert task_roles.never_called(heard) == ["events:PutEvents"]
    assert len(task_roles.problems(heard, is_whole=True)) == 1
    assert task_roles.problems(heard, is_whole=False) == []


def test_the_worker_roles_of_the_module_are_those_of_the_program() -> None:
    assert task_roles.roles() == frozenset(Role)


@pytest.mark.parametrize("role", Role)
def test_the_doctor_tries_what_the_task_role_of_a_worker_role_allows_and_nothing_else(role: Role) -> None:
    held = frozenset({role})
    probes = list(table_probes({table: f"t-{table}" for table in TableName}, held))
    tried = {call for each in probes for call in awscalls.calls_of(each.service, each.operation, each.parameters)}

    assert task_roles.not_allowed(Heard(call, held) for call in tried) == []
    # Dead letters are not tried: their partitions are like any other.
    writes = {
        (action, table)
        for statement in task_roles.statements_of(held)
        if not any(each.startswith("DEADLETTER") for each in statement.partitions)
        for action, table in product(statement.actions, statement.on & awscalls.TABLES)
        if action.removeprefix("dynamodb:") in {"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"}
    }
    assert writes <= {(call.action, call.on) for call in tried}


@pytest.mark.parametrize(
    "call",
    [
        Call("dynamodb:PutItem", "control", "PIPELINE#…"),
        Call("dynamodb:DeleteItem", "control", "PIPELINE#…"),
        Call("dynamodb:PutItem", "control", "GROUP#…"),
        Call("dynamodb:PutItem", "control", "MARKER#…"),
        Call("dynamodb:PutItem", "events", "PIPELINE#…"),
        Call("dynamodb:DeleteItem", "events", "DEADLETTER#…"),
    ],
)
def test_the_console_acts_for_operators_and_a_read_only_one_writes_nothing(call: Call) -> None:
    assert task_roles.not_allowed([Heard(call, task_roles.WEB_OPERATOR)]) == []
    assert len(task_roles.not_allowed([Heard(call, task_roles.WEB_VIEWER)])) == 1


def test_the_task_role_of_a_read_only_console_has_reads_alone() -> None:
    actions = {action for each in task_roles.statements_of(task_roles.WEB_VIEWER) for action in each.actions}

    assert actions
    assert {action for action in actions if not task_roles.READS.search(action)} == set()


@pytest.mark.parametrize(
    "call",
    [
        Call("dynamodb:DeleteItem", "control", "MARKER#…"),
        Call("dynamodb:UpdateItem", "control", "PIPELINE#…"),
        Call("dynamodb:DeleteItem", "events", "PIPELINE#…"),
        Call("dynamodb:PutItem", "rerun", "PIPELINE#…"),
        Call("dynamodb:GetRecords"),
        Call("states:StartExecution"),
        Call("sqs:SendMessage", "queue/alerts"),
        Call("events:PutEvents", "bus"),
        Call("ecs:UpdateTaskProtection"),
    ],
)
def test_the_console_does_not_do_the_work_of_workers(call: Call) -> None:
    assert len(task_roles.not_allowed([Heard(call, task_roles.WEB_OPERATOR)])) == 1


def test_no_task_role_may_do_everything() -> None:
    assert [action for action in task_roles.allowed() if "*" in action] == []


def test_a_run_of_tests_that_calls_what_no_task_role_allows_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import os
from pathlib import Path
from tests.support.aws.calls import DIRECTORY, Recorder
def test_it() -> None:
    Recorder(Path(os.environ[DIRECTORY])).record("dynamodb", "Scan", {})
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)

    assert "1 passed" in ran.stdout
    assert "called, and no task role allows it: dynamodb:Scan" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
