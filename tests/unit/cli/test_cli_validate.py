"""`interlock validate`: what it prints, what it exits with, and that it sees every file."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders.command_line import TODAY, interlock
from worker.cli.commands.validate import run_validate
from worker.cli.terminal.console import Screen
from worker.cli.terminal.files import REMARK_EVERY, Sources

SOUND = """\
pipeline: {{id: {name}}}
schedule: {{cron: "0 6 * * *"}}
job: {{type: command, config: {{command: load}}}}
"""
BROKEN = SOUND.replace("cron:", "cronn:")
# An SLA at 05:00 is over before the run of 06:00 can start: legal, but surely not meant.
DOUBTFUL = SOUND + 'sla: {{deadline: "05:00"}}\n'


def write(directory: Path, name: str, text: str = SOUND) -> Path:
    path = directory / f"{name}.yaml"
    path.write_text(text.format(name=name))
    return path


def records(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_clean_directory_exits_with_0_and_says_what_was_checked(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")

    result = interlock("validate", tmp_path)

    assert (result.exit_code, result.stdout) == (0, "2 files checked: 2 pipelines valid, 0 errors, 0 warnings\n")


def test_a_problem_exits_with_1_and_is_shown_with_its_place_and_a_hint(tmp_path: Path) -> None:
    path = write(tmp_path, "a", BROKEN)

    result = interlock("validate", path)

    assert result.exit_code == 1
    first, hint, *_ = result.stdout.splitlines()
    assert first.startswith(f"{path}:2:12 schedule.cronn: ")
    assert "did you mean `cron`?" in hint
    assert result.stdout.endswith("1 file checked: 0 pipelines valid, 1 error, 0 warnings\n")


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path, "a", BROKEN)
    write(tmp_path, "b")
    write(tmp_path, "c", "job: [")

    result = interlock("validate", tmp_path)

    assert result.stdout.splitlines()[-1].startswith("3 files checked: 1 pipeline valid, ")
    assert f"{tmp_path / 'a.yaml'}:" in result.stdout
    assert f"{tmp_path / 'c.yaml'}:" in result.stdout


def test_problems_of_a_file_are_listed_from_top_to_bottom(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("job: {type: glu}\nvalidation: {rules: [{key: k, check: gtee}]}\npipeline: {id: a}\nextra: 1\n")

    lines = [line for line in interlock("validate", path).stdout.splitlines() if line.startswith(str(path))]

    places = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lines]
    assert len(places) >= 3
    assert places == sorted(places)


def test_warnings_are_allowed_unless_they_are_to_be_strict(tmp_path: Path) -> None:
    path = write(tmp_path, "a", DOUBTFUL)

    assert interlock("validate", path).exit_code == 0
    assert " warning: sla.deadline: " in interlock("validate", path).stdout
    assert interlock("validate", path, "--strict-warnings").exit_code == 1


def test_a_lenient_reading_turns_an_unknown_key_into_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "a", SOUND + "oldKey: 1\n")

    assert interlock("validate", path).exit_code == 1
    assert interlock("validate", path, "--lenient").exit_code == 0


def test_json_is_one_record_a_problem_and_a_summary_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a", BROKEN)
    write(tmp_path, "b")

    result = interlock("validate", tmp_path, "--json")

    [problem, summary] = records(result.stdout)
    assert result.exit_code == 1
    assert {key: problem[key] for key in ("type", "file", "line", "path", "severity")} == {
        "type": "problem",
        "file": str(path),
        "line": 2,
        "path": "schedule.cronn",
        "severity": "error",
    }
    assert summary == {"type": "summary", "files": 2, "pipelines": 1, "calendars": 0, "errors": 1, "warnings": 0}


def test_calendars_are_found_beside_the_files_or_where_they_are_said_to_be(tmp_path: Path) -> None:
    path = write(tmp_path, "a", SOUND.replace("schedule: {{", "schedule: {{calendar: holidays, "))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "holidays.yaml").write_text("name: holidays\ndates: [2027-12-25]\n")

    assert interlock("validate", path).exit_code == 1
    assert interlock("validate", path, "--calendars", elsewhere).exit_code == 0


def test_a_directory_without_pipeline_files_is_not_taken_for_a_clean_one(tmp_path: Path) -> None:
    result = interlock("validate", tmp_path)

    assert result.exit_code == 1
    assert f"no *.yaml or *.yml in {tmp_path}" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["validate"], ["validate", "no-such-path"], ["validate", ".", "--no-such-option"]]
)
def test_a_wrong_command_exits_with_2(arguments: list[str]) -> None:
    assert interlock(*arguments).exit_code == 2


def test_nothing_but_plain_text_goes_through_a_pipe(tmp_path: Path) -> None:
    write(tmp_path, "a", BROKEN)

    result = interlock("validate", tmp_path)

    assert "\x1b" not in result.output


def test_a_thousand_files_are_all_reported_and_progress_is_shown(tmp_path: Path) -> None:
    for number in range(1000):
        write(tmp_path, f"p{number:04}", BROKEN if number % 10 == 0 else SOUND)

    result = interlock("validate", tmp_path, "--json")

    *problems, summary = records(result.stdout)
    assert {problem["file"] for problem in problems} == {str(tmp_path / f"p{n:04}.yaml") for n in range(0, 1000, 10)}
    assert (summary["files"], summary["pipelines"], summary["errors"]) == (1000, 900, 100)
    remarks = [f"read {done:,} of 1,000 files" for done in range(REMARK_EVERY, 1001, REMARK_EVERY)]
    assert result.stderr.splitlines() == remarks


def test_a_terminal_gets_a_bar_that_leaves_nothing_behind_on_the_output(tmp_path: Path) -> None:
    write(tmp_path, "a")
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out=Console(file=out), err=Console(file=err, force_terminal=True, width=80))

    code = run_validate(screen, Sources(paths=[tmp_path], today=TODAY.date()))

    assert code == 0
    assert "1/1" in err.getvalue()
    assert out.getvalue().startswith("1 file checked")


# --- addresses that no worker would connect to ------------------------------------------------------------------------

HTTP = """\
pipeline: {{{{id: {{name}}}}}}
schedule: {{{{cron: "0 6 * * *"}}}}
job: {{{{type: {kind}, config: {config}}}}}
"""
METADATA = "169.254.169.254"


def a_target(directory: Path, kind: str, config: str) -> Path:
    return write(directory, "a", HTTP.format(kind=kind, config=config.replace("{", "{{").replace("}", "}}")))


@pytest.mark.parametrize(
    ("kind", "config", "path"),
    [
        ("http", "{url: 'http://127.0.0.1:8080/run'}", "url"),
        ("http", "{url: 'https://10.1.2.3/run'}", "url"),
        ("http", f"{{url: 'http://{METADATA}/latest/meta-data'}}", "url"),
        ("http", "{url: 'http://[::1]/run'}", "url"),
        ("http", "{url: 'http://[::ffff:10.0.0.1]/run'}", "url"),
        ("http", "{url: 'http://user@localhost/run'}", "url"),
        ("http", "{url: 'http://db.localhost./run'}", "url"),
        ("http", "{url: 'https://example.com/run', statusUrl: 'http://192.168.0.9/${RUN_ID}'}", "statusUrl"),
        ("http", "{url: 'https://example.com/run', stopUrl: 'http://192.168.0.9/stop'}", "stopUrl"),
        (
            "http",
            "{url: 'https://e.com', auth: {type: oauth, tokenUrl: 'http://10.0.0.1', clientId: a, clientSecret: b}}",
            "auth.tokenUrl",
        ),
        ("airflow", "{url: 'http://172.16.0.1:8080', dagId: d}", "url"),
        ("databricks", "{workspaceUrl: 'https://100.64.0.1', jobId: 1}", "workspaceUrl"),
    ],
)
def test_an_address_that_a_worker_would_refuse_is_an_error_with_its_place(
    tmp_path: Path, kind: str, config: str, path: str
) -> None:
    file = a_target(tmp_path, kind, config)

    result = interlock("validate", file, "--json")

    assert result.exit_code == 1
    [problem] = [each for each in records(result.stdout) if each.get("severity") == "error"]
    assert (problem["path"], problem["line"]) == (f"job.config.{path}", 3)
    assert "INTERLOCK_HTTP_ALLOW" in str(problem["hint"])


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/run",
        "https://93.184.215.14/run",
        "https://10.example.com/run",
        "http://${INTERLOCK_HOST}/run",
        "${INTERLOCK_URL}",
    ],
)
def test_an_address_that_is_public_or_not_known_yet_is_none(tmp_path: Path, url: str) -> None:
    assert interlock("validate", a_target(tmp_path, "http", f"{{url: '{url}'}}")).exit_code == 0


@pytest.mark.parametrize("allowed", ["10.0.0.0/8", "10.1.2.3", " 192.168.0.0/16 , 10.1.2.3"])
def test_what_the_worker_is_allowed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str) -> None:
    monkeypatch.setenv("INTERLOCK_HTTP_ALLOW", allowed)

    assert interlock("validate", a_target(tmp_path, "http", "{url: 'http://10.1.2.3/run'}")).exit_code == 0


def test_an_allow_list_that_cannot_be_understood_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HTTP_ALLOW", "10.0.0.1/8")

    result = interlock("validate", a_target(tmp_path, "http", "{url: 'http://10.1.2.3/run'}"))

    assert result.exit_code == 2
    assert "INTERLOCK_HTTP_ALLOW" in result.output
