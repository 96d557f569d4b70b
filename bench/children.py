"""Contestants of a benchmark: each in a process of its own, and the peers in environments of their own."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
CHILD_S: Final = 900
ROUNDS: Final = 3

Figures: TypeAlias = Mapping[str, float]


def python_with(home: str, *packages: str) -> str | None:
    """The Python of peers, which are installed the first time; None if they cannot be installed here."""
    python = ROOT / ".venv" / home / "bin" / "python"
    try:
        if not python.exists():
            venv.create(python.parents[1], with_pip=True)
        run(str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages)
    except subprocess.CalledProcessError:
        return None
    return str(python)


@dataclass(frozen=True, slots=True)
class Contestant:
    module: str
    arguments: tuple[str, ...]
    python: str = sys.executable

    def figures(self) -> Figures:
        return answer(self.python, "-m", self.module, *self.arguments)


def best_of_each(contestants: Mapping[str, Contestant]) -> dict[str, Figures]:
    """The best of some rounds: whatever else the machine does only ever makes one slower.

    They take turns, so that a slow minute of the machine does not meet one of them alone.
    """
    rounds = [{name: each.figures() for name, each in contestants.items()} for _ in range(ROUNDS)]
    return {name: _best([each[name] for each in rounds]) for name in contestants}


def _best(rounds: Sequence[Figures]) -> Figures:
    return {key: (max if key.endswith("cpu_s") else min)(each[key] for each in rounds) for key in rounds[0]}


def answer(*command: str, **environment: str) -> Figures:
    """What a contestant says last, which is one JSON object."""
    return json.loads(run(*command, **environment).splitlines()[-1])


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        env={**os.environ, **environment},
    )
    return done.stdout
