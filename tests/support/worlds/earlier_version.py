"""An earlier commit of the program, installed with its own locked packages, to run next to the code at hand."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.release.source import export, read_source
from tests.support.worlds.live_worker import LiveWorker, environment

_ROOT: Final = Path(__file__).parents[3]
_INSTALL_S: Final = 300


def install(commit: str) -> Path:
    """Install a commit below `.venv`, unless it is there; gives its `interlock`."""
    source = read_source(commit)
    place = _ROOT / ".venv/earlier" / source.commit
    program = place / "bin/interlock"
    if not (place / ".ready").exists():
        checkout = place / "source"
        checkout.mkdir(parents=True, exist_ok=True)
        export(source, checkout)
        _run(sys.executable, "-m", "venv", "--clear", str(place / "env"))
        pip = [str(place / "env/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # With digests, if its lock file has them already.
        _run(*pip, "-r", str(checkout / "requirements/runtime.txt"))
        _run(*pip, "--no-deps", str(checkout))
        program.parent.mkdir(exist_ok=True)
        program.unlink(missing_ok=True)
        program.symlink_to(place / "env/bin/interlock")
        (place / ".ready").touch()
    return program


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_INSTALL_S)
    assert done.returncode == 0, f"{' '.join(words[:6])}: {done.stdout}{done.stderr}"


class EarlierWorker(LiveWorker):
    """EarlierWorker is an `interlock run` of an earlier commit, which sees nothing of the code at hand."""

    def __init__(self, program: Path, at: Path, name: str, *arguments: str) -> None:
        self.output, self.log = at / f"{name}.out", at / f"{name}.log"
        variables = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
        with self.output.open("w") as output, self.log.open("w") as log:
            command = [str(program.resolve()), "run", *arguments]
            self.process = subprocess.Popen(command, cwd=at, env=variables, stdout=output, stderr=log)


def commit_to_upgrade_from() -> str:
    """Return the commit that UPGRADE_FROM names; empty: none, and there is no such test."""
    return os.environ.get("UPGRADE_FROM", "")
