"""Results of probes as rows, on every backend."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.contract.storevalues import NOW, a_pipeline
from tests.support.clock.manual import ManualClock
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.probes import Probe, ProbeType
from worker.core.model.rules import Group
from worker.core.probes.trait import ProbeFailure, Trait
from worker.core.time.periods import Period
from worker.store import retention
from worker.store.repos.probes.traits import ProbeTraits, read_rule_inputs
from worker.store.repos.sensors import Sensors
from worker.store.table import StaleWrite, Tables

DAY = Period(NOW.date())
TTL = timedelta(minutes=30)
RATES = Probe(key="rates", type=ProbeType.HTTP, config={"url": "https://rates.example/${DATE}"}, ttl=TTL)
LATEST = Probe(key="latest", type=ProbeType.HTTP, config={"url": "https://rates.example/"}, ttl=TTL)


def a_trait(key: str = "rates", period: Period | None = DAY, at: datetime = NOW) -> Trait:
    data = {"status": "PASS", "rate": 1.25, "days": [1, 2]}
    return Trait(
        key=key,
        period=period,
        data=data,
        content_hash="h1",
        checked_at=at,
        changed_at=at,
        stale_at=at + TTL,
        prober="w1",
    )


def with_probes(pipeline: PipelineId, *probes: Probe) -> Pipeline:
    return Pipeline(id=pipeline, schedules=(Schedule(id=ScheduleId("stream")),), rules=Group(), job=None, probes=probes)


async def test_a_result_is_read_back_as_it_was_written(tables: Tables) -> None:
    traits, pipeline = ProbeTraits(tables), a_pipeline()
    failing = replace(a_trait(), failure=ProbeFailure(kind="timeout", reason="no response within 30s", since=NOW))

    written = await traits.put(pipeline, failing, NOW)

    assert written.version == 1
    assert await traits.get(pipeline, "rates", DAY) == written
    assert await traits.get(pipeline, "rates", None) is None


async def test_all_results_of_a_pipeline_are_listed_and_no_others(tables: Tables) -> None:
    traits, pipeline, other = ProbeTraits(tables), a_pipeline(), a_pipeline()
    for key, period in (("rates", DAY), ("rates", Period(DAY.date, 7)), ("latest", None)):
        await traits.put(pipeline, a_trait(key, period), NOW)
    await traits.put(other, a_trait(), NOW)
    await Sensors(tables).put(pipeline, "rates", {"status": "FAIL"})

    assert [trait.name async for trait in traits.list(pipeline)] == ["latest", f"rates#{DAY}", f"rates#{DAY}T07"]
    found = await traits.get_many(pipeline, ["latest", f"rates#{DAY}", "unknown"])
    assert sorted(found) == ["latest", f"rates#{DAY}"]


async def test_a_stale_result_is_missing_to_rules_and_still_there_for_people(
    tables: Tables, clock: ManualClock
) -> None:
    pipeline = a_pipeline()
    now = clock.now()
    await ProbeTraits(tables).put(pipeline, a_trait(at=now), now)
    await Sensors(tables).put(pipeline, "orders", {"rows": 1})
    owner = with_probes(pipeline, RATES, LATEST)
    names = ["rates", "latest", "orders"]

    fresh = await read_rule_inputs(tables, owner, names, DAY, now)
    assert sorted(fresh.sensors) == ["orders", "rates"]
    assert fresh.sensors["rates"].key == f"rates#{DAY}"
    assert fresh.absences == {"latest": "probe latest has no result yet"}

    clock.advance(TTL + timedelta(minutes=12))
    stale = await read_rule_inputs(tables, owner, names, DAY, clock.now())
    assert sorted(stale.sensors) == ["orders"]
    assert stale.absences["rates"] == "probe rates has no current result: stale since 12m"
    last = await read_rule_inputs(tables, owner, names, DAY, clock.now(), with_stale=True)
    assert sorted(last.sensors) == ["orders", "rates"]


async def test_the_row_expires_by_itself_and_can_be_written_anew(tables: Tables, clock: ManualClock) -> None:
    traits, pipeline, now = ProbeTraits(tables), a_pipeline(), clock.now()
    await traits.put(pipeline, a_trait(at=now), now)

    clock.advance(TTL + retention.TRAITS + timedelta(seconds=1))

    assert await traits.get(pipeline, "rates", DAY) is None
    assert [trait async for trait in traits.list(pipeline)] == []
    written = await traits.put(pipeline, a_trait(at=clock.now()), clock.now())
    assert await traits.get(pipeline, "rates", DAY) == written


async def test_of_ten_workers_that_claim_a_probe_one_wins(tables: Tables) -> None:
    traits, pipeline = ProbeTraits(tables), a_pipeline()

    async def claim(number: int) -> bool:
        try:
            await traits.put(pipeline, Trait(key="rates", period=DAY, prober=f"w{number}"), NOW)
        except StaleWrite:
            return False
        return True

    won = await asyncio.gather(*(claim(number) for number in range(10)))

    assert won.count(True) == 1
    found = await traits.get(pipeline, "rates", DAY)
    assert found is not None
    assert found.prober == f"w{won.index(True)}"


async def test_a_write_that_another_one_overtook_is_refused(tables: Tables) -> None:
    traits, pipeline = ProbeTraits(tables), a_pipeline()
    first = await traits.put(pipeline, a_trait(), NOW)
    await traits.put(pipeline, replace(first, content_hash="h2"), NOW)

    with pytest.raises(StaleWrite):
        await traits.put(pipeline, replace(first, content_hash="h3"), NOW)

    found = await traits.get(pipeline, "rates", DAY)
    assert found is not None
    assert found.content_hash == "h2"
