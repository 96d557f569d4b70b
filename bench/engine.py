"""What runs cost a whole worker on a SQLite file, beside dbos doing the same durable steps on SQLite.

Everything is on the disk before the next step is taken (`synchronous=FULL`, in the peer too). Lives are lived on one
core, whatever the machine has. Processor time is the figure to trust: it is the same on a busy machine. The last line,
an idle worker, takes a minute and a half. Run it with `python -m bench.engine`; with BENCH_FULL=1 also at 100,000
waiting runs, which takes minutes. The peer is installed into an environment of its own the first time.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.children import answer, python_with, run

WAITING: Final = (10_000, 100_000) if os.environ.get("BENCH_FULL") else (10_000,)
PEER: Final = "dbos==3.3.0"


@contextmanager
def one_core() -> Generator[None]:
    """What is started meanwhile has one core to itself, threads and all."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def lives() -> Mapping[str, float]:
    with one_core():
        return answer(sys.executable, "-m", "bench.engine_lives")


def waiting(count: int) -> Mapping[str, float]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "bench.db")
        run(sys.executable, "-m", "bench.engine_waiting", "make", path, str(count))
        return answer(sys.executable, "-m", "bench.engine_waiting", "adopt", path, str(count))


def idle() -> Mapping[str, float]:
    return answer(sys.executable, "-m", "bench.engine_idle")


def peer() -> Mapping[str, float] | None:
    """None if it cannot be installed here."""
    if (python := python_with("peers", PEER)) is None:
        return None
    with TemporaryDirectory() as folder, one_core():
        return answer(python, "-m", "bench.engine_dbos", folder)


def main() -> None:
    ours, theirs = lives(), peer()
    _print_lives("interlock", ours)
    if theirs is None:
        print(f"{PEER} could not be installed here: nothing to compare with")
    else:
        _print_lives(PEER, theirs)
        print(f"lives per CPU second beside the peer: {theirs['cpu_ms_per_life'] / ours['cpu_ms_per_life']:.1f} times")
    print(f"sensor write to job start: p50 {ours['start_p50_ms']:.0f} ms, p99 {ours['start_p99_ms']:.0f} ms")
    for count in WAITING:
        seen = waiting(count)
        print(
            f"{count:,} waiting runs: {seen['bytes_per_run']:,.0f} bytes each, "
            f"adopted in {seen['adopted_s']:.1f} s ({seen['adopted_cpu_s']:.1f} s of CPU)",
            flush=True,
        )
    still = idle()
    print(f"{still['waiting']:.0f} waiting runs, nothing to do: {still['cpu_s_per_minute']:.2f} s of CPU per minute")


def _print_lives(name: str, cost: Mapping[str, float]) -> None:
    wall, cpu_ms = cost["lives_per_second"], cost["cpu_ms_per_life"]
    rate = f"{wall:>6.0f} lives/s on one core"
    print(f"{name:<12} {rate}, {cpu_ms:>5.1f} ms CPU each, {1e3 / cpu_ms:>4.0f} per CPU s", flush=True)


if __name__ == "__main__":
    main()
