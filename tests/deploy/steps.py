"""The steps of `make deploy-check`: how one is carried out, and how its commands are run."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
STEP_S: Final = 900


class Failed(Exception):
    """A step found something wrong, or could not be done."""


class Skipped(Exception):
    """A step cannot be done here; says what it needs."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    needs: tuple[str, ...]
    run: Callable[[Path], str]  # gives what is worth saying


def carry_out(steps: Iterable[Step], work: Path) -> int:
    """Carry out all steps, whatever the result of each; gives the exit code."""
    results: list[str] = []
    for step in steps:
        began = time.monotonic()
        results.append(_result_of(step, work))
        print(f"{results[-1]:8} {step.name} ({time.monotonic() - began:.0f} s)", flush=True)
    if "failed" in results:
        return 1
    return 3 if "skipped" in results else 0


def _result_of(step: Step, work: Path) -> str:
    missing = [tool for tool in step.needs if shutil.which(tool) is None]
    if missing:
        print(f"  {' and '.join(missing)} not found: install it and try again")
        return "skipped"
    try:
        said = step.run(work)
    except Skipped as error:
        print(f"  {error}")
        return "skipped"
    except Failed as error:
        print(f"  {error}")
        return "failed"
    print(f"  {said}")
    return "ok"


def run(command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run to the end; gives what was printed. Raises `Failed` with all of it if that was no success."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=STEP_S,
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout
