"""`interlock schema`: what editors get, and that it agrees with the files we show."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.builders.command_line import interlock
from worker.yaml.parser import read_yaml

EXAMPLES = Path(__file__).parents[3] / "examples"


def schema(*options: str) -> dict[str, Any]:
    result = interlock("schema", *options)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def faults(kind: str, path: Path) -> list[str]:
    value = read_yaml(path.read_text()).value
    validator: Any = Draft202012Validator(schema("--kind", kind))  # its own types know only part of it
    return [error.message for error in validator.iter_errors(value)]


@pytest.mark.parametrize("kind", ["pipeline", "archetype", "calendar"])
def test_the_schema_is_valid_json_schema_of_its_draft(kind: str) -> None:
    found = schema("--kind", kind)

    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(found)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schema_accepts_every_example(path: Path) -> None:
    assert faults("pipeline", path) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("calendars/*.yaml")), ids=lambda path: path.stem)
def test_the_schema_accepts_every_example_calendar(path: Path) -> None:
    assert faults("calendar", path) == []


@pytest.mark.parametrize(
    ("sound", "broken"),
    [("check: gte", "check: gtee"), ("maxRetries: 2", "maxRetries: 99"), ("window: 2h", "windows: 2h")],
)
def test_the_schema_refuses_what_the_loader_refuses(sound: str, broken: str, tmp_path: Path) -> None:
    path = tmp_path / "orders-daily.yaml"
    path.write_text((EXAMPLES / "orders-daily.yaml").read_text().replace(sound, broken, 1))

    assert faults("pipeline", path)
    assert interlock("validate", path).exit_code == 1


def test_the_schema_is_written_to_a_file_on_request(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.schema.json"

    result = interlock("schema", "-o", path)

    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(path.read_text()) == schema()
    assert f"# yaml-language-server: $schema={path}" in result.stderr


def test_the_header_line_alone_is_printed_on_request() -> None:
    result = interlock("schema", "-o", "schemas/pipeline.json", "--header")

    assert result.stdout == "# yaml-language-server: $schema=schemas/pipeline.json\n"
    assert not Path("schemas").exists()


def test_a_file_that_cannot_be_written_exits_with_2(tmp_path: Path) -> None:
    result = interlock("schema", "-o", tmp_path / "missing" / "schema.json")

    assert result.exit_code == 2
    assert "missing" in result.stderr


def test_an_unknown_kind_exits_with_2() -> None:
    assert interlock("schema", "--kind", "recipe").exit_code == 2
