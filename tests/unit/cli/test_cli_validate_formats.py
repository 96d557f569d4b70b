"""`interlock validate --format`: what GitHub and code scanning services get."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.builders.command_line import interlock

PUBLISHED = json.loads((Path(__file__).parents[2] / "published" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
BROKEN = 'pipeline: {id: a}\nschedule: {cronn: "0 6 * * *"}\njob: {type: command, config: {command: load}}\n'
DOUBTFUL = BROKEN.replace("cronn", "cron") + 'sla: {deadline: "05:00"}\n'
COMMAND = re.compile(r"::(?P<level>error|warning) file=(?P<file>[^,]+),line=(\d+),col=(\d+),title=[^,:]+::[^\r\n]+")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (tmp_path / "pipelines").mkdir()
    return tmp_path


def a_file(repository: Path, text: str, name: str = "a.yaml") -> Path:
    path = repository / "pipelines" / name
    path.write_text(text)
    return path


def sarif(path: Path) -> dict[str, Any]:
    """Return the run of a valid log; fail if the published schema refuses the log."""
    log = json.loads(interlock("validate", path, "--format", "sarif").stdout)
    checker: Any = jsonschema.Draft202012Validator(PUBLISHED, format_checker=jsonschema.FormatChecker())
    checker.validate(log)
    return log["runs"][0]


def test_github_gets_one_command_for_each_problem_and_a_summary(repository: Path) -> None:
    a_file(repository, BROKEN)
    a_file(repository, DOUBTFUL, "b.yaml")

    result = interlock("validate", repository / "pipelines", "--format", "github")

    assert result.exit_code == 1
    *commands, summary = result.stdout.splitlines()
    assert commands[0].startswith("::error file=pipelines/a.yaml,line=2,col=12,title=schedule.cronn::")
    assert "did you mean `cron`?" in commands[0]
    found = [COMMAND.fullmatch(command) for command in commands]
    levels = {(match["level"], match["file"]) for match in found if match}
    assert all(found)
    assert ("warning", "pipelines/b.yaml") in levels
    assert summary.startswith("2 files checked: ")


def test_what_a_file_says_cannot_become_a_command_of_its_own(repository: Path) -> None:
    hostile = '"x\\n::add-mask::y,%0A\\e[31m": 1\n'
    a_file(repository, BROKEN.replace("cronn", "cron") + hostile, "a,b:c.yaml")

    result = interlock("validate", repository / "pipelines", "--format", "github")

    *commands, _ = result.stdout.splitlines()
    assert result.exit_code == 1
    assert all(COMMAND.fullmatch(command) for command in commands)
    assert all("file=pipelines/a%2Cb%3Ac.yaml,line=" in command for command in commands)
    assert "\x1b" not in result.stdout


def test_a_file_is_named_from_the_root_of_the_repository_or_in_full_outside_of_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_file(repository, BROKEN)
    monkeypatch.chdir(repository / "pipelines")

    below = interlock("validate", "a.yaml", "--format", "github").stdout
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository / "elsewhere"))
    outside = interlock("validate", "a.yaml", "--format", "github").stdout
    monkeypatch.delenv("GITHUB_WORKSPACE")
    here = interlock("validate", "a.yaml", "--format", "github").stdout

    assert "file=pipelines/a.yaml," in below
    assert f"file={path.resolve()}," in outside
    assert "file=a.yaml," in here


def test_sarif_is_what_the_published_schema_accepts_and_names_place_rule_and_level(repository: Path) -> None:
    a_file(repository, BROKEN, "with space.yaml")

    run = sarif(repository / "pipelines")

    error = next(result for result in run["results"] if result["level"] == "error")
    [location] = error["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "pipelines/with%20space.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 2, "startColumn": 12},
    }
    assert error["message"]["text"].startswith("schedule.cronn: ")
    rules = run["tool"]["driver"]["rules"]
    assert (error["ruleId"], rules[error["ruleIndex"]]["id"]) == ("pipeline/schedule", "pipeline/schedule")
    assert {result["level"] for result in run["results"]} == {"error", "warning"}


def test_sarif_of_broken_yaml_and_of_no_file_is_valid_too(repository: Path) -> None:
    nothing = sarif(repository / "pipelines")
    a_file(repository, "job: [")

    broken = sarif(repository / "pipelines")

    assert (nothing["results"], nothing["invocations"]) == ([], [{"executionSuccessful": False}])
    assert {result["ruleId"] for result in broken["results"]} == {"pipeline/file"}
    assert broken["invocations"] == [{"executionSuccessful": True}]


def test_the_published_schema_is_able_to_refuse(repository: Path) -> None:
    a_file(repository, BROKEN)
    log = json.loads(interlock("validate", repository / "pipelines", "--format", "sarif").stdout)
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0

    checker: Any = jsonschema.Draft202012Validator(PUBLISHED)

    assert not checker.is_valid(log)


def test_the_format_json_is_what_the_option_json_gives(repository: Path) -> None:
    path = a_file(repository, BROKEN)

    assert interlock("validate", path, "--format", "json").stdout == interlock("validate", path, "--json").stdout


def test_two_formats_at_once_are_refused(repository: Path) -> None:
    result = interlock("validate", a_file(repository, BROKEN), "--format", "sarif", "--json")

    assert result.exit_code == 2
    assert "--json and --format sarif contradict each other" in result.stderr
