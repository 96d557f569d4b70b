"""Contestants of a benchmark: each in a process of its own, and the peers in environments of their own."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
CHILD_S: Final = 900
ROUNDS: Final = 2

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


def best(module: str, *arguments: str, python: str = sys.executable) -> Figures:
    """The best of some rounds: whatever else the machine does only ever makes one slower."""
    rounds = [answer(python, "-m", module, *arguments) for _ in range(ROUNDS)]
    keys = rounds[0]
    return {key: (max if key.endswith("cpu_s") else min)(each[key] for each in rounds) for key in keys}


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
