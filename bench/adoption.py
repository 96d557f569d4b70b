"""Takeover of thousands of runs of a killed worker, on SQLite and on an emulator of AWS, with real workers.

Worker one has a session and owns all runs: most wait for rules that do not hold, some poll a job, some were about to
start one. Worker two is alive beside it. Worker one is killed, and the log of worker two says when its session was
judged dead, when the runs were adopted and when jobs started again. A silent session counts as dead after seven
seconds; on SQLite, a worker on the same host is seen to be gone at once. The figures, from the kill unless said
otherwise:

* judged: until the session counted as dead
* half, all: until half of the runs, and until all of them were adopted; `after` is `all` from the judgement on
* urgent: until the last of those that were about to start was adopted, and how many others were adopted before it
* first start: of a job whose start the killed worker left undone
* new start: of the run whose sensor was written right after the kill
* CPU: of worker two, from the kill until all of this; the emulator's is separate
* step: the longest step of its event loop after the kill, in CPU time

`BENCH_CODE=FOLDER` runs the workers of another checkout; `BENCH_STORES` and `BENCH_RUNS` choose parts. Run it with
`python -m bench adoption`.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.burst import process
from bench.burst_processes import Contest
from bench.children import ROOT
from bench.herd import installed, pid_on
from tests.support.aws.emulators import AWS_ENVIRONMENT, ministack
from tests.support.worlds.installation import REGION, client, endpoint_of, make_state_machine
from worker.config.deploy import deploy_many
from worker.config.load import load_text
from worker.config.versions import PipelineVersions
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run, StartStep, State
from worker.core.time.periods import Period
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.runtime.concurrency import gather_bounded
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

CODE: Final = Path(os.environ.get("BENCH_CODE", str(ROOT))).resolve()
STORES: Final = os.environ.get("BENCH_STORES", "sqlite,emulator").split(",")
RUNS: Final = int(os.environ.get("BENCH_RUNS", "10000"))
PIPELINES: Final = RUNS // 10
POLLING: Final = 0.2  # parts of all runs; the others wait
STARTING: Final = 0.01
SETTLED_S: Final = 12.0  # the second worker has asked for its share of the leases, and got it
PATIENCE_S: Final = float(os.environ.get("BENCH_PATIENCE_S", "300"))
LOOK_AGAIN_S: Final = 0.5

_CONFIG: Final = """
pipeline: {{id: {name}, owner: bench}}
schedule:
  trigger: {{key: landed, check: exists}}
  evaluation: {{window: 6h, interval: 5m}}
validation:
  rules:
    - {{key: landed, check: exists}}
    - {{key: checked, field: rows, check: gte, value: 10}}
job:
  type: step-function
  config: {{stateMachineArn: "{machine}"}}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Holds a store, and the settings of workers on it."""

    tables: Tables
    variables: Mapping[str, str]
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    judged_s: float
    half_s: float
    all_s: float
    urgent_s: float
    before_urgent: int
    first_start_s: float
    new_start_s: float
    cpu_s: float
    emulator_s: float
    step_s: float
    beats_missed: int


@asynccontextmanager
async def store(kind: str, folder: Path) -> AsyncGenerator[Place]:
    endpoint = endpoint_of(ministack())
    place, machine = await installed(endpoint), await make_state_machine(endpoint, seconds=3600)
    variables = {"PYTHONPATH": str(CODE), "INTERLOCK_SLACK_TOKEN": ""}
    if kind == "sqlite":
        tables = SqliteTables(folder / "interlock.db", SystemClock())
        variables |= {**AWS_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
        variables |= {"INTERLOCK_STORE": f"sqlite:///{folder}/interlock.db"}
    else:
        tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=endpoint))
        variables = {**place.variables(slack_api=""), **variables}
    await tables.start()
    try:
        yield Place(tables, variables, machine)
    finally:
        await tables.stop()


async def seed(place: Place, owner: SessionId, names: list[PipelineId]) -> None:
    """Write the runs that a worker with this session would hold; the last ones of them are about to start."""
    configs = PipelineVersions(place.tables)
    job = await _execution(place.machine)
    today = datetime.now(UTC).date()
    hashes: dict[PipelineId, str] = {}

    async def persist(name: PipelineId) -> None:
        version = await configs.current(name)
        assert version is not None
        await configs.persist(version)
        hashes[name] = version.config_hash

    await gather_bounded([partial(persist, name) for name in names], at_once=32)

    async def one(number: int, name: PipelineId, days: int) -> None:
        now = datetime.now(UTC)
        run = Run(
            key=RunKey(name, ScheduleId("stream"), Period(today - timedelta(days=days + 1))),
            run_id=f"{number:032d}",
            config_hash=hashes[name],
            created_at=now,
            since=now,
            window_ends_at=now + timedelta(hours=6),
            timeout_at=now + timedelta(hours=8),
            owner=owner,
        )
        if number >= RUNS * (1 - STARTING):
            run = replace(run, state=State.TRIGGERING, starter=owner, start_step=StartStep.SENT)
        elif number % round(1 / POLLING) == 0:
            run = replace(run, state=State.POLLING, job=job, started_at=now)
        await Runs(place.tables).save(run)

    each = product(range(10), names)
    writes = [partial(one, number, name, days) for number, (days, name) in enumerate(each)]
    await gather_bounded(writes, at_once=32)


async def _execution(machine: str) -> dict[str, str]:
    async with client("stepfunctions", endpoint_of(ministack())) as functions:
        made = await functions.start_execution(stateMachineArn=machine, name="long")
    return {"runId": made["executionArn"]}


async def measure(kind: str) -> Figures:
    with TemporaryDirectory() as name:
        async with store(kind, Path(name)) as place:
            names = [PipelineId(f"orders-{number:04d}") for number in range(PIPELINES)]
            await _deploy(place, names)
            return await _take_over(place, Path(name), names)


async def _deploy(place: Place, names: Sequence[PipelineId]) -> None:
    loaded = [load_text(_CONFIG.format(name=name, machine=place.machine)).pipeline for name in names]
    pipelines = [pipeline for pipeline in loaded if pipeline is not None]
    assert len(pipelines) == len(names)
    await deploy_many(place.tables, pipelines, SystemClock(), lambda _: None)


async def _take_over(place: Place, folder: Path, names: list[PipelineId]) -> Figures:
    cli = (sys.executable, "-c", "from worker.cli.main import main; main()")
    homes = [folder / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    log = homes[1] / "errors"
    with ExitStack() as stack:
        one = stack.enter_context(process(*cli, "run", cwd=homes[0], variables=place.variables))
        await _until(lambda: bool(_lines(homes[0] / "errors", "session.began")), "the first worker begins")
        owner = SessionId(_lines(homes[0] / "errors", "session.began")[0]["session"])
        await seed(place, owner, names)
        watched = (sys.executable, "-P", str(ROOT / "bench" / "stepwatch.py"))
        two = stack.enter_context(process(*watched, "run", cwd=homes[1], variables=place.variables))
        await _until(lambda: bool(_lines(log, "session.began")), "the second worker begins")
        await asyncio.sleep(SETTLED_S)
        # The feed has the rows that were just written, too: until this one is started, it is not read to its end.
        last = await _ready(place.tables, names[2])
        await _until(lambda: any(last in _starts(home / "errors") for home in homes), "the feed is read")
        ours, other = (Contest((pid,), Path("/nothing else")) for pid in (two.pid, pid_on(ministack().port)))
        one.kill()
        killed, cpu_s, steps = time.time(), (ours.cpu_s(), other.cpu_s()), len(_lines(log, "loop.step"))
        new = await _ready(place.tables, names[1])

        def is_done() -> bool:
            assert two.poll() is None, log.read_text()[-3000:]
            starts = _starts(log)
            return len({*_adopted(log), last, new}) >= RUNS and new in starts and len(starts) > 1

        await _until(is_done, "all runs are adopted, and jobs start")
        cpu = ours.cpu_s() - cpu_s[0], other.cpu_s() - cpu_s[1]
        return _figures(log, killed, new, cpu, _lines(log, "loop.step")[steps:])


async def _ready(tables: Tables, name: PipelineId) -> str:
    """Say that the data of a run is ready, as its producers do; return the run's name."""
    period = Period(datetime.now(UTC).date() - timedelta(days=2))
    for key in ("checked", "landed"):
        await Sensors(tables).put(name, f"{key}#{period}", {"rows": 12})
    return str(RunKey(name, ScheduleId("stream"), period))


def _figures(
    log: Path, killed: float, new: str, cpu_s: tuple[float, float], steps: Sequence[Mapping[str, str]]
) -> Figures:
    adopted = _adopted(log)
    starts = {run: line for run, line in _starts(log).items() if _time(line) > killed}
    times = sorted(_time(line) - killed for line in adopted.values())
    urgent = max(_time(line) for line in adopted.values() if line["state"] == "TRIGGERING")
    others = [line for line in adopted.values() if line["state"] != "TRIGGERING" and _time(line) < urgent]
    return Figures(
        judged_s=min(_time(line) for line in _lines(log, "peer.ended")) - killed,
        half_s=times[len(times) // 2],
        all_s=times[-1],
        urgent_s=urgent - killed,
        before_urgent=len(others),
        first_start_s=min(_time(line) for run, line in starts.items() if run != new) - killed,
        new_start_s=_time(starts[new]) - killed,
        cpu_s=cpu_s[0],
        emulator_s=cpu_s[1],
        step_s=max((float(step["cpu_s"]) for step in steps), default=0.0),
        beats_missed=len(_lines(log, "session.ended")),
    )


def _adopted(log: Path) -> dict[str, dict[str, str]]:
    return {line["run"]: line for line in _lines(log, "run.adopted")}


def _starts(log: Path) -> dict[str, dict[str, str]]:
    said = _lines(log, "fact.handled")
    return {line["run"]: line for line in said if line["fact"] in ("JobStarted", "JobFound")}


def _lines(log: Path, event: str) -> list[dict[str, str]]:
    with log.open() as lines:
        return [json.loads(line) for line in lines if f'"{event}"' in line and line.endswith("}\n")]


def _time(line: Mapping[str, str]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


async def _until(has_come: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not has_come():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"it took longer than {PATIENCE_S:.0f} s until {what}")
        await asyncio.sleep(LOOK_AGAIN_S)


def main() -> None:
    print(f"{RUNS} runs, in seconds from the kill; code of {CODE.name}, {os.cpu_count()} cores")
    names = ("judged", "half", "all", "after", "urgent", "before", "first", "new", "CPU", "emulator", "step")
    print(f"  {'':<10}" + "".join(f"{name:>9}" for name in names))
    for kind in STORES:
        found = asyncio.run(measure(kind))
        times = (found.judged_s, found.half_s, found.all_s, found.all_s - found.judged_s, found.urgent_s)
        starts = (found.first_start_s, found.new_start_s, found.cpu_s, found.emulator_s)
        print(f"  {kind:<10}" + "".join(f"{each:>9.1f}" for each in times), end="")
        print(f"{found.before_urgent:>9}" + "".join(f"{each:>9.1f}" for each in starts), end="")
        print(f"{found.step_s * 1000:>6.0f} ms", flush=True)
        assert not found.beats_missed, "the second worker lost its session"


if __name__ == "__main__":
    main()
