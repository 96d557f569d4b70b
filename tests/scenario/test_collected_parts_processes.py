"""Many files, one period, and real processes that are killed: two inboxes on a folder and a worker, on one SQLite file.

CHAOS_ROUNDS asks for several seeds and sizes, up to 10,000 parts.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.support.worlds.live_worker import PATIENCE_S, LiveWorker, interlock, today
from worker.core.collect.collection import CollectedPart, add_parts
from worker.core.collect.collection import Collection as Parts
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections
from worker.store.repos.events import Events
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs
from worker.store.sqlite.tables import SqliteTables

ROUNDS: Final = [(1, 300), (2, 3_000), (3, 10_000)] if os.environ.get("CHAOS_ROUNDS") else [(21, 40)]
ORDERS: Final = PipelineId("orders")
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: parts, check: equals, field: complete, value: true}
validation:
  rules: [{key: parts, check: equals, field: complete, value: true}]
job:
  type: command
  config: {command: [sh, -c, "echo started >> starts.txt"]}
  pollIntervalSeconds: 1
"""
RULES: Final = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: {until: {count: COUNT}}
"""


class Chaos:
    """Two inboxes and a worker, each of which is killed at random and started again."""

    def __init__(self, at: Path, random: Random) -> None:
        self._at, self._random = at, random
        self.kills = 0
        self._numbers = iter(range(10**6))
        self._commands = {"one": ["watch", "landing", "--rules", "inbox.yaml"]}
        self._commands["two"] = self._commands["one"]
        self._living: dict[str, LiveWorker] = {}

    def __enter__(self) -> "Chaos":
        for name in ("one", "two", "worker"):
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._living.values():
            each.kill()

    def _start(self, name: str) -> None:
        log = f"{name}-{next(self._numbers)}"
        if name == "worker":
            self._living[name] = LiveWorker(self._at, log, "--pipelines", "pipelines/")
        else:
            self._living[name] = LiveWorker(self._at, log, *self._commands[name], command="inbox")

    def kill_one(self) -> None:
        name = self._random.choice(["one", "two", "two", "worker"])
        self._living[name].kill()
        self.kills += 1
        self._start(name)

    def until_it_works(self) -> None:
        """Wait until something is written to the store, so that a kill hits the work; at most two seconds."""
        log, deadline = self._at / "interlock.db-wal", time.monotonic() + 2
        before = log.stat().st_mtime_ns if log.exists() else 0
        while time.monotonic() < deadline and (log.stat().st_mtime_ns if log.exists() else 0) == before:
            time.sleep(0.01)

    def until(self, path: Path, lines: int) -> None:
        """Wait until a file has so many lines."""
        deadline = time.monotonic() + 3 * PATIENCE_S
        while (path.read_text().count("\n") if path.exists() else 0) < lines:
            logs = "\n".join(each.log.read_text()[-2000:] for each in self._living.values())
            assert time.monotonic() < deadline, f"the job did not start; the processes said:\n{logs}"
            time.sleep(0.1)


def contents(day: str, count: int) -> Iterator[tuple[str, str]]:
    return ((f"orders/{day}/part-{number}.csv", f"part {number}\n") for number in range(count))


def write(folder: Path, key: str, text: str) -> None:
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text)
    unfinished.replace(path)


async def outcome(at: Path, day: str) -> tuple[Run, dict[str, Json], list[CollectedPart], list[str]]:
    """The run, what its job was started on, the parts of the period, and the types of all events."""
    period = Period.parse(day)
    assert period is not None
    key = RunKey(ORDERS, ScheduleId("stream"), period)
    tables = SqliteTables(at / "interlock.db", SystemClock())
    await tables.start()
    try:
        run = await Runs(tables).load(key)
        assert isinstance(run, Run)
        data = (await RunData(tables).inputs([key]))[key].inputs[f"parts#{day}"].data
        collection = CollectionKey(rule="parts", pipeline=ORDERS, sensor=f"parts#{day}")
        kept = [each async for each in PartCollections(tables).parts(collection)]
        return run, dict(data or {}), kept, [each.event.type for each in await Events(tables).latest("orders", 200)]
    finally:
        await tables.stop()


def digest_of(parts: list[CollectedPart]) -> str:
    bare = [CollectedPart(key=each.key, etag=each.etag, size=each.size) for each in parts]
    return add_parts(Parts(), {}, bare, SystemClock().now()).collection.digest


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(900 if os.environ.get("CHAOS_ROUNDS") else 280)
@pytest.mark.parametrize(("seed", "count"), ROUNDS)
def test_parts_in_any_order_with_repeats_through_processes_that_are_killed_are_one_start(
    tmp_path: Path, seed: int, count: int
) -> None:
    random, day, landing, starts = Random(seed), today(), tmp_path / "landing", tmp_path / "starts.txt"
    landing.mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/orders.yaml").write_text(CONFIG)
    (tmp_path / "inbox.yaml").write_text(RULES.replace("COUNT", str(count)))
    assert interlock("store", "init", at=tmp_path).returncode == 0
    files = list(contents(day, count))
    arrivals = random.sample([*files, *random.sample(files, count // 5)], count + count // 5)
    kills = 4 if count < 100 else 12

    with ExitStack() as stack:
        chaos = stack.enter_context(Chaos(tmp_path, random))
        for number, (key, text) in enumerate(arrivals):
            write(landing, key, text)
            if number % (len(arrivals) // kills) == len(arrivals) // kills - 1:
                chaos.until_it_works()
                chaos.kill_one()
        chaos.until(starts, 1)
        for _ in range(2):  # after the start, too
            chaos.kill_one()
        write(landing, files[0][0], "changed\n")
        chaos.until(starts, 2)

    run, inputs, kept, events = asyncio.run(outcome(tmp_path, day))
    assert chaos.kills >= kills
    assert starts.read_text() == "started\n" * 2, "one start for all parts, and one for the part that changed"
    assert events.count("LATE_DATA_ARRIVAL") == 1
    assert (run.attempt, run.state in {State.TRIGGERING, State.POLLING, State.COMPLETED}) == (2, True)
    assert {each.key for each in kept} == {key for key, _ in files}
    assert (inputs["complete"], inputs["count"], inputs["digest"]) == (True, count, digest_of(kept))
