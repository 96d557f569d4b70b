"""Measure how much processor time a command takes, next to a Python that does nothing.

Each command runs in a process of its own, on a SQLite store with the example pipelines; the least of several rounds
counts. `start` is the processor time until the command begins to work on the store. `all` is
the time of the whole process, with the work and the end of Python. It is processor time, because a busy machine makes
every process wait; even so, compare figures of one run only.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROUNDS: Final = 10
INTERLOCK: Final = (sys.executable, "-c", "from worker.cli.main import main; main()")
# Ends a command where it would begin to work, and prints the processor time until then.
TO_WORK: Final = (
    sys.executable,
    "-c",
    """
import sys, time
from worker.cli.main import main
from worker.cli.terminal import store_session
store_session.told = lambda *_: sys.exit(print(time.process_time()))
main()
""",
)
PEER: Final = "python -c pass"
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "--version": ("--version",),
    "--help": ("--help",),
    "sensor put (new pipeline)": ("sensor", "put", "new", "landing", "rows=1"),
    "sensor put (known pipeline)": ("sensor", "put", "orders-daily", "orders-export", "rows=1"),
    "status": ("status",),
}
ON_STORE: Final = tuple(name for name in COMMANDS if not name.startswith("--"))


def main() -> None:
    start, whole = measure()
    print(f"{'command':<32}{'start ms':>10}{'all ms':>8}{'ratio':>8}")
    for name, cpu_ms in whole.items():
        begun = f"{start[name]:.0f}" if name in start else "-"
        print(f"{name:<32}{begun:>10}{cpu_ms:>8.0f}{cpu_ms / whole[PEER]:>8.1f}")


def measure(rounds: int = ROUNDS) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least processor time of each command in milliseconds: until it works, and of all of it."""
    # Without compiled modules the compiler would be measured.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "INTERLOCK_STORE": "sqlite:///interlock.db"}
    starts: dict[str, list[float]] = {name: [] for name in ON_STORE}
    wholes: dict[str, list[float]] = {name: [] for name in (PEER, *COMMANDS)}
    with tempfile.TemporaryDirectory() as folder:
        for words in (("store", "init"), ("pipelines", "push", str(ROOT / "examples"), "--yes")):
            _cpu_ms((*INTERLOCK, *words), folder, environment)
        for _ in range(rounds):
            wholes[PEER].append(_cpu_ms((sys.executable, "-c", "pass"), folder, environment))
            for name, words in COMMANDS.items():
                wholes[name].append(_cpu_ms((*INTERLOCK, *words), folder, environment))
            for name in ON_STORE:
                starts[name].append(_ms_to_work((*TO_WORK, *COMMANDS[name]), folder, environment))
    return {name: min(times) for name, times in starts.items()}, {name: min(times) for name, times in wholes.items()}


def _cpu_ms(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _ms_to_work(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> float:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True, text=True)
    return float(done.stdout) * 1000


if __name__ == "__main__":
    main()
