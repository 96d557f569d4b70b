"""The fake is as strict as AWS's own models: what they do not allow, it does not let pass."""

import json
from typing import Any

import pytest

from tests.support.fakes.aws_model import AgainstModel, Call, read_call, write_answer, write_error
from tests.support.fakes.http_target import Received

SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260303/eu-west-1/{}/aws4_request, SignedHeaders=host, Signature=0"
START: dict[str, Any] = {"JobName": "etl"}
CALL = Call("glue", "StartJobRun", START)


def a_request(parameters: object, service: str = "glue", target: str = "AWSGlue.StartJobRun") -> Received:
    headers = {"authorization": SIGNED.format(service), "x-amz-target": target}
    return Received(method="POST", path="/", headers=headers, body=json.dumps(parameters).encode())


def a_rest_request(method: str, path: str, body: object, service: str = "emr-serverless") -> Received:
    headers = {"authorization": SIGNED.format(service)}
    return Received(method=method, path=path, headers=headers, body=json.dumps(body).encode() if body else b"")


def test_a_sound_request_is_read() -> None:
    assert read_call(a_request(START)) == CALL


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "Missing required parameter"),
        ({**START, "Argumnts": {}}, "Unknown parameter"),
        ({**START, "Arguments": {"--n": 5}}, "Invalid type"),
        ({**START, "ExecutionClass": "CHEAP"}, "none of"),
        ({"JobName": "n" * 300}, "longer than 255"),
    ],
)
def test_a_request_that_glue_would_not_understand_is_an_error(parameters: object, problem: str) -> None:
    with pytest.raises(AgainstModel, match=problem):
        read_call(a_request(parameters))


def test_a_request_is_read_from_its_path_its_query_and_its_body() -> None:
    stop = read_call(a_rest_request("DELETE", "/applications/00f1/jobruns/00f2", None))
    found = read_call(a_rest_request("GET", "/applications/00f1/jobruns?maxResults=50&nextToken=abc", None))

    assert stop == Call("emr-serverless", "CancelJobRun", {"applicationId": "00f1", "jobRunId": "00f2"})
    assert found.parameters == {"applicationId": "00f1", "maxResults": 50, "nextToken": "abc"}


@pytest.mark.parametrize("path", ["/applications/UPPER/jobruns/00f2", "/nowhere"])
def test_a_path_that_the_service_does_not_have_is_an_error(path: str) -> None:
    with pytest.raises(AgainstModel):
        read_call(a_rest_request("DELETE", path, None))


def test_a_request_without_a_signature_is_an_error() -> None:
    with pytest.raises(AgainstModel, match="not signed"):
        read_call(Received(method="POST", path="/", headers={}, body=b"{}"))


@pytest.mark.parametrize("answer", [{"JobRunID": "jr_1"}, {"JobRunId": 5}])
def test_an_answer_that_glue_cannot_give_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(AgainstModel):
        write_answer(CALL, answer)


def test_an_error_that_the_operation_does_not_have_is_an_error() -> None:
    assert write_error(CALL, "ConcurrentRunsExceededException", "busy").status == 400
    with pytest.raises(AgainstModel, match="does not answer"):
        write_error(CALL, "ExecutionAlreadyExists", "no")
