"""How long `pipelines push` takes, on SQLite and on an emulator of DynamoDB, one by one and many at once.

`before` is what the command did: read a pipeline's configuration, then deploy it, and so on to the next; a part of the
pipelines is enough for its figure. The emulator answers one request at a time, so its seconds say little about
DynamoDB: the CPU that it took itself is their lower bound. The requests per pipeline say more. `at 10 ms` is what the
requests alone take if each is answered after 10 ms, with as many under way as the command allows. `files` is the whole
command on SQLite, with the files read and checked. `BENCH_RUNS` sets the number of pipelines on the emulator. Run it
with `python -m bench push`.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from bench.burst_processes import Contest
from bench.herd import installed, pid_on
from tests.support.aws.emulators import dynamodb_tables, ministack
from tests.support.aws.wire import WireProxy
from tests.support.worlds.installation import REGION, endpoint_of
from worker.config.deploy import GROUP_MAX, GROUPS_AT_ONCE, deploy, deploy_many
from worker.config.load import load_text
from worker.core.model.pipeline import Pipeline
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

PIPELINES: Final = 10_000
EMULATED: Final = int(os.environ.get("BENCH_RUNS", str(PIPELINES)))
COUNTED: Final = 200
BEFORE: Final = 100
ANSWER_S: Final = 0.01
TARGET_S: Final = 60
TEXT: Final = """\
pipeline: {{id: orders-{n:05d}, owner: data-platform, description: Orders of one day}}
schedule:
  cron: "{minute} 6 * * *"
  trigger: {{key: orders-loaded-{n}, check: equals, field: status, value: ready}}
  evaluation: {{window: 2h, interval: 5m}}
sla: {{deadline: "09:30", expectedDuration: 45m}}
validation:
  rules:
    - {{key: orders-count-{n}, check: gte, field: count, value: 1000}}
job: {{type: glue, config: {{jobName: orders-{n}, arguments: {{"--day": "${{DATE}}"}}}}, maxRetries: 2}}
"""


@dataclass(frozen=True, slots=True)
class Took:
    pipelines: int
    seconds: float
    cpu: float
    requests_each: float = 0.0
    emulator_s: float = 0.0

    def for_all(self, seconds: float) -> float:
        return seconds / self.pipelines * PIPELINES


def texts(count: int, first: int = 0) -> list[str]:
    return [TEXT.format(n=number, minute=number % 60) for number in range(first, first + count)]


def loaded(count: int, first: int = 0) -> list[Pipeline]:
    found = [load_text(text).pipeline for text in texts(count, first)]
    return [pipeline for pipeline in found if pipeline is not None]


async def one_by_one(tables: Tables, pipelines: Sequence[Pipeline]) -> None:
    for pipeline in pipelines:
        await Pipelines(tables).get(pipeline.id)
    for pipeline in pipelines:
        await deploy(tables, pipeline, SystemClock())


async def many_at_once(tables: Tables, pipelines: Sequence[Pipeline]) -> None:
    await Pipelines(tables).get_many([pipeline.id for pipeline in pipelines])
    await deploy_many(tables, pipelines, SystemClock(), lambda _: None)


async def timed(
    push: Callable[[Tables, Sequence[Pipeline]], Awaitable[None]],
    tables: Tables,
    pipelines: Sequence[Pipeline],
    wire: "Counter[str]",
) -> Took:
    wire.clear()
    began, worked = perf_counter(), process_time()
    await push(tables, pipelines)
    return Took(len(pipelines), perf_counter() - began, process_time() - worked, wire.total() / len(pipelines))


async def on_sqlite(folder: Path) -> tuple[Took, Took]:
    tables = SqliteTables(folder / "bench.db", SystemClock())
    await tables.start()
    try:
        before = await timed(one_by_one, tables, loaded(BEFORE, PIPELINES), Counter())
        return before, await timed(many_at_once, tables, loaded(PIPELINES), Counter())
    finally:
        await tables.stop()


async def on_emulator() -> tuple[Took, Took]:
    """Count requests on the wire for a part of the pipelines, then time all of them without anything in between."""
    wire: Counter[str] = Counter()
    server = ministack()

    def saw(operation: str, _asked: bytes, _answered: bytes) -> None:
        wire[operation] += 1

    with WireProxy(server.port, observe=saw) as proxy:
        async with dynamodb_tables(replace(server, proxy=proxy), SystemClock()) as tables:
            before = await timed(one_by_one, tables, loaded(BEFORE, PIPELINES), wire)
            now = await timed(many_at_once, tables, loaded(COUNTED), wire)
    place = await installed(endpoint_of(server))
    tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=endpoint_of(server)))
    await tables.start()
    try:
        emulator = Contest((pid_on(server.port),), Path("/nothing else"))
        began_s = emulator.cpu_s()
        took = await timed(many_at_once, tables, loaded(EMULATED), Counter())
        return before, replace(took, requests_each=now.requests_each, emulator_s=emulator.cpu_s() - began_s)
    finally:
        await tables.stop()


def whole_command(folder: Path) -> Took:
    files = folder / "files"
    files.mkdir()
    for number, text in enumerate(texts(PIPELINES)):
        (files / f"{number:05d}.yaml").write_text(text)
    store = ["--store", f"sqlite:///{folder}/command.db"]
    program = [str(Path(sys.executable).with_name("interlock"))]
    subprocess.run([*program, "store", "init", *store], check=True, capture_output=True)
    began = perf_counter()
    subprocess.run(
        [*program, "pipelines", "push", str(files), "--yes", "--json", *store], check=True, capture_output=True
    )
    return Took(PIPELINES, perf_counter() - began, 0.0)


def main() -> None:
    with TemporaryDirectory() as folder:
        sqlite = asyncio.run(on_sqlite(Path(folder)))
        emulator = asyncio.run(on_emulator())
        command = whole_command(Path(folder))
    print(f"seconds for {PIPELINES:,} pipelines (target: at most {TARGET_S})")
    print(f"{'':34}{'seconds':>9}{'cpu s':>8}{'requests each':>15}{'at 10 ms':>10}")
    under_way = {"before": 1, "now": GROUPS_AT_ONCE * GROUP_MAX}
    for store, figures in (("sqlite", sqlite), ("dynamodb, emulated", emulator)):
        for name, took in zip(under_way, figures, strict=True):
            ideal_s = took.requests_each * PIPELINES * ANSWER_S / under_way[name]
            each = f"{took.requests_each:>15.1f}{ideal_s:>10.0f}" if took.requests_each else ""
            each += f"   (the emulator's own CPU: {took.for_all(took.emulator_s):.0f} s)" if took.emulator_s else ""
            row = f"{took.for_all(took.seconds):>9.0f}{took.for_all(took.cpu):>8.0f}{each}"
            print(f"{f'{store}, {name} ({took.pipelines:,})':34}{row}")
        before, now = figures
        print(f"{'':34}{before.for_all(before.seconds) / now.for_all(now.seconds):.1f} times as fast as before")
    print(f"{'files: the whole command on sqlite':34}{command.seconds:>9.0f}")


if __name__ == "__main__":
    main()
