"""`interlock plan`: lines, records, exit codes and differences, from files on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.command_line import interlock
from worker.cli.plan import command as plan

DAILY = """\
pipeline: {id: NAME}
schedule: {cron: "CRON", timezone: America/New_York}
sla: {deadline: "20:00"}
job: {type: command, config: {command: load}}
"""


def write(directory: Path, name: str, *, cron: str = "30 17 * * *", more: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.yaml"
    path.write_text(DAILY.replace("NAME", name).replace("CRON", cron) + more)
    return path


def records(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_plan_starts_today_and_takes_a_fortnight_unless_told_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "a")

    result = interlock("plan", tmp_path)

    assert result.exit_code == 0
    assert result.stdout.startswith("Monday 2027-03-22\n  17:30 EDT  21:30Z  a/cron  2027-03-22  due 20:00 EDT\n\n")
    assert result.stdout.endswith("2027-03-22 to 2027-04-04: 14 runs of 1 pipeline\n")


def test_the_range_and_the_pipeline_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")

    result = interlock("plan", tmp_path, "--from", "2027-05-01", "--days", 3, "--pipeline", "b", "--json")

    *runs, summary = records(result.stdout)
    assert [(run["pipeline"], run["period"]) for run in runs] == [
        ("b", "2027-05-01"),
        ("b", "2027-05-02"),
        ("b", "2027-05-03"),
    ]
    assert summary == {
        "type": "summary", "from": "2027-05-01", "to": "2027-05-03", "runs": 3, "excluded": 0, "pipelines": 1,
    }  # fmt: skip


def test_a_record_says_when_and_until_when(tmp_path: Path) -> None:
    write(tmp_path, "a")

    [run, _] = records(interlock("plan", tmp_path, "--days", 1, "--json").stdout)

    assert run == {
        "type": "run", "pipeline": "a", "schedule": "cron", "period": "2027-03-22", "day": "2027-03-22", "by": "cron",
        "at": "2027-03-22T21:30:00Z", "local": "2027-03-22T17:30:00-04:00", "zone": "America/New_York",
        "warningAt": None, "breachAt": "2027-03-23T00:00:00Z", "evaluationAt": None, "triggerDeadlineAt": None,
        "excluded": None, "note": None, "status": None, "waitsFor": [],
    }  # fmt: skip


def test_an_excluded_day_is_shown_with_its_reason_and_not_counted_as_a_run(tmp_path: Path) -> None:
    write(tmp_path, "a", more="exclusions: {weekends: true}\n")

    result = interlock("plan", tmp_path, "--days", 7)

    assert "2027-03-27  excluded: Saturday; weekends are excluded" in result.stdout
    assert result.stdout.endswith("5 runs of 1 pipeline, 2 excluded\n")


def test_all_runs_of_a_busy_schedule_are_shown_on_request_only(tmp_path: Path) -> None:
    write(tmp_path, "a", cron="* * * * *")

    folded = interlock("plan", tmp_path, "--days", 1).stdout
    whole = interlock("plan", tmp_path, "--days", 1, "--all").stdout

    assert folded.splitlines()[1] == "  00:00-23:59 EDT  04:00Z-03:59Z  a/cron  1,440 runs  each due at 20:00"
    assert len(folded.splitlines()) == 4
    assert len(whole.splitlines()) == 1443


def test_a_plan_nobody_could_read_is_cut_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, "a", cron="* * * * *")

    result = interlock("plan", tmp_path, "--days", 3, "--all")

    listed = [line for line in result.stdout.splitlines() if "a/cron" in line]
    assert len(listed) == plan.LINES_MAX
    assert f"... {3 * 1440 - plan.LINES_MAX:,} more lines; narrow with --pipeline" in result.stdout


def test_files_with_errors_are_left_out_and_the_exit_code_tells(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", more="dryRunn: true\n")

    result = interlock("plan", tmp_path, "--days", 1)

    assert result.exit_code == 1
    assert "a/cron" in result.stdout
    assert "b.yaml:5:1 dryRunn: " in result.stderr
    assert "1 error; those files are left out" in result.stderr


def test_a_pipeline_that_does_not_exist_is_said_so_with_one_that_is_nearly_called_so(tmp_path: Path) -> None:
    write(tmp_path, "orders")

    result = interlock("plan", tmp_path, "--pipeline", "ordres")

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"no valid pipeline in {tmp_path} is called ordres",
        "    did you mean `orders`?",
    ]


def test_what_cannot_be_expected_and_what_starts_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "pipeline: {id: a}\nschedule: {trigger: {key: file, check: exists}}\n"
        "job: {type: command, config: {command: load}}\ndryRun: true\n"
    )

    lines = interlock("plan", tmp_path).stdout.splitlines()

    assert lines[0] == "a/stream: starts by its trigger on `file`; without a deadline, nothing reports a missing sensor"
    assert lines[1] == "Dry run, will start nothing: a"


@pytest.mark.parametrize("options", [["--days", "0"], ["--days", "367"], ["--from", "soon"], ["--from", "1969-07-20"]])
def test_a_range_that_makes_no_sense_exits_with_2(tmp_path: Path, options: list[str]) -> None:
    write(tmp_path, "a")

    assert interlock("plan", tmp_path, *options).exit_code == 2


def test_two_equal_directories_have_no_difference(tmp_path: Path) -> None:
    write(tmp_path / "old", "a")
    write(tmp_path / "new", "a")

    result = interlock("plan", "--against", tmp_path / "old", tmp_path / "new")

    assert (result.exit_code, result.stdout) == (0, "2027-03-22 to 2027-04-04: no expected run changes\n")


def test_a_difference_exits_with_1_and_shows_what_becomes_of_each_run(tmp_path: Path) -> None:
    write(tmp_path / "old", "a")
    write(tmp_path / "old", "gone")
    write(tmp_path / "new", "a", cron="0 18 * * *")

    result = interlock("plan", "--against", tmp_path / "old", tmp_path / "new", "--days", 1)

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "  ~  moved  a/cron  2027-03-22  2027-03-22 17:30 EDT (21:30Z) -> 2027-03-22 18:00 EDT (22:00Z)",
        "",
        "  -  removed  gone/cron  2027-03-22  no longer expected",
        "",
        "2027-03-22 to 2027-03-22: runs removed: 1, moved: 1",
    ]


def test_the_first_changes_of_a_schedule_stand_for_the_rest_unless_all_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "old", "a")
    write(tmp_path / "new", "a", cron="0 18 * * *")
    command = ("plan", "--against", tmp_path / "old", tmp_path / "new", "--days", 30)

    some, everything = interlock(*command).stdout, interlock(*command, "--all").stdout

    assert some.count("moved  a/cron") == plan.CHANGES_SHOWN_MAX
    assert "... 20 more changes of this schedule; --all lists them" in some
    assert everything.count("moved  a/cron") == 30


def test_a_difference_is_given_as_records_with_both_sides(tmp_path: Path) -> None:
    write(tmp_path / "old", "a")
    write(tmp_path / "new", "a", more="exclusions: {dates: [2027-03-22]}\n")

    result = interlock("plan", "--against", tmp_path / "old", tmp_path / "new", "--days", 2, "--json")

    [change, summary] = records(result.stdout)
    assert (change["type"], change["change"], change["period"]) == ("change", "removed", "2027-03-22")
    assert change["old"]["excluded"] is None
    assert "2027-03-22" in change["new"]["excluded"]
    assert (summary["added"], summary["removed"], summary["moved"], summary["deadline"]) == (0, 1, 0, 0)


def test_a_difference_of_files_with_errors_is_trouble_as_for_diff(tmp_path: Path) -> None:
    write(tmp_path / "old", "a")
    write(tmp_path / "new", "a", more="dryRunn: true\n")

    result = interlock("plan", "--against", tmp_path / "old", tmp_path / "new")

    assert (result.exit_code, result.stdout) == (2, "")
