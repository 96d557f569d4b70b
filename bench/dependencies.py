"""One run with 1,000 downstreams, and a graph of 10,000 pipelines. Prints figures with the bounds of the design.

Time on SQLite is that of a whole worker, from the commit of the upstream's sensor to the last downstream start.
Requests are counted on an emulator of DynamoDB at two sizes: the difference is what one more downstream costs, whatever
the machine. Run it with `python -m bench dependencies`.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from bench.engine_worker import BEGAN_AT, SCHEDULE, InProcess, logging_to_nowhere, store_of, worker_on
from tests.support.aws.emulators import dynamodb_tables, ministack
from tests.support.worlds.engine import FakeStanding
from worker.app.components import build_engine
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import JobType, Pipeline, PipelineId
from worker.core.run.facts import Origin, RunTriggered
from worker.core.time.periods import Period
from worker.jobs.runner import StartRequest
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import run_key
from worker.store.repos.sensors import Sensors
from worker.store.table import Change, ChangeKind, TableName, Tables

FAN_OUT: Final = 1_000
FAN_OUT_S_MAX: Final = 10.0
GRAPH: Final = 10_000
VALIDATE_S_MAX: Final = 5.0
COUNTED: Final = (20, 60)  # downstreams on the emulator, which is slow
PUSHED: Final = (10, 2_000)
ROOTS: Final = 10
ROOT: Final = PipelineId("root")
PATIENCE_S: Final = 300.0

_ROOT: Final = """
pipeline: {id: root}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
job: {type: http, config: {url: "https://root.example.com/jobs"}}
"""
_BELOW: Final = """
pipeline: {{id: {name}}}
schedule: {{after: [{after}]}}
job: {{type: http, config: {{url: "https://{name}.example.com/jobs"}}}}
"""


def loaded(text: str) -> Pipeline:
    found = load_text(text)
    assert found.pipeline is not None, found.errors
    return found.pipeline


def below(name: str, *upstreams: str) -> str:
    return _BELOW.format(name=name, after=", ".join(f"{{pipeline: {each}}}" for each in upstreams))


@dataclass(frozen=True, slots=True)
class Took:
    """Holds what a command took. On a busy machine the second is what counts."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:5.1f} s, {self.cpu_s:5.1f} s of CPU"


async def deploy_fan(tables: Tables, size: int) -> None:
    for text in (_ROOT, *(below(f"below-{number:04d}", ROOT) for number in range(size))):
        await deploy(tables, loaded(text), SystemClock())


async def fan_out(url: str) -> Took:
    """How long after the root's sensor was put the last of its downstreams was started."""
    producers = store_of(url)
    await producers.start()
    await deploy_fan(producers, FAN_OUT)
    started: set[str] = set()
    is_last = asyncio.Event()

    def note(request: StartRequest) -> None:
        started.add(request.context.pipeline)
        if len(started) == FAN_OUT + 1:
            is_last.set()

    async with worker_on(url) as worker:
        worker.on_start = note
        while worker.session is None:  # noqa: ASYNC110 - the worker tells nobody, and need not
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.0)  # the first read of the graph is over
        began, cpu = perf_counter(), process_time()
        await Sensors(producers).put(ROOT, f"ready#{BEGAN_AT.date()}", {"status": "done"})
        async with asyncio.timeout(PATIENCE_S):
            await is_last.wait()
        needed = Took(perf_counter() - began, process_time() - cpu)
    await producers.stop()
    return needed


async def requests_of(size: int) -> Counter[str]:
    """What is asked of DynamoDB when a run with so many downstreams ends, until all of their jobs are started."""
    server = ministack()
    started, is_last = set[str](), asyncio.Event()

    def note(request: StartRequest) -> None:
        started.add(request.context.pipeline)
        if len(started) == size + 1:
            is_last.set()

    async with dynamodb_tables(server, SystemClock()) as tables, asyncio.TaskGroup() as tasks:
        await deploy_fan(tables, size)
        parts = build_engine(
            tables,
            {JobType.HTTP: InProcess(note)},
            FakeStanding(SessionId("bench"), {}),
            SystemClock(),
            tasks,
            began_at=BEGAN_AT - timedelta(days=1),
        )
        timers = tasks.create_task(parts.engine.run(), name="timers")
        key = RunKey(ROOT, SCHEDULE, Period(BEGAN_AT.date()))
        version = await parts.configs.current(ROOT)
        assert version is not None
        begin = RunTriggered(key=key, birth=parts.engine.new_run(version), origin=Origin.SENSOR)
        await parts.engine.handle(key, begin)
        image = None
        async with asyncio.timeout(PATIENCE_S):
            while image is None or image.get("state") != "COMPLETED":
                await asyncio.sleep(0.1)
                image = await tables.get(TableName.CONTROL, run_key(key))
            before = Counter(server.proxy.operations)
            await parts.router.handle(
                Change(
                    position=1,
                    table=TableName.CONTROL,
                    key=run_key(key),
                    kind=ChangeKind.MODIFY,
                    image=image,
                    at=BEGAN_AT,
                )
            )
            await is_last.wait()
        timers.cancel()
        return Counter(server.proxy.operations) - before


def took(*words: str) -> Took:
    """Run a command of `interlock` in a process of its own."""
    wall, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from worker.cli.main import main; main()", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    after = getrusage(RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(perf_counter() - wall, cpu_s)


def write_graph(folder: Path) -> None:
    """Ten roots, and two upstreams for each of the others."""
    folder.mkdir()
    for number in range(GRAPH):
        name = f"p{number:05d}"
        text = (
            below(name, f"p{number // 2:05d}", f"p{number // 3:05d}")
            if number >= ROOTS
            else _ROOT.replace("root", name)
        )
        (folder / f"{name}.yaml").write_text(text)


async def fan_of(url: str, size: int) -> None:
    tables = store_of(url)
    await tables.start()
    await deploy_fan(tables, size)
    await tables.stop()


def pushed(folder: Path, size: int) -> Took:
    """Push a change of one pipeline to a store that has so many."""
    url = f"sqlite:///{folder}/push-{size}.db"
    asyncio.run(fan_of(url, size))
    file = folder / "changed.yaml"
    file.write_text(below("below-0000", ROOT, "below-0001"))
    return took("pipelines", "push", str(file), "--yes", "--store", url)


def main() -> None:
    with TemporaryDirectory() as name, logging_to_nowhere():
        folder = Path(name)
        needed = asyncio.run(fan_out(f"sqlite:///{folder}/fan.db"))
        within = f"(at most {FAN_OUT_S_MAX:.0f} s)"
        print(f"{FAN_OUT:,} downstreams of one run on SQLite: all started after {needed} {within}", flush=True)
        few, many = (asyncio.run(requests_of(size)) for size in COUNTED)
        more = COUNTED[1] - COUNTED[0]
        each = ", ".join(f"{name} {(many[name] - few[name]) / more:.1f}" for name in sorted(many))
        print(f"requests to DynamoDB for one more downstream, from its creation to its start: {each}")
        write_graph(folder / "graph")
        print(
            f"validate {GRAPH:,} pipelines: {took('validate', str(folder / 'graph'))} (at most {VALIDATE_S_MAX:.0f} s)"
        )
        for size in PUSHED:
            print(f"push a change of one of {size:,} pipelines: {pushed(folder, size)}")


if __name__ == "__main__":
    main()
