"""`interlock init`: what it creates is valid, replaces nothing, and runs with a real worker straight away."""

import re
from pathlib import Path

import pytest

from tests.docs.terminal import Shell, Worker, until
from tests.support.builders.command_line import TODAY, interlock, records
from worker.config.load import load_directory
from worker.yaml.parser import read_yaml

CREATED = [
    ".github/workflows/pipelines.yaml",
    "inbox.yaml",
    "jobs/load.sh",
    "pipelines/calendars/holidays.yaml",
    "pipelines/orders.yaml",
    "schemas/calendar.schema.json",
    "schemas/pipeline.schema.json",
]


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_it_creates_a_folder_and_says_what_to_do_next(here: Path) -> None:
    result = interlock("init", "my project")

    assert result.exit_code == 0, result.stderr
    assert files_in(here / "my project") == CREATED
    assert result.stdout.startswith("created 7 files in my project\n")
    assert all(name in result.stdout for name in CREATED)
    assert "  cd 'my project'\n" in result.stdout
    assert "interlock run --pipelines pipelines/" in result.stdout


def test_without_a_folder_it_is_this_one(here: Path) -> None:
    (here / "README.md").write_text("mine")

    result = interlock("init")

    assert files_in(here) == sorted([*CREATED, "README.md"])
    assert result.stdout.startswith("created 7 files in this folder\n")
    assert "cd " not in result.stdout


def test_its_files_have_neither_errors_nor_warnings(here: Path) -> None:
    interlock("init", "project")

    found = load_directory([here / "project" / "pipelines"], today=TODAY.date())

    assert (found.problems, [pipeline.id for pipeline in found.pipelines]) == ((), ["orders"])
    assert [*found.calendars] == ["holidays"]
    assert interlock("validate", "project/pipelines", "--strict-warnings").exit_code == 0
    assert interlock("inbox", "check", "project/inbox.yaml").exit_code == 0


def test_its_files_name_schemas_that_exist(here: Path) -> None:
    interlock("init", "project")

    for name in ("pipelines/orders.yaml", "pipelines/calendars/holidays.yaml"):
        file = here / "project" / name
        found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
        assert found is not None
        assert (file.parent / found[1]).resolve().is_file()


def test_the_workflow_runs_the_checks_that_pass_here(here: Path) -> None:
    interlock("init", "project")
    text = (here / "project" / ".github" / "workflows" / "pipelines.yaml").read_text()

    commands = re.findall(r"- run: interlock (.*)", text)

    assert "interlock-VERSION" not in text
    assert commands == ["validate pipelines/ --format github", "inbox check inbox.yaml"]
    assert read_yaml(text)  # raises if it cannot be read


@pytest.mark.parametrize("name", CREATED)
def test_a_file_that_exists_is_named_and_nothing_is_written(name: str, here: Path) -> None:
    mine = here / "project" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")

    result = interlock("init", "project")

    assert result.exit_code == 2
    assert f"project has {name} already" in " ".join(result.stderr.split())
    assert files_in(here / "project") == [name]
    assert mine.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_told_in_words(here: Path) -> None:
    (here / "file").write_text("")

    result = interlock("init", "file/project")

    assert result.exit_code == 2
    assert "name another folder" in result.stderr


def test_programs_get_the_list_of_files(here: Path) -> None:
    found = records(interlock("init", "project", "--json").stdout)

    assert sorted(each["path"] for each in found) == [f"project/{name}" for name in CREATED]


@pytest.mark.timeout(180)  # a real worker, and a second for each command, many times that on a busy machine
def test_what_it_creates_waits_runs_and_completes_with_a_real_worker(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    worker: Worker | None = None
    try:
        assert shell.run("interlock init project && cd project")[0] == 0
        assert shell.run("interlock validate pipelines/")[0] == 0
        worker = Worker("interlock run --pipelines pipelines/ --each-success --log-level warning", tmp_path / "project")
        worker.lines_until("working on interlock.db with 1 pipeline")
        assert shell.run("interlock sensor put orders orders-export status=complete rows=400")[0] == 0

        def waits() -> str | None:
            said = shell.run("interlock status")[1]
            return said if "waiting" in said else None

        assert "which is not at least 1000" in until(waits, "a run that waits")
        assert shell.run("interlock sensor put orders orders-export status=complete rows=1200")[0] == 0
        worker.lines_until("completed in")
        output = shell.run("cat interlock.db-jobs/*/output.log")[1]
        assert worker.stop() == 0
    finally:
        shell.close()
        if worker is not None:
            worker.close()

    assert "loading the orders of 20" in output
