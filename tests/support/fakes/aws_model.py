"""Requests to AWS read, and answers of AWS written, by botocore's own models of the services.

What a model does not allow is an error here: a parameter it does not know, a value outside its enum, its length or its
pattern, an error that the operation cannot give, an answer with a member that does not exist.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.session
from botocore.model import OperationModel, ServiceModel
from botocore.validate import ParamValidator

from tests.support.fakes.http_target import Received

# By the name requests are signed for.
SERVICES = {
    "glue": "glue",
    "elasticmapreduce": "emr",
    "emr-serverless": "emr-serverless",
    "states": "stepfunctions",
    "lambda": "lambda",
    "logs": "logs",
    "secretsmanager": "secretsmanager",
}
# What any service may answer, with the status it has there.
COMMON_ERRORS = {
    "AccessDeniedException": 400,
    "UnrecognizedClientException": 400,
    "ExpiredTokenException": 400,
    "ThrottlingException": 400,
    "ValidationException": 400,
    "InternalFailure": 500,
    "ServiceUnavailable": 503,
}
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/(?P<service>[^/]+)/aws4_request")


class AgainstModel(AssertionError):
    """Something that the service's model does not allow."""


@dataclass(frozen=True, slots=True)
class Call:
    service: str
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@cache
def model_of(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


def enum_of(service: str, shape: str) -> list[str]:
    """Every value that the model has for a text."""
    return model_of(service).shape_for(shape).metadata["enum"]


# --- requests ---------------------------------------------------------------------------------------------------------


def read_call(received: Received) -> Call:
    """What a request asks for. Raises `AgainstModel`."""
    scope = _SCOPE.search(received.headers.get("authorization", ""))
    if scope is None:
        raise AgainstModel("the request is not signed")
    service = SERVICES[scope["service"]]
    if "x-amz-target" in received.headers:
        name = received.headers["x-amz-target"].rpartition(".")[2]
        operation, parameters = _operation(service, name), json.loads(received.body)
    else:
        operation, parameters = _read_rest(service, received)
    check(parameters, operation.input_shape, f"{service} {operation.name}")
    return Call(service, operation.name, parameters)


def _operation(service: str, name: str) -> OperationModel:
    return model_of(service).operation_model(name)


def _read_rest(service: str, received: Received) -> tuple[OperationModel, dict[str, Any]]:
    url = urlsplit(received.path)
    for name in model_of(service).operation_names:
        operation = _operation(service, name)
        named = re.sub(r"\{(\w+)\+?\}", r"(?P<\1>[^/]+)", operation.http["requestUri"].partition("?")[0])
        match = re.fullmatch(named, url.path)
        if match and operation.http["method"] == received.method:
            found = {key: unquote(value) for key, value in match.groupdict().items()}
            return operation, {**found, **_rest_members(operation, received, parse_qs(url.query))}
    raise AgainstModel(f"{service} has no {received.method} {url.path}")


def _rest_members(operation: OperationModel, received: Received, query: Mapping[str, list[str]]) -> dict[str, Any]:
    shape: Any = operation.input_shape
    found: dict[str, Any] = {}
    payload = shape.serialization.get("payload")
    if payload:
        found[payload] = received.body
    elif received.body:
        found.update(json.loads(received.body))
    for name, member in shape.members.items():
        wire, place = member.serialization.get("name", name), member.serialization.get("location")
        header = received.headers.get(wire.lower())
        given = {"querystring": query.get(wire), "header": None if header is None else [header]}.get(place)
        if given is not None:
            found[name] = given if member.type_name == "list" else _single(given[0], member.type_name)
    return found


def _single(given: str, kind: str) -> str | int:
    return int(given) if kind == "integer" else given


def check(value: Any, shape: Any, where: str) -> None:  # noqa: ANN401 - any value of any shape
    """Hold a value against a shape, by botocore's own validation and by what that leaves out."""
    report = ParamValidator().validate(value, shape)
    if report.has_errors():
        raise AgainstModel(f"{where}: {report.generate_report()}")
    problems = list(_beyond_botocore(value, shape, where))
    if problems:
        raise AgainstModel("; ".join(problems))


def _beyond_botocore(value: Any, shape: Any, where: str) -> list[str]:  # noqa: ANN401 - any value of any shape
    """Enums, lengths and patterns, which the library leaves to the service."""
    match shape.type_name:
        case "structure":
            return [p for k, v in value.items() for p in _beyond_botocore(v, shape.members[k], f"{where}.{k}")]
        case "list":
            return [p for v in value for p in _beyond_botocore(v, shape.member, f"{where}[]")]
        case "map":
            return [p for k, v in value.items() for p in _beyond_botocore(v, shape.value, f"{where}.{k}")]
        case "string":
            return _text_problems(value, shape.metadata, where)
        case _:
            return []


def _text_problems(value: str, limits: Mapping[str, Any], where: str) -> list[str]:
    problems = [f"{where}: {value!r} is none of {limits['enum']}"] if value not in limits.get("enum", [value]) else []
    if len(value) > limits.get("max", len(value)):
        problems.append(f"{where}: longer than {limits['max']}")
    pattern = limits.get("pattern", "")
    # Some patterns are written for another language's regular expressions.
    if pattern and "\\u" not in pattern and "\\p" not in pattern and not re.fullmatch(pattern, value):
        problems.append(f"{where}: {value!r} is not like {pattern}")
    return problems


# --- answers ----------------------------------------------------------------------------------------------------------


def write_answer(call: Call, answer: Mapping[str, Any]) -> Reply:
    """The answer on the wire. Raises `AgainstModel` if the service cannot give it."""
    operation = _operation(call.service, call.operation)
    shape: Any = operation.output_shape
    report = ParamValidator().validate(answer, shape)
    if report.has_errors():
        raise AgainstModel(f"answer of {call.operation}: {report.generate_report()}")
    status, headers, members = int(operation.http.get("responseCode", 200)), dict[str, str](), dict[str, Any]()
    for name, value in answer.items():
        member = shape.members[name]
        match member.serialization.get("location"):
            case "statusCode":
                status = int(value)
            case "header":
                headers[member.serialization["name"]] = str(value)
            case _:
                members[name] = value
    payload = shape.serialization.get("payload")
    body = members.get(payload, b"") if payload else json.dumps(_written(members, shape)).encode()
    return Reply(status, body, headers)


def _written(value: Any, shape: Any) -> Any:  # noqa: ANN401 - any value of any shape
    match shape.type_name:
        case "structure":
            names = {name: member.serialization.get("name", name) for name, member in shape.members.items()}
            return {names[name]: _written(member, shape.members[name]) for name, member in value.items()}
        case "list":
            return [_written(member, shape.member) for member in value]
        case "map":
            return {name: _written(member, shape.value) for name, member in value.items()}
        case "timestamp":
            return value.timestamp() if isinstance(value, datetime) else value
        case "blob":
            return base64.b64encode(value).decode()
        case _:
            return value


def write_error(call: Call, code: str, message: str) -> Reply:
    """An error on the wire. Raises `AgainstModel` if the operation cannot give it."""
    operation = _operation(call.service, call.operation)
    modelled = {
        shape.name: shape.metadata.get("error", {}).get("httpStatusCode", 400) for shape in operation.error_shapes
    }
    status = modelled.get(code) or COMMON_ERRORS.get(code)
    if status is None:
        raise AgainstModel(f"{call.service} {call.operation} does not answer {code}")
    body = json.dumps({"__type": code, "message": message}).encode()
    return Reply(status, body, {"x-amzn-errortype": code})
