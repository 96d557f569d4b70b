"""A store in the current directory with one pipeline in it, and rows put there as the worker would."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from tests.support.builders.command_line import TODAY, interlock
from tests.support.clock.manual import ManualClock
from worker.config.versions import PipelineVersions
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run, Spent, State
from worker.core.time.periods import Period
from worker.store.backends.open import open_tables
from worker.store.table import Tables

T = TypeVar("T")

ORDERS = """\
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  timezone: UTC
sla: {deadline: "18:00", timezone: UTC, dayOffset: 0}
validation:
  rules:
    - {key: export, check: gte, field: rows, value: 1000}
job: {type: command, config: {command: load}, maxRetries: 2}
"""
PERIOD = "2027-03-22"  # the day on which the tests' clock stands still


# Stores that were made before, by what is in them: to copy one takes a hundredth of the time that it takes to make it.
_MADE: Final[dict[object, dict[str, bytes]]] = {}


def a_store(here: Path, *texts: str) -> None:
    """Make the store and push the pipelines, or copy a store that was made in the same way."""
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("INTERLOCK_")))
    made = _MADE.get((texts, settings))
    if made is not None and not any(here.glob("interlock.db*")):
        for name, content in made.items():
            (here / name).write_bytes(content)
        return
    before = set(here.iterdir())
    _make_store(here, *texts)
    if (here / "interlock.db").exists():
        new = [path for path in here.iterdir() if path not in before]
        _MADE[texts, settings] = {path.name: path.read_bytes() for path in new}


def _make_store(here: Path, *texts: str) -> None:
    assert interlock("store", "init").exit_code == 0
    for number, text in enumerate(texts or (ORDERS,)):
        (here / f"p{number}.yaml").write_text(text)
        result = interlock("pipelines", "push", f"p{number}.yaml", "--yes")
        assert result.exit_code == 0, result.stderr


def in_store(work: Callable[[Tables], Awaitable[T]]) -> T:
    """Do something to the store from outside the command line."""

    async def run() -> T:
        tables = open_tables("sqlite:///interlock.db", ManualClock(TODAY))
        await tables.start()
        try:
            return await work(tables)
        finally:
            await tables.stop()

    return asyncio.run(run())


def key_of(period: str = PERIOD, pipeline: str = "orders", schedule: str = "stream") -> RunKey:
    parsed = Period.parse(period)
    assert parsed is not None
    return RunKey(PipelineId(pipeline), ScheduleId(schedule), parsed)


async def version_hash(tables: Tables, pipeline: str = "orders") -> str:
    version = await PipelineVersions(tables).current(PipelineId(pipeline))
    assert version is not None
    return version.config_hash


def a_stored_run(
    state: State,
    config_hash: str,
    *,
    key: RunKey | None = None,
    since: datetime = TODAY,
    spent: Spent | None = None,
) -> Run:
    return Run(
        key=key or key_of(),
        run_id="run-1",
        state=state,
        config_hash=config_hash,
        created_at=since,
        since=since,
        timeout_at=since.replace(hour=16),
        spent=spent or Spent(),
    )
