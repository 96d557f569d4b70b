"""Summaries that jobs put, on every backend: the worker that holds the run notices, and no put is lost."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders.values import a_key, a_run
from tests.support.clock.manual import ManualClock
from worker.core.errors import RetryLater
from worker.core.run.state import Outcome, Run, State
from worker.operations.archive.summary_export import STALLED_AFTER, SummaryExport
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


# --- one object for each ended attempt --------------------------------------------------------------------------------


class Shelf:
    """Keeps objects; the next `failures` puts fail."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts = self.failures = 0

    async def put(self, name: str, content: bytes) -> None:
        self.puts += 1
        if self.failures:
            self.failures -= 1
            raise RetryLater("the shelf is full; make room")
        self.objects[name] = content


def always() -> bool:
    return True


async def an_end(tables: Tables, clock: ManualClock, pipeline: str, state: State = State.COMPLETED) -> Run:
    ended = a_run(state, version=0, key=a_key(pipeline=pipeline), attempt=2, summary={"seen": 3})
    outcome = Outcome.SUCCEEDED if state is State.COMPLETED else Outcome.FAILED
    return await Runs(tables).save(replace(ended, since=clock.now(), outcome=outcome, reason="because"))


async def test_each_ended_attempt_becomes_one_object_whatever_fails_or_is_repeated(
    tables: Tables, clock: ManualClock
) -> None:
    shelf, name = Shelf(), f"shelf-{id(clock)}"
    export = SummaryExport(tables, shelf, clock, name=name)
    while await export.step(always) is not None:
        pass
    shelf.objects.clear()  # ends of other tests
    clock.advance(timedelta(minutes=1))
    runs = [
        await an_end(tables, clock, "export-done"),
        await an_end(tables, clock, "export-failed", State.FAILED_FINAL),
    ]
    clock.advance(timedelta(minutes=1))
    shelf.failures = 1

    with pytest.raises(RetryLater):
        await export.step(always)
    again = SummaryExport(tables, shelf, clock, name=name)  # another process, which knows nothing of the first
    assert await again.step(always) is None
    puts = shelf.puts
    assert await again.step(always) is None

    assert shelf.puts == puts, "what is written is not written again by the same process"
    wanted = {f"{run.key}/attempt-2.json" for run in runs}
    assert wanted <= set(shelf.objects)
    done, failed = (json.loads(shelf.objects[f"{run.key}/attempt-2.json"]) for run in runs)
    assert (done["status"], done["summary"], done["attempt"]) == ("completed", {"seen": 3}, 2)
    assert (failed["status"], failed["reason"]) == ("failed", "because")


async def test_a_long_outage_is_made_up_for_and_reported_meanwhile(tables: Tables, clock: ManualClock) -> None:
    shelf, name = Shelf(), f"outage-{id(clock)}"
    export = SummaryExport(tables, shelf, clock, name=name)
    await export.step(always)
    clock.advance(timedelta(minutes=5))
    run = await an_end(tables, clock, "export-outage")
    assert await export.problem(clock.now()) is None
    clock.advance(STALLED_AFTER + timedelta(hours=2))

    problem = await export.problem(clock.now())
    steps = 1
    while await export.step(always) is not None:
        steps += 1

    assert problem is not None
    assert "3h5m behind" in problem
    assert steps > 3, "in parts that bound memory"
    assert f"{run.key}/attempt-2.json" in shelf.objects
    assert await export.problem(clock.now()) is None


async def test_a_process_that_may_not_act_any_more_saves_no_progress(tables: Tables, clock: ManualClock) -> None:
    shelf, name = Shelf(), f"fenced-{id(clock)}"
    await SummaryExport(tables, shelf, clock, name=name).step(always)
    clock.advance(timedelta(minutes=1))
    run = await an_end(tables, clock, "export-fenced")
    clock.advance(timedelta(minutes=1))

    assert await SummaryExport(tables, shelf, clock, name=name).step(lambda: False) is None
    assert f"{run.key}/attempt-2.json" not in shelf.objects
    await SummaryExport(tables, shelf, clock, name=name).step(always)

    assert f"{run.key}/attempt-2.json" in shelf.objects
