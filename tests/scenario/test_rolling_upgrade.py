"""Workers of an earlier commit and of this one on one file: an upgrade, and the way back, one worker at a time.

`make test-upgrade` runs it. UPGRADE_FROM names the commit, which is installed with its own packages; without it there
is nothing to run here. Another test takes over stores that earlier releases left: `test_upgrades.py`.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.support.worlds.earlier_version import EarlierWorker, commit_to_upgrade_from, install
from tests.support.worlds.live_worker import LiveWorker, interlock
from tests.support.worlds.observer import Onlooker, last_days, session_of, wait_until
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, start_token
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables

COMMIT: Final = commit_to_upgrade_from()
WAVE: Final = 6  # runs that begin between two steps of the upgrade
WITHIN_S: Final = 150.0
MINUTES: Final = 3  # with both versions on the way there, on the way back, and after it
QUIET_FROM_S, QUIET_TO_S = 10, 45  # of a minute: the run that began with it is over, and the next one far

pytestmark = [
    pytest.mark.skipif(not COMMIT, reason="UPGRADE_FROM names no commit"),
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(900),
]

# Each job says its token: a job that ran twice, or not at all, shows. It takes long enough to be handed over.
ORDERS: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: ready, check: exists}
sla: {maxDuration: 30m}
job:
  type: command
  config: {command: [sh, -c, "sleep 2; echo $INTERLOCK_TOKEN >> ran"]}
  pollIntervalSeconds: 1
"""
TIMED: Final = """
pipeline: {id: timed}
schedule: {cron: "* * * * *", timezone: UTC}
job:
  type: command
  config: {command: [sh, -c, "echo $INTERLOCK_TOKEN >> ran"]}
  pollIntervalSeconds: 1
"""


class Upgrade:
    """The workers of both versions on one file, and what a test does with them."""

    def __init__(self, at: Path, stack: ExitStack) -> None:
        self.at, self._stack = at, stack
        self.workers: list[LiveWorker] = []
        self.program = install(COMMIT)

    def begin(self, name: str, *, earlier: bool) -> LiveWorker:
        """Start a worker and wait until it takes part."""
        words = ("--pipelines", "pipelines")
        worker = EarlierWorker(self.program, self.at, name, *words) if earlier else LiveWorker(self.at, name, *words)
        self._stack.callback(worker.kill)
        self.workers.append(worker)
        worker.until_it_works()
        return worker

    @property
    def alive(self) -> list[LiveWorker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def complaints(self) -> list[str]:
        """What workers of either version logged as an error."""
        lines = [line for worker in self.workers for line in worker.log.read_text().splitlines()]
        levels = ('"level": "error"', '"level":"error"', '"level": "critical"', '"level":"critical"')
        return [line for line in lines if any(level in line for level in levels) or line.startswith("Traceback")]

    def ran(self) -> Counter[str]:
        return Counter((self.at / "ran").read_text().split())


@asynccontextmanager
async def upgrade(at: Path) -> AsyncGenerator[Upgrade]:
    (at / "pipelines").mkdir()
    (at / "pipelines/orders.yaml").write_text(ORDERS)
    (at / "pipelines/timed.yaml").write_text(TIMED)
    with ExitStack() as stack:
        yield Upgrade(at, stack)


@asynccontextmanager
async def onlooker(at: Path) -> AsyncGenerator[Onlooker]:
    tables = SqliteTables(at / "interlock.db", SystemClock())
    await tables.start()
    try:
        yield Onlooker(tables=tables)
    finally:
        await tables.stop()


async def holder_of_some_run(outside: Onlooker, keys: list[RunKey], workers: list[LiveWorker]) -> LiveWorker:
    by_session = {session_of(worker): worker for worker in workers}
    held: list[Run] = []

    async def some_are_held() -> bool:
        held[:] = [run for run in await outside.active(keys) if run.owner in by_session]
        return bool(held)

    await wait_until(some_are_held, within_s=WITHIN_S, workers=workers)
    owner = held[0].owner
    assert owner is not None
    return by_session[owner]


async def test_workers_are_replaced_one_by_one_and_each_job_runs_once(tmp_path: Path) -> None:
    keys = last_days(5 * WAVE)
    waves = [keys[at : at + WAVE] for at in range(0, len(keys), WAVE)]
    async with upgrade(tmp_path) as world:
        olds = [world.begin("old-1", earlier=True), world.begin("old-2", earlier=True)]
        async with onlooker(tmp_path) as outside:
            # A new worker joins two old ones, of which one dies with runs in its hands: both versions can take them.
            first = world.begin("new-1", earlier=False)
            await _a_minute_passes(outside, tmp_path, world.alive)
            await outside.say_ready(waves[0])
            dead = await holder_of_some_run(outside, keys, olds)
            dead.kill()
            await outside.say_ready(waves[1])
            await wait_until(lambda: outside.are_completed(keys[: 2 * WAVE]), within_s=WITHIN_S, workers=world.alive)

            # The other one leaves in order while runs begin: what it has is for the new one.
            [left] = [worker for worker in olds if worker is not dead]
            await outside.say_ready(waves[2])
            await holder_of_some_run(outside, keys, world.alive)
            assert left.stop() == 0
            second = world.begin("new-2", earlier=False)
            await wait_until(lambda: outside.are_completed(keys[: 3 * WAVE]), within_s=WITHIN_S, workers=world.alive)

            # The way back: an old worker joins the new ones, one of which dies, and the other leaves.
            last = world.begin("old-3", earlier=True)
            await _a_minute_passes(outside, tmp_path, world.alive)
            await outside.say_ready(waves[3])
            gone = await holder_of_some_run(outside, keys, [first, second])
            gone.kill()
            await outside.say_ready(waves[4])
            [stays] = [worker for worker in (first, second) if worker is not gone]
            assert stays.stop() == 0
            await wait_until(lambda: outside.are_completed(keys), within_s=WITHIN_S, workers=[last])
            await _a_minute_passes(outside, tmp_path, [last])
            timed = await _timed_runs(outside, tmp_path, last)
            assert last.stop() == 0

            runs = [*await outside.runs(keys), *timed]
            assert len(timed) >= MINUTES
            assert await outside.completions(keys) == Counter(str(key.period) for key in keys)
        assert world.complaints() == []
        assert world.ran() == Counter(start_token(run.run_id, 1) for run in runs)
        print(f"{len(keys)} runs of sensors and {len(timed)} of cron, each once, with workers of {COMMIT} and this one")


async def _a_minute_passes(outside: Onlooker, at: Path, workers: list[LiveWorker]) -> None:
    """Wait until cron has begun another run, and it is complete."""
    before = len(_listed(at))

    async def is_complete() -> bool:
        keys = _listed(at)
        return len(keys) > before and await outside.are_completed(keys)

    await wait_until(is_complete, within_s=WITHIN_S, workers=workers)


async def _timed_runs(outside: Onlooker, at: Path, last: LiveWorker) -> list[Run]:
    """The runs of cron, one for each minute since the first, all complete; and the next minute is not near."""

    async def are_complete() -> bool:
        return QUIET_FROM_S < datetime.now(UTC).second < QUIET_TO_S and await outside.are_completed(_listed(at))

    await wait_until(are_complete, within_s=WITHIN_S, workers=[last])
    keys = sorted(_listed(at), key=lambda key: key.period)
    minutes = [datetime.strptime(str(key.period), "%Y-%m-%dT%H%M").replace(tzinfo=UTC) for key in keys]
    assert [later - sooner for sooner, later in pairwise(minutes)] == [timedelta(minutes=1)] * (len(minutes) - 1)
    return await outside.runs(keys)


def _listed(at: Path) -> list[RunKey]:
    listed = interlock("runs", "list", "--pipeline", "timed", "--limit", "100", "--json", at=at)
    assert listed.returncode == 0, listed.stderr
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    periods = [Period.parse(each["period"]) for each in found if each["type"] == "run"]
    return [RunKey(PipelineId("timed"), ScheduleId("cron"), period) for period in periods if period is not None]
