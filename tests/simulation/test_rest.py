"""A world is not at rest while an input is unread: its reader may be dead, and another takes over only later."""

import asyncio

import pytest

from tests.simulation.memory_tables import MemoryTables
from tests.simulation.plan import Plan
from tests.simulation.target import world_time
from tests.simulation.world import World
from tests.support.clock.virtual_time import run as on_virtual_loop
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.state import Outcome, Run
from worker.core.time.periods import Period
from worker.store.repos.events import Events
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors

CALM = Plan(seed=1, pipelines=1, hours=1, workers=2, fault_every_s=1e9)


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["kept", "forgotten by the feed"])
def test_a_signal_that_changes_while_no_worker_is_up_is_told_before_the_world_is_at_rest(is_forgotten: bool) -> None:
    told = on_virtual_loop(_told_of_late_data(is_forgotten))

    assert EventType.LATE_DATA_ARRIVAL in told


async def _told_of_late_data(is_forgotten: bool) -> list[str]:
    """Live through a calm history, change the signal of its run after all workers have crashed, and rest again."""
    world = World(CALM, lambda _hour, _commits: None, MemoryTables)
    await world.open()
    await world.history()
    store, [pipeline] = world.weather.around.store, world.weather.around.pipelines.values()
    began = world_time(0)
    period = Period(began.date(), began.hour)
    run = await Runs(store).load(RunKey(pipeline.id, pipeline.schedules[0].id, period))
    assert isinstance(run, Run)
    assert run.outcome is Outcome.SUCCEEDED
    for node in world.weather.nodes:
        node.crash()
    changed_at = world_time(asyncio.get_running_loop().time())
    said: dict[str, Json] = {"status": "done", "date": str(period.date), "hour": f"{period.hour:02d}", "revision": 99}
    await Sensors(store).put(pipeline.id, f"ready#{period}", said)
    if is_forgotten:
        await world.weather.trim()
    world.weather.clear()  # others come, and have to find out first that who held the feed is dead
    await world.come_to_rest()
    world.verdicts.check()
    return [stored.event.type for stored in await Events(store).latest(pipeline.id) if stored.event.at > changed_at]
