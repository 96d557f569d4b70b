"""Real workers, supervisors and programs, killed without a word: each program runs once, each exit code is recorded.

CHAOS_ROUNDS asks for 50 jobs at once and for every kind of death, that many times over ten.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.worlds.live_worker import LiveWorker, live_worker
from tests.support.worlds.observer import Onlooker, last_days, wait_until
from worker.core.model.keys import RunKey
from worker.core.run.state import start_token
from worker.jobs.command.supervisor import FOLDER
from worker.runtime.clock import SystemClock
from worker.store.repos.run_data import RunData
from worker.store.sqlite.tables import SqliteTables

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
ROUNDS: Final = max(1, CHAOS_ROUNDS // 10)
JOBS: Final = 50 if CHAOS_ROUNDS else 8
DEATHS: Final = ("worker", "supervisor", "both") if CHAOS_ROUNDS else ("both",)
WITHIN_S: Final = 200.0 if CHAOS_ROUNDS else 100.0

# In one process: they mostly wait for others, and would do so on all cores at once.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600 if CHAOS_ROUNDS else 300)]

# Each job says its token, waits until the gate opens, and ends in its own way. Nobody polls it in time.
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
  config: {command: [sh, -c, "echo $INTERLOCK_TOKEN >> ran; : < gate; exit $((INTERLOCK_PAR_DAY % 4))"]}
  maxRetries: 0
  pollIntervalSeconds: 600
"""


def exit_code(key: RunKey) -> int:
    return int(key.period.date.strftime("%Y%m%d")) % 4


def supervisors(at: Path) -> list[int]:
    """The supervisors of this store that are alive, as their files name them."""
    named = [int(lock.read_text() or 0) for lock in (at / "interlock.db-jobs" / FOLDER).glob("*.lock")]
    return [pid for pid in named if pid and Path(f"/proc/{pid}").exists()]


@contextmanager
def opened(gate: Path) -> Generator[None]:
    """As long as this is held, whoever waits at the gate goes through, and whoever comes too."""
    descriptor = os.open(gate, os.O_RDWR)
    try:
        yield
    finally:
        os.close(descriptor)


def kill(death: str, at: Path, worker: LiveWorker) -> None:
    if death != "worker":
        for pid in supervisors(at):
            os.kill(pid, signal.SIGKILL)
    if death != "supervisor":
        worker.kill()


async def exit_codes(outside: Onlooker, keys: Sequence[RunKey]) -> dict[RunKey, object]:
    """What was recorded of each job that has ended."""
    found = await RunData(outside.tables).outputs(keys)
    return {key: (data.outputs or {}).get("exitCode") for key, data in found.items()}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_no_job_is_lost_or_doubled_and_every_exit_code_is_recorded(tmp_path: Path, seed: int, death: str) -> None:
    chance, keys, gate = random.Random(seed), last_days(JOBS), tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(CONFIG)
    expected = {key: exit_code(key) for key in keys}

    with live_worker(tmp_path, "--pipelines", "pipelines", name="first") as first:
        tables = SqliteTables(tmp_path / "interlock.db", SystemClock())
        await tables.start()
        outside = Onlooker(tables=tables)

        async def all_ended() -> bool:
            return all(run.is_ended for run in await outside.runs(keys)) and await exit_codes(outside, keys) == expected

        async def some_run() -> bool:
            return (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text().split()) >= JOBS // 4

        try:
            # Some jobs run, others are just being started when the processes die.
            await outside.say_ready(keys[: JOBS // 2])
            await wait_until(some_run, within_s=WITHIN_S, workers=[first])
            await outside.say_ready(keys[JOBS // 2 :])
            await asyncio.sleep(chance.uniform(0, 0.3))
            kill(death, tmp_path, first)
            with live_worker(tmp_path, name="second") as second:
                with opened(gate):
                    await wait_until(all_ended, within_s=WITHIN_S, workers=[second])
                tokens = Counter(start_token(run.run_id, 1) for run in await outside.runs(keys))
                assert Counter((tmp_path / "ran").read_text().split()) == tokens
        finally:
            await tables.stop()
