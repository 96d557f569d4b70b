"""Readiness rows and the rows of pipelines that extend an archetype, on every backend."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import race, run_key_of
from tests.support.clock.manual import ManualClock
from worker.config.deploy import deploy
from worker.config.load import load_archetype_text, load_text
from worker.config.versions import PipelineVersions
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import ScheduleId
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.model.rule_report import RuleReport
from worker.store import retention
from worker.store.repos.readiness import ReadinessRows, readiness_key
from worker.store.table import Put, StaleWrite, TableName, Tables

RULES = (
    RuleReport(key="count", field="rows", check="gte", holds=False, required="at least 100", actual="5", reason="why"),
    RuleReport(key="", holds=True, reason="an upstream"),
)


def a_readiness(key: RunKey, clock: ManualClock, reason: str = "count.rows is 5") -> Readiness:
    return Readiness(
        key=key,
        verdict=ReadinessVerdict.WAITING,
        changed_at=clock.now(),
        attempt=2,
        reason=reason,
        rules=RULES,
        rules_total=3,
    )


async def test_a_readiness_is_read_back_as_it_was_written(tables: Tables, clock: ManualClock) -> None:
    rows, key = ReadinessRows(tables), run_key_of()

    saved = await rows.save(a_readiness(key, clock), clock.now())
    other = await rows.save(a_readiness(replace(key, schedule=ScheduleId("zz")), clock), clock.now())

    assert await rows.load(key.pipeline, key.schedule) == saved
    assert await rows.of_pipeline(key.pipeline) == [saved, other]
    assert await rows.load(key.pipeline, ScheduleId("none")) is None


async def test_a_readiness_expires_on_read_and_may_then_be_written_anew(tables: Tables, clock: ManualClock) -> None:
    rows, key = ReadinessRows(tables), run_key_of()
    await rows.save(a_readiness(key, clock), clock.now())
    clock.advance(retention.READINESS + timedelta(seconds=1))

    assert await rows.load(key.pipeline, key.schedule) is None
    assert await rows.of_pipeline(key.pipeline) == []
    again = await rows.save(a_readiness(key, clock, "later"), clock.now())
    assert await rows.load(key.pipeline, key.schedule) == again


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
async def test_of_ten_writers_one_is_first(backend: str, tables: Tables, clock: ManualClock, exists: bool) -> None:
    rows, key = ReadinessRows(tables), run_key_of()
    version = (await rows.save(a_readiness(key, clock), clock.now())).version if exists else 0
    tries = [replace(a_readiness(key, clock, f"writer {number}"), version=version) for number in range(10)]

    results = await race(backend, *(rows.save(each, clock.now()) for each in tries))

    [winner] = [result for result in results if isinstance(result, Readiness)]
    assert sum(isinstance(result, StaleWrite) for result in results) == 9
    assert await rows.load(key.pipeline, key.schedule) == winner


async def test_a_damaged_readiness_counts_as_none(tables: Tables) -> None:
    key = run_key_of()
    at = readiness_key(key.pipeline, key.schedule)
    await tables.commit(Put(TableName.CONTROL, {"PK": at.pk, "SK": at.sk, "verdict": "maybe", "period": "x"}))

    assert await ReadinessRows(tables).load(key.pipeline, key.schedule) is None


async def test_a_pipeline_that_extended_an_archetype_is_read_from_the_store_alone(
    tables: Tables, clock: ManualClock
) -> None:
    name = run_key_of().pipeline
    archetype, problems = load_archetype_text(
        "archetype: {id: ingest, parameters: {feed: {type: text}}}\n"
        "schedule: {trigger: {key: '${feed}', check: exists}}\njob: {type: glue, config: {jobName: '${feed}'}}\n",
        "archetypes/ingest.yaml",
    )
    assert archetype is not None, problems.found
    text = f"pipeline: {{id: {name}}}\nextends: {{archetype: ingest, with: {{feed: orders}}}}\n"
    pipeline = load_text(text, archetypes={"ingest": archetype}).pipeline
    assert pipeline is not None

    await deploy(tables, pipeline, clock)
    version = await PipelineVersions(tables).current(name)

    assert version is not None
    assert version.pipeline == pipeline
    assert version.pipeline.archetype is not None
    assert (version.pipeline.archetype.id, version.pipeline.archetype.hash) == ("ingest", archetype.hash)
