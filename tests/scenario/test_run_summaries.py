"""The summary of a job: put while it runs or returned at its end, and checked by post-run rules."""

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, World, a_world, run_key
from worker.core.errors import Rejected
from worker.core.model.events import EventType
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory, State
from worker.jobs.runner import Failed, Started, StartRequest, Succeeded
from worker.operations.explain.explanation import Gate
from worker.operations.explain.gates import explain
from worker.operations.explain.load import SnapshotLoader
from worker.operations.runs.run_detail import RunDetails
from worker.operations.runs.summaries import put_summary

FEW_ERRORS = """
postRun:
  sensorTimeout: 1h
  rules:
    - {key: summary, field: errored, check: lte, value: 10}
"""
AND_A_SENSOR = f"{FEW_ERRORS}    - {{key: out, field: rows, check: gte, value: 1}}\n"


async def started(world: World, config: str = CONFIG) -> None:
    await world.deploy(config)
    await world.count(100)
    await world.ready()
    await world.settle()
    assert await world.state() is State.POLLING


async def finished(world: World, **counts: int) -> None:
    world.runner.finish(Succeeded(outputs={"result": dict[str, Json](counts)}))
    await world.wait(minutes=2)
    assert await world.state() is State.COMPLETED


async def put(world: World, attempt: int | None = None, **counts: int) -> None:
    await put_summary(world.tables, world.clock, run_key(DAY), attempt, counts)


async def post_run_events(world: World) -> list[str]:
    return [event for event in await world.events() if event.startswith("POST_RUN")]


async def completed_event(world: World) -> tuple[str, Json]:
    [event] = [each.event for each in await world.stored_events() if each.event.type == EventType.JOB_COMPLETED]
    return event.message.partition(": ")[2], event.detail.get("summary")


async def gate(world: World) -> str | None:
    loader = SnapshotLoader(world.tables)
    version = await loader.configs.current(run_key(DAY).pipeline)
    assert version is not None
    found = explain(await loader.at(run_key(DAY), version, world.clock.now())).findings
    return next((each.sentence for each in found if each.gate is Gate.SUMMARY), None)


@on_virtual_time
async def test_what_is_put_while_the_job_runs_is_in_its_end_its_outputs_and_its_run() -> None:
    world = await a_world()
    async with world.worker():
        await started(world)
        await put(world, seen=120, errored=4)
        await put(world, attempt=1, errored=2)  # what it names changes, the rest stays
        await put(world, attempt=1, errored=2)
        before = await world.run()
        await finished(world, seen=7, processed=118)

    assert before is not None
    assert before.summary == {"seen": 120, "errored": 2}
    wanted = {"seen": 120, "processed": 118, "errored": 2}  # what is put counts first
    assert await completed_event(world) == ("120 seen, 118 processed, 2 errored", wanted)
    record = await RunDetails(world.tables).record(run_key(DAY), world.clock.now())
    assert record is not None
    assert record.summary == wanted
    assert record.outputs == {"result": {"seen": 7, "processed": 118}, "summary": wanted}
    assert await gate(world) == "120 seen, 118 processed, 2 errored"


@on_virtual_time
async def test_the_end_that_races_with_a_put_reads_the_row_again() -> None:
    world = await a_world()
    async with world.worker():
        await started(world)
        world.runner.finish(Succeeded(outputs={"exitCode": 0}))  # known to the target, not yet to the worker
        await put(world, seen=3)
        await world.wait(minutes=2)

    assert await world.state() is State.COMPLETED
    assert await completed_event(world) == ("3 seen", {"seen": 3})


@on_virtual_time
async def test_a_put_by_a_job_that_is_over_is_rejected_and_a_repeat_is_not() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG)
        await world.ready()
        await world.settle()
        with pytest.raises(Rejected, match="has started no job yet"):
            await put(world, seen=1)
        await world.count(100)
        await world.settle()
        await put(world, attempt=1, seen=1)
        world.runner.finish(Failed(FailureCategory.TRANSIENT, "lost host"))
        await world.wait(minutes=2)
        with pytest.raises(Rejected, match=r"attempt 1 of .* is over"):
            await put(world, attempt=1, seen=2)
        again = await world.run()
        await put(world, attempt=2, seen=5)
        await finished(world)
        await put(world, attempt=2, seen=5)  # the reply to the first one was lost
        with pytest.raises(Rejected, match="has ended"):
            await put(world, attempt=2, seen=6)

    assert again is not None
    assert (again.attempt, again.summary) == (2, None)
    assert await completed_event(world) == ("5 seen", {"seen": 5})


@on_virtual_time
async def test_the_summary_of_a_job_that_ends_with_its_start_is_kept() -> None:
    def answers(request: StartRequest) -> Started:
        world.runner.accept(request)
        return Started({"id": request.token}, outputs={"result": {"seen": 9}})

    world = await a_world()
    world.runner.scripts.append(answers)
    world.runner.at_once = Succeeded()
    async with world.worker():
        await world.deploy()
        await world.count(100)
        await world.ready()
        await world.wait(minutes=2)

    assert await completed_event(world) == ("9 seen", {"seen": 9})


@pytest.mark.parametrize(("errored", "verdict"), [(10, "POST_RUN_PASSED"), (11, "POST_RUN_FAILED")])
def test_post_run_rules_check_the_summary_with_the_end_of_the_job(errored: int, verdict: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await started(world, CONFIG + FEW_ERRORS)
            waiting = await gate(world)
            await finished(world, errored=errored)
            await world.wait(hours=2)

        assert waiting == "the job gave no summary yet; when it ends, errored must be at most 10"
        assert await post_run_events(world) == [verdict]
        told = await gate(world)
        assert told is not None
        assert ("not as wanted" in told) is (errored > 10)

    scenario()


@on_virtual_time
async def test_rules_that_also_name_a_sensor_wait_for_it_unless_the_summary_decides() -> None:
    for errored, at_end, at_last in [(3, [], ["POST_RUN_PASSED"]), (30, ["POST_RUN_FAILED"], ["POST_RUN_FAILED"] * 2)]:
        world = await a_world()
        async with world.worker():
            await started(world, CONFIG + AND_A_SENSOR)
            await finished(world, errored=errored)
            then = [event for event in await post_run_events(world) if event != "POST_RUN_BASELINE_CAPTURED"]
            await world.write("out", rows=1, date=DAY)
            await world.settle()

        assert then == at_end
        assert [event for event in await post_run_events(world) if event != "POST_RUN_BASELINE_CAPTURED"] == at_last
