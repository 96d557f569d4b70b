"""Readiness: the last result of a schedule's rules, written only when it says something new."""

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world, run_key
from worker.core.model import keys
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.run.state import State
from worker.store.repos.readiness import ReadinessRows
from worker.store.table import TableName

SCHEDULE = run_key().schedule


async def readiness(world: World) -> Readiness | None:
    return await ReadinessRows(world.tables).load(ORDERS, SCHEDULE)


async def writes(world: World) -> int:
    changes = await world.tables.changes(TableName.CONTROL, 0, 10_000)
    return sum(change.key.sk.startswith(keys.READINESS) for change in changes)


@on_virtual_time
async def test_a_run_that_waits_says_for_what_and_writes_only_what_is_new() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.count(5)
        await world.ready()
        await world.wait(minutes=40)
        first, written = await readiness(world), await writes(world)
        await world.count(50)
        await world.wait(minutes=1)
        second = await readiness(world)
        await world.write("other", rows=1)
        await world.wait(minutes=5)
        assert await writes(world) == written + 1
        await world.count(100)
        await world.wait(minutes=1)
        third = await readiness(world)

    assert written == 1
    assert first is not None
    assert (first.verdict, first.key) == (ReadinessVerdict.WAITING, run_key())
    [rule] = first.rules
    assert (rule.key, rule.required, rule.actual, rule.holds) == ("count", "at least 100", "5", False)
    assert second is not None
    assert second.rules[0].actual == "50"
    assert third is not None
    assert (third.verdict, third.rules[0].actual) == (ReadinessVerdict.READY, "100")
    assert await writes(world) == 3


@on_virtual_time
async def test_the_run_that_waited_becomes_ready_in_the_commit_that_starts_its_job() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.wait(minutes=1)
        await world.count(100)
        await world.until(State.POLLING)

    changes = await world.tables.changes(TableName.CONTROL, 0, 10_000)
    [started] = [each for each in changes if each.image and each.image.get("state") == "TRIGGERING"]
    ready = [each for each in changes if each.key.sk.startswith(keys.READINESS)][-1]
    assert ready.image is not None
    assert ready.image["verdict"] == "READY"
    assert abs(ready.position - started.position) <= 3
    assert started.image is not None
    assert ready.image["changedAt"] == started.image["since"]


@on_virtual_time
async def test_a_schedule_that_is_always_ready_writes_once_and_an_older_period_changes_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.count(100)
        for day in ("2026-03-02", "2026-03-03"):
            await world.write(f"count#{day}", rows=100)
            await world.ready(day)
            await world.wait(minutes=1)
        assert await writes(world) == 1
        await world.write("count#2026-03-01", rows=1)
        await world.ready("2026-03-01")
        await world.wait(minutes=20)

    found = await readiness(world)
    assert found is not None
    assert found.verdict is ReadinessVerdict.READY
    assert str(found.key.period) == "2026-03-02"
    assert await writes(world) == 1


@on_virtual_time
async def test_an_age_that_grows_is_no_news() -> None:
    rule = "{key: count, check: age_lt, field: at, value: 10m}"
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("{key: count, check: gte, field: rows, value: 100}", rule))
        await world.write("count#2026-03-03", at="2026-03-01T00:00:00Z")
        await world.ready()
        await world.wait(minutes=40)

    assert await writes(world) == 1
