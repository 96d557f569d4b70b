"""The shape of a file, as editors see it."""

from collections.abc import Iterator
from typing import Any, get_args

import jsonschema
import pytest

from tests.unit.config.test_render import FILES
from worker.config.schema import CalendarFile, CheckName, JobTypeName, PipelineFile, file_schema
from worker.core.model.pipeline import JobType
from worker.core.model.rules import Operator
from worker.yaml.parser import read_yaml

SCHEMAS = {"pipeline": file_schema(PipelineFile), "calendar": file_schema(CalendarFile)}


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for owner, definition in {"file": schema, **schema.get("$defs", {})}.items():
        for name, body in definition.get("properties", {}).items():
            yield f"{owner}.{name}", body


def is_accepted(value: object) -> bool:
    validator: Any = jsonschema.Draft202012Validator(SCHEMAS["pipeline"])  # its stub cannot say what JSON is
    return validator.is_valid(value)


def test_every_operator_and_job_type_can_be_written() -> None:
    assert set(get_args(CheckName)) == set(Operator)
    assert set(get_args(JobTypeName)) == set(JobType)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schema_is_one(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_key_is_described(kind: str) -> None:
    assert [name for name, body in properties(SCHEMAS[kind]) if not body.get("description")] == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_loads_is_accepted_by_the_schema(name: str) -> None:
    assert is_accepted(read_yaml(FILES[name]).value)


@pytest.mark.parametrize(
    "text",
    [
        "pipeline: {id: p}",
        "job: {type: glue}",
        "{pipeline: {}, job: {type: glue}}",
        "{pipeline: {id: 'a#b'}, job: {type: glue}}",
        "{pipeline: {id: p}, job: {type: nope}}",
        "{pipeline: {id: p}, job: {type: glue}, foo: 1}",
        "{pipeline: {id: p}, job: {type: glue, maxRetries: 11}}",
        "{pipeline: {id: p}, job: {type: glue, config: {jobName: 5}}}",
        "{pipeline: {id: p}, job: {type: http, config: {url: 'ftp://x'}}}",
        "{pipeline: {id: p}, job: {type: glue}, validation: {rules: [{key: a}]}}",
        "{pipeline: {id: p}, job: {type: glue}, schedule: {include: {}}}",
    ],
)
def test_a_file_that_does_not_load_is_refused_by_the_schema(text: str) -> None:
    assert not is_accepted(read_yaml(text).value)
