"""Which version of a pipeline holds: the one deployed, the last good one, the one a run began under."""

import asyncio

import pytest

from tests.support.clock.manual import NOON, ManualClock
from tests.support.worlds.engine import CONFIG, ORDERS
from worker.config.load import load_text
from worker.config.render import config_hash
from worker.config.versions import PipelineVersions, Unusable, Version
from worker.core.errors import Rejected
from worker.core.model.keys import config_mark_sk
from worker.core.model.pipeline import Pipeline
from worker.store.repos.marks import Marks
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables


async def a_store() -> SqliteTables:
    tables = SqliteTables.in_memory(ManualClock())
    await tables.start()
    return tables


def loaded(text: str = CONFIG) -> Pipeline:
    pipeline = load_text(text).pipeline
    assert pipeline is not None
    return pipeline


async def test_a_pipeline_that_nobody_deployed_has_no_version() -> None:
    assert await PipelineVersions(await a_store()).current(ORDERS) is None


async def test_what_is_deployed_is_in_force_as_soon_as_it_is_read() -> None:
    tables = await a_store()
    configs = PipelineVersions(tables)
    await Pipelines(tables).put(ORDERS, CONFIG)
    first = await configs.current(ORDERS)
    changed = CONFIG.replace("value: 100", "value: 200")
    await Pipelines(tables).put(ORDERS, changed)

    second = await configs.current(ORDERS)

    assert first == Version(loaded(), config_hash(loaded()))
    assert second == Version(loaded(changed), config_hash(loaded(changed)))


async def test_a_text_that_cannot_be_used_leaves_the_last_good_version_in_force_also_after_a_restart() -> None:
    tables = await a_store()
    before = PipelineVersions(tables)
    good = Version(loaded(), config_hash(loaded()))
    await before.persist(good)
    await Marks(tables).put_once(ORDERS, config_mark_sk(), {"good": good.config_hash}, NOON)
    await Pipelines(tables).put(ORDERS, "][")

    deployed = await PipelineVersions(tables).deployed(ORDERS)

    assert isinstance(deployed, Unusable)
    assert deployed.problems
    assert await PipelineVersions(tables).current(ORDERS) == good


async def test_a_text_stored_under_another_pipelines_name_is_not_used() -> None:
    tables = await a_store()
    await Pipelines(tables).put(ORDERS, CONFIG.replace("id: orders", "id: invoices"))

    deployed = await PipelineVersions(tables).deployed(ORDERS)

    assert isinstance(deployed, Unusable)
    assert "invoices" in deployed.problems[0]


async def test_a_version_is_found_by_the_name_it_was_kept_under() -> None:
    tables = await a_store()
    version = Version(loaded(), config_hash(loaded()))
    await PipelineVersions(tables).persist(version)

    assert await PipelineVersions(tables).get(ORDERS, version.config_hash) == version


async def test_a_version_that_was_deleted_is_missed_with_what_to_do() -> None:
    with pytest.raises(Rejected, match="restore the row CONFIGVER#v9"):
        await PipelineVersions(await a_store()).get(ORDERS, "v9")


async def test_the_loop_goes_on_while_a_large_text_is_understood() -> None:
    tables = await a_store()
    rules = "".join(
        f"    - {{key: k{number}, check: matches, field: f, value: 'a{number}*'}}\n" for number in range(190)
    )
    text = f"pipeline: {{id: orders}}\nvalidation:\n  rules:\n{rules}job: {{type: command, config: {{command: x}}}}\n"
    await Pipelines(tables).put(ORDERS, text)
    reading = asyncio.create_task(PipelineVersions(tables).current(ORDERS))
    turns = 0

    while not reading.done():
        turns += 1
        await asyncio.sleep(0)

    version = await reading
    assert version is not None
    assert len(version.pipeline.rules.members) == 190
    # The store takes some turns, too.
    assert turns > 50
