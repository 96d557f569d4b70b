"""`interlock runs rerun`, killed with -9 at random times and run again: each run is requested once.

CHAOS_ROUNDS asks for that many kills, of an operation on 1,000 runs instead of 50.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.builders.cli_runs import a_store, a_stored_run, key_of, version_hash
from worker.cli.terminal.store_session import Exit
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.run.state import State
from worker.runtime.clock import SystemClock
from worker.store.backends.open import open_tables
from worker.store.repos.runs import Runs
from worker.store.table import TableName, Tables, query_all

T = TypeVar("T")
CHAOS_ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0"))
RUNS = 1_000 if CHAOS_ROUNDS else 50
KILLS = CHAOS_ROUNDS or 4
LIMIT_S = 3_600 if CHAOS_ROUNDS else 60
WHOLE_S = 600 if CHAOS_ROUNDS else 40
COMMAND = ("runs", "rerun", "--state", "failed", "--since", "1d", "--reason", "network", "--as", "ann", "--yes")


async def in_present(work: Callable[[Tables], Awaitable[T]]) -> T:
    tables = open_tables("sqlite:///interlock.db", SystemClock())
    await tables.start()
    try:
        return await work(tables)
    finally:
        await tables.stop()


def run_for(seconds: float) -> int | None:
    """The exit code of the command; None if it was killed before its end."""
    source = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", "from worker.cli.main import main; main()", *COMMAND],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": source},
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


@pytest.mark.timeout(LIMIT_S)
def test_a_bulk_rerun_killed_and_run_again_requests_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a_store(tmp_path)
    now = SystemClock().now()
    hours = [f"{now - timedelta(hours=number):%Y-%m-%dT%H}" for number in range(1, RUNS + 1)]

    async def put(tables: Tables) -> None:
        config = await version_hash(tables)
        for hour in hours:
            key = key_of(hour)
            await Runs(tables).save(a_stored_run(State.FAILED_FINAL, config, key=key, since=now - timedelta(minutes=5)))

    asyncio.run(in_present(put))
    draw, kills, code = random.Random(5), 0, None
    while code is None:
        code = run_for(draw.uniform(1.0, 3.5 + RUNS / 100) if kills < KILLS else WHOLE_S)
        kills += code is None

    async def count(tables: Tables) -> Counter[str]:
        rows = query_all(tables, TableName.EVENTS, keys.pipeline_pk("orders"))
        return Counter([str(row["date"]) async for row in rows if row["eventType"] == EventType.OPERATOR_ACTION])

    print(f"{RUNS} runs, {kills} kills")
    assert kills > 0
    assert code in {Exit.DONE, Exit.PROBLEMS}  # the latter if it was killed after its last request: nothing was left
    assert asyncio.run(in_present(count)) == Counter(hours)
