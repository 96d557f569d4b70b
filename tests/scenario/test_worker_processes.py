"""Two real workers on one file, of which one is killed without a word: every run still completes, and once.

CHAOS_ROUNDS asks for more kills than the few below, and at the pace of production.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.support.worlds.live_worker import LiveWorker, live_worker
from tests.support.worlds.observer import Onlooker, last_days, session_of, wait_until
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, State, start_token
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
ROUNDS: Final = max(1, CHAOS_ROUNDS // 10) if CHAOS_ROUNDS else 5
TIMING: Final = "default" if CHAOS_ROUNDS else "fast"

RUNS: Final = 8
TAKEN_OVER_WITHIN_S: Final = 10.0
COMPLETED_WITHIN_S: Final = 100.0  # however busy the machine is: this is about that, not about when
STOPPED_WITHIN_S: Final = 25.0

# Real processes share the machine with everything else; the bounds above say what is promised.
# In one process: they mostly wait for others, and would do so on all cores at once.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

# Each job says its token: a job that ran twice, or not at all, shows.
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: ready, check: exists}
job:
  type: command
  config: {command: [sh, -c, "sleep 0.3; echo $INTERLOCK_TOKEN >> ran"]}
  pollIntervalSeconds: 1
"""


async def assert_each_ran_once(at: Path, onlooker: Onlooker, keys: Sequence[RunKey]) -> None:
    expected = Counter(start_token(run.run_id, 1) for run in await onlooker.runs(keys))

    assert Counter((at / "ran").read_text().split()) == expected
    assert await onlooker.completions(keys) == Counter(str(key.period) for key in keys)


@asynccontextmanager
async def workers_on_one_file(at: Path, *names: str) -> AsyncGenerator[tuple[Onlooker, list[LiveWorker]]]:
    pipelines = at / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(CONFIG)
    tables = SqliteTables(at / "interlock.db", SystemClock())
    with ExitStack() as stack:
        # The first one makes the file and pushes the pipeline.
        workers = [
            stack.enter_context(live_worker(at, "--pipelines", "pipelines", name=name, timing=TIMING)) for name in names
        ]
        await tables.start()
        try:
            yield Onlooker(tables=tables), workers
        finally:
            await tables.stop()


async def owner_of_some_run(
    outside: Onlooker, keys: Sequence[RunKey], workers: list[LiveWorker], chance: random.Random
) -> LiveWorker:
    """The worker that holds an active run, picked at random among the runs."""
    by_session = {session_of(worker): worker for worker in workers}
    active: list[Run] = []

    async def some_are_held() -> bool:
        active[:] = [run for run in await outside.active(keys) if run.owner in by_session]
        return bool(active)

    await wait_until(some_are_held, within_s=COMPLETED_WITHIN_S, workers=workers)
    owner = chance.choice(active).owner
    assert owner is not None
    return by_session[owner]


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_when_the_owner_of_runs_is_killed_the_other_completes_each_of_them_once(
    tmp_path: Path, seed: int
) -> None:
    chance, keys = random.Random(seed), last_days(RUNS)
    async with workers_on_one_file(tmp_path, "first", "second") as (outside, workers):
        said_before = chance.randint(1, RUNS)
        await outside.say_ready(keys[:said_before])
        await asyncio.sleep(chance.uniform(0, 0.6))
        owner = await owner_of_some_run(outside, keys, workers, chance)
        dead = session_of(owner)

        owner.kill()
        orphans = [run.key for run in await outside.active(keys) if run.owner == dead]
        await outside.say_ready(keys[said_before:])

        async def are_taken_over() -> bool:
            return all(run.owner != dead for run in await outside.active(orphans))

        waited = await wait_until(are_taken_over, within_s=COMPLETED_WITHIN_S, workers=workers)
        await wait_until(lambda: outside.are_completed(keys), within_s=COMPLETED_WITHIN_S, workers=workers)
        print(f"round {seed}: {len(orphans)} runs lost their owner and were taken over within {waited.took_s:.1f} s")
        await assert_each_ran_once(tmp_path, outside, keys)
        assert waited.took_s < TAKEN_OVER_WITHIN_S + waited.late_s


async def test_a_worker_that_restarts_after_a_kill_proves_that_its_predecessor_is_gone(tmp_path: Path) -> None:
    """Nothing else ends a session before `kill_s`, so an earlier takeover rests on the proof."""
    [key] = last_days(1)
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(CONFIG.replace("sleep 0.3", "sleep 2"))
    tables = SqliteTables(tmp_path / "interlock.db", SystemClock())
    with live_worker(tmp_path, "--pipelines", "pipelines", name="first", timing="default") as first:
        await tables.start()
        outside = Onlooker(tables=tables)
        await outside.say_ready([key])
        await wait_until(lambda: _is_running(outside, key), within_s=COMPLETED_WITHIN_S, workers=[first])
        first.kill()
    with live_worker(tmp_path, name="second", timing="default") as second:
        await wait_until(lambda: outside.are_completed([key]), within_s=COMPLETED_WITHIN_S, workers=[second])
        [began], [adopted] = _times(second, "session.began"), _times(second, "run.adopted")
    await assert_each_ran_once(tmp_path, outside, [key])
    await tables.stop()

    assert adopted - began < timedelta(seconds=DEFAULT_TIMING.kill_s)
    print(f"taken over after {(adopted - began).total_seconds():.2f} s")


async def _is_running(outside: Onlooker, key: RunKey) -> bool:
    return any(run.state is State.POLLING for run in await outside.runs([key]))


def _times(worker: LiveWorker, event: str) -> list[datetime]:
    said = [json.loads(line) for line in worker.log.read_text().splitlines() if f'"{event}"' in line]
    return [datetime.fromisoformat(line["at"]) for line in said]


async def test_workers_asked_to_stop_under_load_leave_in_time_and_lose_nothing(tmp_path: Path) -> None:
    keys = last_days(2 * RUNS)
    async with workers_on_one_file(tmp_path, "first", "second") as (outside, workers):
        await outside.say_ready(keys[:RUNS])
        await owner_of_some_run(outside, keys, workers, random.Random(0))

        asked_at = time.monotonic()
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        await outside.say_ready(keys[RUNS:])  # while they leave, and after

        codes = [await asyncio.to_thread(worker.process.wait, COMPLETED_WITHIN_S) for worker in workers]

        assert codes == [0, 0]
        assert time.monotonic() - asked_at < STOPPED_WITHIN_S
        with live_worker(tmp_path, name="third", timing=TIMING) as third:
            await wait_until(lambda: outside.are_completed(keys), within_s=COMPLETED_WITHIN_S, workers=[third])
            await assert_each_ran_once(tmp_path, outside, keys)
            assert third.stop() == 0
