"""How much processor time a command takes altogether, beside a Python that does nothing.

Each runs in a process of its own, on a SQLite store with the example pipelines; the least of several rounds counts.
Processor time, because a machine that is busy makes everybody wait; even so, compare ratios only of one run. `sensor
put` is measured twice: advice about a known pipeline needs its configuration understood, after the sensor is written.
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
PEER: Final = "python -c pass"
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    PEER: (sys.executable, "-c", "pass"),
    "interlock --version": (*INTERLOCK, "--version"),
    "interlock --help": (*INTERLOCK, "--help"),
    "interlock sensor put (new pipeline)": (*INTERLOCK, "sensor", "put", "new", "landing", "rows=1"),
    "interlock sensor put (known pipeline)": (*INTERLOCK, "sensor", "put", "orders-daily", "orders-export", "rows=1"),
    "interlock status": (*INTERLOCK, "status"),
}


def main() -> None:
    least = measure()
    print(f"{'command':<40}{'CPU ms':>8}{'ratio':>8}")
    for name, cpu_ms in least.items():
        print(f"{name:<40}{cpu_ms:>8.0f}{cpu_ms / least[PEER]:>8.1f}")


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Give the least processor time of each command, in milliseconds."""
    # Without compiled modules the compiler would be measured.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "INTERLOCK_STORE": "sqlite:///interlock.db"}
    with tempfile.TemporaryDirectory() as folder:
        for words in (("store", "init"), ("pipelines", "push", str(ROOT / "examples"), "--yes")):
            _cpu_ms((*INTERLOCK, *words), folder, environment)
        times = [{name: _cpu_ms(words, folder, environment) for name, words in COMMANDS.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in times) for name in COMMANDS}


def _cpu_ms(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    main()
