"""The index of dependencies: what changed is kept until somebody has handled it."""

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.dependencies import after, push, root
from tests.support.worlds.engine import a_world
from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import PipelineId
from worker.engine.dependency_index import REFRESH_EVERY, DependencyIndex


@on_virtual_time
async def test_a_changed_pipeline_is_named_once_and_again_if_handling_it_failed() -> None:
    world = await a_world()
    index = DependencyIndex(world.tables, PipelineVersions(world.tables), world.clock)
    await push(world.tables, world, root("a"), after("b", ["a"]))
    await index.refresh()
    first = index.next_changed()
    await push(world.tables, world, after("c", ["a"]), root("d"))
    await world.clock.sleep(REFRESH_EVERY.total_seconds() + 1)
    await index.refresh()
    await index.refresh()

    assert first is None  # all are read for the first time: whoever starts resyncs them
    assert set(index.graph.downstreams(PipelineId("a"))) == {"b", "c"}
    changed = {index.next_changed(), index.next_changed()}
    assert changed == {"b", "c"}  # the log is read with an overlap
    assert index.next_changed() is None
    for pipeline in ("b", "c"):
        index.return_changed(PipelineId(pipeline))
    assert {index.next_changed(), index.next_changed()} == changed
