"""A campaign keeps one line for each history, goes on from them, and tells how to play a bad one again."""

import subprocess
import sys
from pathlib import Path

from tests.simulation.campaign import Verdict, read_lines
from tests.simulation.sampler import campaign_plan

ROOT = Path(__file__).parents[2]
SEED = 312  # a small one


def campaign(file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation.campaign", "--seed", str(SEED), "--seeds", "1"]
    return subprocess.run(
        [*command, "--file", str(file), *more], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_campaign_keeps_a_line_for_each_history_and_plays_none_twice(tmp_path: Path) -> None:
    file = tmp_path / "lines"

    first = campaign(file)
    again = campaign(file)

    assert (first.returncode, again.returncode) == (0, 0), first.stdout + first.stderr
    [line] = read_lines(file)
    assert (line.seed, line.verdict, line.hours) == (SEED, Verdict.HELD, campaign_plan(SEED).hours)
    assert line.commits
    assert "1 of 1 histories are in" in again.stdout
    assert f"{line.size_class}: 1 histories, 0 bad" in again.stdout


def test_a_history_that_takes_too_long_is_given_up_and_told_with_its_replay(tmp_path: Path) -> None:
    file = tmp_path / "lines"

    ended = campaign(file, "--seconds", "0.01")

    assert ended.returncode == 1
    assert [line.verdict for line in read_lines(file)] == [Verdict.TOO_LONG]
    assert f"make simulate {campaign_plan(SEED)} SEEDS=1" in ended.stdout


def test_a_line_that_was_cut_off_is_played_again(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(f'{{"seed": {SEED}, "pipelines": 3, "hours": 6, "wor')

    campaign(file, "--seconds", "0.01")

    assert [(line.seed, line.verdict) for line in read_lines(file)] == [(SEED, Verdict.TOO_LONG)]
