"""How far schedules were considered, and since when pipelines are deployed, on every backend."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, a_pipeline, race
from tests.support.clock.manual import ManualClock
from worker.config.deploy import deploy, withdraw
from worker.config.load import load_text
from worker.core.model.pipeline import Pipeline, PipelineId, ScheduleId
from worker.core.schedule.due import Passed, ScheduleKey
from worker.store.repos.deployments import Deployments
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks
from worker.store.table import StaleWrite, Tables

DAY = timedelta(days=1)


def a_mark(pipeline: PipelineId, schedule: str = "cron") -> ScheduleMark:
    return ScheduleMark(key=ScheduleKey(pipeline, ScheduleId(schedule)), considered=NOW, plan="0 6 * * * UTC")


def a_timed(pipeline: PipelineId) -> Pipeline:
    text = f'{{pipeline: {{id: {pipeline}}}, schedule: {{cron: "0 6 * * *"}}, validation: {{rules: []}}}}'
    loaded = load_text(text, lenient=True).pipeline
    assert loaded is not None
    return loaded


# --- marks of schedules -----------------------------------------------------------------------------------------------


async def test_a_mark_comes_back_as_it_was_saved_with_the_times_that_passed(tables: Tables) -> None:
    marks, pipeline = ScheduleMarks(tables), a_pipeline()
    passed = Passed(first=NOW, last=NOW + DAY, count=2, reason="nobody was there")

    plain = await marks.save(a_mark(pipeline))
    told = await marks.save(replace(a_mark(pipeline, "nightly"), passed=passed))

    assert await marks.load([plain.key, told.key, a_mark(pipeline, "other").key]) == {plain.key: plain, told.key: told}


async def test_of_two_workers_that_move_a_mark_one_is_refused(tables: Tables) -> None:
    marks, pipeline = ScheduleMarks(tables), a_pipeline()
    seen = await marks.save(a_mark(pipeline))

    moved = await marks.save(replace(seen, considered=NOW + DAY))

    with pytest.raises(StaleWrite):
        await marks.save(replace(seen, considered=NOW + 2 * DAY))
    assert await marks.load([seen.key]) == {seen.key: moved}


async def test_ten_workers_make_one_first_mark(tables: Tables, backend: str) -> None:
    marks, pipeline = ScheduleMarks(tables), a_pipeline()

    answers = await race(backend, *(marks.save(a_mark(pipeline)) for _ in range(10)))

    assert len([answer for answer in answers if isinstance(answer, ScheduleMark)]) == 1


# --- deployments ------------------------------------------------------------------------------------------------------


async def test_a_pipeline_that_is_older_than_we_are_waits_until_a_person_accepts_it(tables: Tables) -> None:
    store, pipeline = Deployments(tables), a_pipeline()

    await store.note(pipeline, "old text", NOW, is_new=False)
    assert await store.accepted(pipeline) is None

    assert await store.accept(pipeline, NOW + DAY)
    assert not await store.accept(pipeline, NOW + 2 * DAY)
    found = await store.accepted(pipeline)
    assert found is not None
    assert found.since == NOW + DAY


async def test_a_new_text_is_noted_with_its_time_and_a_repeated_one_is_not(tables: Tables) -> None:
    store, pipeline = Deployments(tables), a_pipeline()

    await store.note(pipeline, "one", NOW, is_new=True)
    await store.note(pipeline, "two", NOW + DAY, is_new=False)
    await store.note(pipeline, "two", NOW + 2 * DAY, is_new=False)

    found = await store.accepted(pipeline)
    assert found is not None
    assert (found.since, found.text_since, found.text_hash) == (NOW, NOW + DAY, "two")


async def test_a_pipeline_that_is_taken_back_and_deployed_again_is_new(tables: Tables) -> None:
    clock, pipeline = ManualClock(NOW), a_pipeline()
    await deploy(tables, a_timed(pipeline), clock)
    await ScheduleMarks(tables).save(a_mark(pipeline))

    await withdraw(tables, pipeline, clock)
    assert await Deployments(tables).accepted(pipeline) is None
    clock.advance(DAY)
    await deploy(tables, a_timed(pipeline), clock)

    found = await Deployments(tables).accepted(pipeline)
    assert found is not None
    assert found.since == NOW + DAY
    assert await ScheduleMarks(tables).load([a_mark(pipeline).key]) == {}


async def test_deploying_the_same_text_again_moves_no_time(tables: Tables) -> None:
    clock, pipeline = ManualClock(NOW), a_pipeline()
    await deploy(tables, a_timed(pipeline), clock)
    before = await Deployments(tables).accepted(pipeline)

    clock.advance(DAY)
    await deploy(tables, a_timed(pipeline), clock)

    assert await Deployments(tables).accepted(pipeline) == before
