"""The comparison of what is called with what is allowed; the calls themselves are gathered over the whole suite."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import awscalls

TRANSACTION: dict[str, Any] = {"TransactItems": [{"Put": {}}, {"ConditionCheck": {}}]}
NOTHING: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "actions"),
    [
        ("dynamodb", "GetItem", NOTHING, {"dynamodb:GetItem"}),
        ("dynamodbstreams", "GetRecords", NOTHING, {"dynamodb:GetRecords"}),
        ("stepfunctions", "StartExecution", NOTHING, {"states:StartExecution"}),
        ("lambda", "Invoke", NOTHING, {"lambda:InvokeFunction"}),
        ("sqs", "DeleteMessageBatch", NOTHING, {"sqs:DeleteMessage"}),
        ("dynamodb", "TransactWriteItems", TRANSACTION, {"dynamodb:PutItem", "dynamodb:ConditionCheckItem"}),
    ],
)
def test_a_call_is_known_by_the_action_a_policy_names(
    service: str, operation: str, parameters: Mapping[str, Any], actions: set[str]
) -> None:
    recorder = awscalls.Recorder()

    recorder.record(service, operation, parameters)

    assert recorder.actions == actions
    assert awscalls.not_allowed(actions) == []


def test_a_call_that_no_role_allows_is_found() -> None:
    assert awscalls.not_allowed({"dynamodb:Scan", "dynamodb:GetItem"}) == ["dynamodb:Scan"]


def test_a_write_that_nobody_makes_is_found() -> None:
    called = awscalls.allowed() - {"events:PutEvents"}

    assert awscalls.never_called(called) == ["events:PutEvents"]


def test_no_role_may_do_everything() -> None:
    assert [action for action in awscalls.allowed() if action.endswith("*")] == []
