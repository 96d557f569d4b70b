"""How stream readers are compared: each in a process of its own, and the peers in an environment of their own."""

import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".venv" / "peers-streams"
CHILD_S: Final = 300
ROUNDS: Final = 2

Figures: TypeAlias = Mapping[str, float]


def best(module: str, *arguments: str, python: str = sys.executable) -> Figures:
    """The best of some rounds: whatever else the machine does only ever makes one slower."""
    rounds = [_answer(python, "-m", module, *arguments) for _ in range(ROUNDS)]
    keys = rounds[0]
    return {key: (max if key.endswith("cpu_s") else min)(each[key] for each in rounds) for key in keys}


def peer_python(package: str) -> str | None:
    """The Python that has a peer, which is installed the first time; None if it cannot be installed here."""
    python = PEERS / "bin" / "python"
    try:
        if not python.exists():
            venv.create(PEERS, with_pip=True)
        _run(str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", package)
    except subprocess.CalledProcessError:
        return None
    return str(python)


def _answer(*command: str) -> Figures:
    return json.loads(_run(*command).splitlines()[-1])


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=CHILD_S)
    return done.stdout
