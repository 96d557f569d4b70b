"""A herd on an emulator of AWS: thousands of runs due at once, with one, two and four real workers.

Two herds. `sensors`: pipelines whose sensors are all written at once. `cron`: pipelines that are all due in one minute;
the scheduler spreads them over half a minute. The figures of each number of workers, all taken from the workers' own
logs and from `/proc`:

* starts/s: from the first start to the last, so neither the producer nor the emulator's tables are waited for
* share: which part of the runs each worker started
* delay: from the sensor's write, or from the cron time, to the confirmed start of the job
* missed polls: whole poll intervals by which ends were recorded later than the first poll after them
* CPU per run: of all workers, from the cron time or the first sensor until the last run was recorded, so without the
  deployment of the pipelines; the emulator's is separate

The workers share the machine's cores with the emulator, so a ratio between one and four workers says how far they
share the work; CPU per run says what the same herd costs on more cores. `BENCH_CODE=FOLDER` runs the workers of
another checkout. `BENCH_HERD`, `BENCH_WORKERS` and `BENCH_RUNS` choose parts. Run it with `python -m bench herd`.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from bench.burst import process
from bench.burst_processes import Contest
from bench.children import ROOT
from tests.support.aws.emulators import ministack
from tests.support.worlds.installation import REGION, Installation, endpoint_of, install, make_state_machine
from worker.config.deploy import deploy_many
from worker.config.load import load_text
from worker.core.errors import RetryLater
from worker.core.model.pipeline import PipelineId
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.runtime.concurrency import gather_bounded
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.sensors import Sensors

CODE: Final = Path(os.environ.get("BENCH_CODE", str(ROOT))).resolve()
HERDS: Final = os.environ.get("BENCH_HERD", "sensors,cron").split(",")
WORKERS: Final = [int(count) for count in os.environ.get("BENCH_WORKERS", "1,2,4").split(",")]
RUNS: Final = int(os.environ.get("BENCH_RUNS", "2000"))
DAYS: Final = 50  # periods of each pipeline of a herd of sensors
JOB_S: Final = 20
POLL_S: Final = 10
SETTLED_S: Final = 12.0  # the workers have divided shards and leases by then
PROBED: Final = 50  # deployments that tell how long all of them take
LOOK_AGAIN_S: Final = 1.0
PATIENCE_S: Final = 900.0

_CONFIG: Final = """
pipeline: {{id: {name}, owner: bench}}
schedule:
  {when}
  evaluation: {{window: 1h, interval: 5m}}
validation:
  rules: [{rules}]
job:
  type: step-function
  config: {{stateMachineArn: "{machine}"}}
  pollIntervalSeconds: {poll_s}
"""
_TRIGGER: Final = "trigger: {key: landed, check: exists}"
_RULE: Final = "{key: landed, field: rows, check: gte, value: 10}"


@dataclass(frozen=True, slots=True)
class Herd:
    """Holds an installation with real workers, and where they log."""

    tables: DynamoTables
    machine: str
    logs: Sequence[Path]
    workers: Sequence["subprocess.Popen[str]"]

    def facts(self, fact: str) -> list[dict[str, str]]:
        """The lines about a fact, with the name of the worker that logged each."""
        found: list[dict[str, str]] = []
        for log in self.logs:
            with log.open() as lines:
                said = [json.loads(line) for line in lines if '"fact.handled"' in line and f'"{fact}"' in line]
            found += [{**line, "worker": log.parent.name} for line in said if line["fact"] == fact]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    starts_per_s: float
    shares: Sequence[float]
    delay_p50_s: float
    delay_p99_s: float
    missed_polls: int
    cpu_ms: float
    emulator_ms: float
    starts: int


async def installed(endpoint: str) -> Installation:
    """Install on an emulator; on a busy machine its first answers take longer than a worker waits for AWS."""
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await install(endpoint)
        except RetryLater:
            if time.monotonic() > ends_at:
                raise


@asynccontextmanager
async def herd(folder: Path, count: int) -> AsyncGenerator[Herd]:
    endpoint = endpoint_of(ministack())
    place = await installed(endpoint)
    tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=endpoint))
    await tables.start()
    cli = (sys.executable, "-c", "from worker.cli.main import main; main()")
    variables = {**place.variables(slack_api=""), "INTERLOCK_SLACK_TOKEN": "", "PYTHONPATH": str(CODE)}
    machine = await make_state_machine(endpoint, seconds=JOB_S)
    with ExitStack() as stack:
        homes = [folder / f"worker-{number}" for number in range(count)]
        workers: list[subprocess.Popen[str]] = []
        for home in homes:
            home.mkdir()
            workers.append(stack.enter_context(process(*cli, "run", cwd=home, variables=variables)))
        logs = [home / "errors" for home in homes]
        await _until(lambda: all("session.began" in log.read_text() for log in logs), "the workers begin")
        await asyncio.sleep(SETTLED_S)
        yield Herd(tables, machine, logs, workers)
    await tables.stop()


async def by_sensors(made: Herd, begin: Callable[[], None]) -> Callable[[Mapping[str, str]], float]:
    """Write all sensors at once; the result says when a run was due. The herd begins when all know the pipelines."""
    names = [f"herd-{number:04d}" for number in range(RUNS // DAYS)]
    await _deploy(made, dict.fromkeys(names, _TRIGGER), _RULE)
    await asyncio.sleep(SETTLED_S)  # all workers know the pipelines
    begin()
    today, written = datetime.now(UTC).date(), dict[tuple[str, str], float]()

    async def fact(name: str, period: str) -> None:
        written[name, period] = time.time()
        await Sensors(made.tables).put(PipelineId(name), f"landed#{period}", {"rows": 12})

    periods = [str(today - timedelta(days=number + 1)) for number in range(DAYS)]
    await gather_bounded([partial(fact, name, period) for period in periods for name in names], at_once=32)
    return lambda line: written[line["pipeline"], line["period"]]


async def by_cron(made: Herd, begin: Callable[[], None]) -> Callable[[Mapping[str, str]], float]:
    """Deploy pipelines that are all due in the same minute, and wait for it. The herd begins then."""
    began = time.monotonic()
    await _deploy(made, dict.fromkeys([f"other-{n}" for n in range(PROBED)], 'cron: "0 0 1 1 *"'), "")
    took_s = (time.monotonic() - began) * RUNS / PROBED
    due = datetime.now(UTC) + timedelta(seconds=1.5 * took_s + SETTLED_S)
    due = due.replace(second=0, microsecond=0) + timedelta(minutes=1)
    names = [f"herd-{number:04d}" for number in range(RUNS)]
    await _deploy(made, dict.fromkeys(names, f'cron: "{due.minute} {due.hour} * * *"'), "")
    left_s = (due - datetime.now(UTC)).total_seconds()
    assert left_s > SETTLED_S / 2, f"deploying took until {left_s:.0f} s before the cron time"
    await asyncio.sleep(left_s)
    begin()
    return lambda _line: due.timestamp()


async def _deploy(made: Herd, schedules: Mapping[str, str], rules: str) -> None:
    texts = [
        _CONFIG.format(name=name, when=when, rules=rules, machine=made.machine, poll_s=POLL_S)
        for name, when in schedules.items()
    ]
    pipelines = [pipeline for pipeline in (load_text(text).pipeline for text in texts) if pipeline is not None]
    assert len(pipelines) == len(texts)
    await deploy_many(made.tables, pipelines, SystemClock(), lambda _: None)


async def measure(kind: str, count: int) -> Figures:
    with TemporaryDirectory() as name:
        async with herd(Path(name), count) as made:
            ours = Contest(tuple(worker.pid for worker in made.workers), Path("/nothing else"))
            other = Contest((pid_on(ministack().port),), Path("/nothing else"))
            before = (0.0, 0.0)

            def begin() -> None:
                nonlocal before
                before = ours.cpu_s(), other.cpu_s()

            due = await (by_cron if kind == "cron" else by_sensors)(made, begin)
            await _until(lambda: len(made.facts("JobSucceeded")) >= RUNS, "all runs are recorded")
            cpu = ours.cpu_s() - before[0], other.cpu_s() - before[1]
            return _figures(made, due, cpu)


def _figures(made: Herd, due: Callable[[Mapping[str, str]], float], cpu: tuple[float, float]) -> Figures:
    started = {line["run"]: line for line in made.facts("JobStarted")}
    at = {run: _time(line) for run, line in started.items()}
    delays = sorted(at[run] - due(line) for run, line in started.items())
    shares = Counter(line["worker"] for line in started.values())
    ended = {line["run"]: _time(line) for line in made.facts("JobSucceeded")}
    late = [ended[run] - (at[run] + JOB_S) - POLL_S for run in started]
    cuts = quantiles(delays, n=100)
    return Figures(
        starts_per_s=len(started) / max(0.001, max(at.values()) - min(at.values())),
        shares=sorted((count / len(started) for count in shares.values()), reverse=True),
        delay_p50_s=cuts[49],
        delay_p99_s=cuts[98],
        missed_polls=sum(int(each // POLL_S) + 1 for each in late if each > 1.0),
        cpu_ms=cpu[0] / RUNS * 1000,
        emulator_ms=cpu[1] / RUNS * 1000,
        starts=len(made.facts("JobStarted")),
    )


def _time(line: Mapping[str, str]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


def pid_on(port: int) -> int:
    """The process that listens on a port of this machine."""
    wanted = f"{port:04X}"
    sockets = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{wanted}") and line.split()[3] == "0A"
    }
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if any(f"socket:[{inode}]" == str(link.readlink()) for inode in sockets):
                return int(link.parts[2])
        except OSError:
            continue
    raise LookupError(f"nothing listens on port {port}")


async def _until(has_come: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not has_come():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"it took longer than {PATIENCE_S:.0f} s until {what}")
        await asyncio.sleep(LOOK_AGAIN_S)


def main() -> None:
    for kind in HERDS:
        print(f"{kind + ', ' + str(RUNS) + ' runs':<22}{'starts/s':>9}{'p50':>8}{'p99':>8}{'missed':>8}", end="")
        print(f"{'CPU/run':>10}{'emulator':>10}  shares (of {CODE.name}, {os.cpu_count()} cores)")
        for count in WORKERS:
            found = asyncio.run(measure(kind, count))
            assert found.starts == RUNS, f"{found.starts} starts of {RUNS} runs"
            shares = " ".join(f"{share:.0%}" for share in found.shares)
            print(f"  {f'{count} workers':<20}{found.starts_per_s:>9.1f}{found.delay_p50_s:>6.1f} s", end="")
            print(f"{found.delay_p99_s:>6.1f} s{found.missed_polls:>8}", end="")
            print(f"{found.cpu_ms:>7.1f} ms{found.emulator_ms:>7.1f} ms  {shares}", flush=True)


if __name__ == "__main__":
    main()
