"""What a cascade asks: one run, unless it has come through it before."""

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import DAY, ORDERS, World, a_world
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Pause, State
from worker.store.repos.pauses import Pauses
from worker.store.table import Prefix, Put, TableName


@pytest.mark.parametrize(("path", "begins"), [(["raw"], True), (["raw", "orders"], False)])
def test_a_cascade_begins_a_run_unless_it_has_come_through_it_before(path: list[str], begins: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await _mark_cascade(world, path)
            await world.settle()

        assert (await world.run() is not None) is begins

    scenario()


@on_virtual_time
async def test_a_cascade_for_a_period_older_than_runs_are_kept_begins_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await _mark_cascade(world, ["raw"], "2024-12-01")
        await world.settle()

    assert await world.run("2024-12-01") is None


async def _mark_cascade(world: World, path: list[str], day: str = DAY) -> None:
    row = {"PK": keys.marker_pk(PipelineId("orders")), "SK": f"{day}#stream", "path": path}
    await world.tables.commit(Put(TableName.CONTROL, row))


@on_virtual_time
async def test_a_cascade_that_came_during_a_pause_begins_its_run_after_it_once() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy()
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        await _mark_cascade(world, ["raw"])
        await world.settle()
        during = await world.run()
    async with world.worker("w2"):
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()
        begun = await world.run()
        kept = await world.tables.query(TableName.CONTROL, keys.pipeline_pk(ORDERS), sk=Prefix(keys.HELD_CASCADE))

    assert during is None
    assert begun is not None
    assert begun.state is State.EVALUATING
    assert kept.rows == []
