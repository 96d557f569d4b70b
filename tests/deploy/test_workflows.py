"""The workflows of GitHub Actions and the pre-commit hooks: what they run exists, is pinned, and shows no secret."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from worker.cli.catalogue import PAGE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/github/pipelines.yml"
TEMPLATE = ROOT / "worker/cli/commands/configure/files/workflow.yaml"
WORKFLOWS = [*sorted((ROOT / ".github/workflows").glob("*")), EXAMPLE, TEMPLATE]
COMMIT = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
PINNED_LINE = re.compile(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
PIPELINE = """\
pipeline: {id: orders}
schedule: {cron: "0 6 * * *", timezone: Europe/Berlin}
sla: {deadline: "08:00", expectedDuration: 30m}
job: {type: command, config: {command: [echo, hello]}}
"""

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[object, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> Iterator[dict[str, Any]]:
    yield from read(path)["jobs"].values()


def steps(path: Path) -> Iterator[dict[str, Any]]:
    yield from (step for job in jobs(path) for step in job["steps"])


def test_there_are_workflows_for_this_repository() -> None:
    assert {path.name for path in WORKFLOWS} >= {"ci.yml", "pipelines.yml", "workflow.yaml"}


@each_workflow
def test_every_action_is_pinned_to_a_commit_and_its_version_is_named(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]

    assert used
    assert [use for use in used if not COMMIT.fullmatch(use)] == []
    assert [line for line in lines if not PINNED_LINE.search(line)] == []


@each_workflow
def test_a_workflow_may_only_read_unless_a_job_says_more_and_ends_in_time(path: Path) -> None:
    workflow = read(path)

    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True]  # YAML reads `on` as true
    assert all(0 < job["timeout-minutes"] <= 60 for job in jobs(path))
    assert all(
        step["with"]["persist-credentials"] is False for step in steps(path) if "checkout" in step.get("uses", "")
    )


@each_workflow
def test_no_step_prints_a_secret_or_runs_what_an_event_says(path: Path) -> None:
    scripts = [step["run"] for step in steps(path) if "run" in step]

    assert scripts
    # An expression is put into the script before the shell reads it: values come by the environment instead.
    assert [script for script in scripts if "${{" in script] == []
    assert [script for script in scripts if re.search(r"set -x|printenv|echo .*(TOKEN|SECRET)", script)] == []


def test_the_workflows_of_this_repository_call_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))

    called = {
        target
        for path in WORKFLOWS
        if path not in {EXAMPLE, TEMPLATE}
        for step in steps(path)
        for target in re.findall(r'^(?:sudo env "[^"]+" )?make ([a-z-]+)', step.get("run", ""), flags=re.MULTILINE)
    }

    assert called - targets == set()
    assert {"test", "deploy-check", "docs", "test-browser", "release", "test-upgrade"} <= called


def test_nothing_is_released_before_the_tests_have_passed_and_everything_released_is_attested() -> None:
    released = read(ROOT / ".github/workflows/release.yml")["jobs"]

    for name in ("packages", "image"):
        assert "test" in released[name]["needs"]
        used = [step.get("uses", "").partition("@")[0] for step in released[name]["steps"]]
        assert "actions/attest-build-provenance" in used
    assert any(step.get("run") == "make test" for step in released["test"]["steps"])
    assert any("BASE=resolve" in step.get("run", "") for step in released["image"]["steps"])


def test_a_missing_tool_makes_no_job_green() -> None:
    scripts = [step["run"] for step in steps(ROOT / ".github/workflows/ci.yml") if "run" in step]

    assert [script for script in scripts if "||" in script] == []


# --- a user's repository ----------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/orders.yaml").write_text(PIPELINE)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Deploy orders")
    return tmp_path


def git(repository: Path, *words: str) -> str:
    who = ["-c", "user.name=someone", "-c", "user.email=someone@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *words], cwd=repository, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def run_step(repository: Path, name: str) -> "subprocess.CompletedProcess[str]":
    """Run a step of the example as a runner of GitHub does: bash, stopping at the first error."""
    [script] = [step["run"] for step in steps(EXAMPLE) if step.get("name") == name]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(repository),
        "GITHUB_WORKSPACE": str(repository),
        "GITHUB_STEP_SUMMARY": str(repository / "summary.md"),
        "BASE": git(repository, "rev-parse", "main"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=50
    )


def test_the_example_says_what_a_pull_request_changes(repository: Path) -> None:
    (repository / "pipelines/orders.yaml").write_text(PIPELINE.replace("08:00", "07:30"))

    validated = run_step(repository, "Validate the files")
    planned = run_step(repository, "Say what changes")

    assert (validated.returncode, planned.returncode) == (0, 0), validated.stdout + planned.stderr
    summary = (repository / "summary.md").read_text()
    assert summary.startswith("### What this change does to the next 14 days\n```text\n")
    assert "runs with new deadlines: 14" in summary


def test_the_example_annotates_what_is_wrong_and_fails(repository: Path) -> None:
    (repository / "pipelines/orders.yaml").write_text(PIPELINE.replace("cron:", "cronn:"))

    validated = run_step(repository, "Validate the files")
    planned = run_step(repository, "Say what changes")

    assert validated.returncode == 1
    assert validated.stdout.startswith("::error file=pipelines/orders.yaml,line=2,col=12,")
    assert planned.returncode == 1


# --- pre-commit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()), ids=lambda it: it["id"])
def test_a_hook_runs_a_command_on_pipeline_files_only(hook: dict[str, Any]) -> None:
    program, command, *_ = shlex.split(hook["entry"])
    files = re.compile(hook["files"])

    assert (program, hook["language"]) == ("interlock", "python")
    assert command in PAGE.entries
    assert files.search("pipelines/orders.yaml")
    assert not files.search("docs/orders.yaml")
    # A calendar is no pipeline file: alone it must not be handed to `validate`.
    assert bool(files.search("pipelines/calendars/us.yaml")) is (hook.get("pass_filenames") is False)
