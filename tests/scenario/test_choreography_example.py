"""The example of three stages: a stage that is killed in the middle loses nothing and repeats one checkpoint at most.

The stages run here one after the other, each as a process, without a worker: nothing depends on the time. CHAOS_ROUNDS
asks for the whole play with a worker and an inbox, as `make demo-choreography` shows it, on a folder and on S3.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from consumers.inbox.rules_file import check_rules, rules_in
from worker.config.load import load_directory

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples/choreography"
DAY: Final = "2026-03-03"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("choreography_play", EXAMPLE / "play.py")
    assert spec is not None
    assert spec.loader is not None
    before = list(sys.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # it puts its own folder on the path
    sys.path[:] = before
    return module


class Stages:
    """Runs stages as a worker would: a killed one is started again as the next attempt."""

    def __init__(self, play: Any, folder: Path) -> None:  # noqa: ANN401  of the example
        self._play, self._folder = play, folder
        self._environment = {
            **play.environment,
            "INTERLOCK_SCHEDULE": "stream",
            "INTERLOCK_PERIOD": DAY,
            "PYTHONPATH": f"{ROOT}:{EXAMPLE / 'jobs'}",
        }

    def run(self, stage: str, attempt: int) -> subprocess.CompletedProcess[str]:
        names = {"INTERLOCK_PIPELINE": stage, "INTERLOCK_ATTEMPT": str(attempt)}
        return subprocess.run(
            [sys.executable, str(EXAMPLE / "jobs" / f"{stage}.py")],
            cwd=self._folder,
            env={**self._environment, **names},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def killed_and_run_again(self, stage: str, saves_before: int) -> dict[str, int]:
        (self._folder / f"kill-{stage}").write_text(str(saves_before))
        killed, done = self.run(stage, 1), self.run(stage, 2)
        assert (killed.returncode, done.returncode) == (-signal.SIGKILL, 0), killed.stderr + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.xdist_group("processes")
def test_each_stage_is_killed_in_the_middle_and_the_graph_equals_that_of_a_single_pass(
    example: Any,  # noqa: ANN401  loaded by path
    tmp_path: Path,
) -> None:
    world = example.World()
    world.put(*(example.bill(number) for number in range(150)))
    with example.served(world) as url:
        play = example.Play(tmp_path, url)
        play.interlock("store", "init")
        stages = Stages(play, tmp_path)
        polled = stages.killed_and_run_again("poll", 0)
        classified = stages.killed_and_run_again("classify", 1)
        embedded = stages.killed_and_run_again("embed", 1)
    graph = example.Graph(str(play.graph))
    rows = graph.rows()
    graph.close()

    assert (polled["processed"], classified["processed"], embedded["processed"]) == (150, 50, 50)
    assert world.refused > 0, "the services refuse some calls"
    assert rows == example.single_pass(world, tmp_path / "single.db")


def test_the_rules_of_the_example_start_known_pipelines_and_no_stage_starts_itself() -> None:
    known = {each.id for each in load_directory([EXAMPLE / "pipelines"]).pipelines}
    text = (EXAMPLE / "inbox.yaml").read_text()
    rules, problems = check_rules(text.replace("s3://lake/processed/", "s3://lake/raw/"), "inbox.yaml")

    assert {rule.pipeline for rule in rules_in(EXAMPLE / "inbox.yaml")} <= known
    assert rules is None
    assert any("this is a loop" in str(each) for each in problems)


@pytest.mark.skipif("CHAOS_ROUNDS" not in os.environ, reason="takes more than a minute; CHAOS_ROUNDS asks for it")
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(580)
@pytest.mark.parametrize("emulator", ["", str(ROOT / ".venv/emulators/bin/ministack")], ids=["folder", "s3"])
def test_the_whole_example_plays(example: Any, tmp_path: Path, emulator: str) -> None:  # noqa: ANN401  loaded by path
    results = example.play(tmp_path, emulator=emulator)

    assert [results["first"][stage]["processed"] for stage in example.STAGES] == [0, 0, 0]
    assert [results["changed"][stage]["processed"] for stage in example.STAGES] == [3, 3, 3]
    assert [results["killed"][stage]["processed"] for stage in example.STAGES] == [150, 50, 50]
    assert results["again"]["embed"]["processed"] == 0
