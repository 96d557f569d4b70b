"""Several objects for one period: those that arrive while the job for the first one runs are not lost."""

import pytest

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.rules_file import rules_of
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, World, a_world
from tests.support.worlds.inbox import an_object, message, notification
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import State
from worker.store.repos.sensors import Sensors

RULES = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: ready
    period: ${date}
    fields: {status: done, part: "${part}", etag: "${etag}"}
"""


async def arrive(world: World, inbox: SensorInbox, *parts: int) -> None:
    for part in parts:
        written = an_object(f"orders/{DAY}/part-{part}.csv", f"e{part}", f"0{part}")
        await inbox.handle(message(notification(written), message_id=f"m{part}"))
        await world.settle()


async def a_job_for_the_first_part(world: World, inbox: SensorInbox, config: str = CONFIG) -> None:
    await world.deploy(config)
    await world.count(100)
    await arrive(world, inbox, 1)
    assert await world.state() is State.POLLING


@pytest.mark.parametrize("parts", [(2,), (2, 3), (3, 2), tuple(range(2, 9))], ids=str)
@on_virtual_time
async def test_parts_that_arrive_while_the_job_for_the_first_runs_are_reported_and_run_again_together(
    parts: tuple[int, ...],
) -> None:
    world = await a_world()
    inbox = SensorInbox(world.tables, rules_of(RULES), world.clock)
    async with world.worker():
        await a_job_for_the_first_part(world, inbox)
        await arrive(world, inbox, *parts)
        world.runner.finish()
        await world.wait(minutes=2)
        again = await world.run()
        world.runner.finish()
        await world.wait(minutes=2)

    last = await Sensors(world.tables).get(PipelineId("orders"), f"ready#{DAY}")
    run, events = await world.run(), await world.events()
    assert again is not None
    assert last is not None
    assert run is not None
    assert (again.state, again.attempt) == (State.POLLING, 2)
    assert again.started_on["ready"] == last.content_hash
    assert last.data["part"] == str(parts[-1])
    assert (run.state, run.attempt) == (State.COMPLETED, 2)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("RERUN_ACCEPTED")) == (1, 1)


@on_virtual_time
async def test_parts_that_arrive_under_each_job_are_all_reported_and_run_again_within_the_budget() -> None:
    world = await a_world()
    inbox = SensorInbox(world.tables, rules_of(RULES), world.clock)
    async with world.worker():
        await a_job_for_the_first_part(world, inbox, CONFIG.replace("maxRetries: 1", "maxDriftReruns: 2"))
        for part in (2, 3, 4):
            await arrive(world, inbox, part)
            world.runner.finish()
            await world.wait(minutes=2)

    run, events = await world.run(), await world.events()
    assert run is not None
    assert (run.state, run.attempt, run.spent.drift) == (State.COMPLETED, 3, 2)
    assert (events.count("LATE_DATA_ARRIVAL"), events.count("RERUN_ACCEPTED")) == (3, 2)
    assert events[-1] == "RERUN_REJECTED"


@on_virtual_time
async def test_a_part_whose_message_is_delivered_again_under_the_job_changes_nothing() -> None:
    world = await a_world()
    inbox = SensorInbox(world.tables, rules_of(RULES), world.clock)
    async with world.worker():
        await a_job_for_the_first_part(world, inbox)
        await arrive(world, inbox, 1, 1)
        world.runner.finish()
        await world.wait(minutes=2)

    assert await world.state() is State.COMPLETED
    assert (await world.events())[2:] == ["JOB_COMPLETED"]
