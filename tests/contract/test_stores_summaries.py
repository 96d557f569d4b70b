"""Summaries that jobs put, on every backend: the worker that holds the run notices, and no put is lost."""

import asyncio

import pytest

from tests.support.builders.values import a_key, a_run
from tests.support.clock.manual import ManualClock
from worker.core.run.state import Run, State
from worker.operations.runs.summaries import put_summary
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs
from worker.store.table import StaleWrite, Tables


async def test_a_put_makes_the_version_that_the_worker_holds_stale_and_is_among_the_outputs(
    tables: Tables, clock: ManualClock
) -> None:
    runs = Runs(tables)
    held = await runs.save(a_run(State.POLLING, version=0, key=a_key(pipeline="summaries-stale")))

    summary = await put_summary(tables, clock, held.key, 1, {"seen": 3})

    assert summary == {"seen": 3}
    with pytest.raises(StaleWrite):
        await runs.save(held)
    found = await runs.load(held.key)
    assert isinstance(found, Run)
    assert (found.summary, found.version, found.owner) == ({"seen": 3}, held.version + 1, held.owner)
    assert (await RunData(tables).outputs([held.key]))[held.key].outputs == {"summary": {"seen": 3}}


async def test_counts_that_are_put_at_the_same_time_are_all_kept(tables: Tables, clock: ManualClock) -> None:
    run = await Runs(tables).save(a_run(State.POLLING, version=0, key=a_key(pipeline="summaries-race")))

    async with asyncio.TaskGroup() as group:
        for name in ("seen", "processed", "skipped", "errored"):
            group.create_task(put_summary(tables, clock, run.key, None, {name: 7}))

    found = await Runs(tables).load(run.key)
    assert isinstance(found, Run)
    assert found.summary == {"seen": 7, "processed": 7, "skipped": 7, "errored": 7}
