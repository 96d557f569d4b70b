"""The deadline of an evaluation: reported once with what is missing, never once the rules held; nothing is stopped."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.mortal_tables import MortalTables
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world
from tests.support.worlds.watchdog import on_watch, pipeline_text
from worker.core.model.events import Event
from worker.core.run.state import Pause, State
from worker.core.sla.state import Verdict
from worker.store.repos.pauses import Pauses
from worker.store.table import Tables

BREACH: Final = "EVALUATION_SLA_BREACH"
AT: Final = datetime(2026, 3, 3, 12, 30, tzinfo=UTC)
ALONE: Final = CONFIG + 'sla: {evaluationDeadline: "12:30", dayOffset: 0}\n'
BOTH: Final = CONFIG + 'sla: {evaluationDeadline: "12:30", deadline: "14:00", dayOffset: 0}\n'
RELATIVE: Final = CONFIG + "sla: {maxEvaluation: 30m}\n"
CRASH_POINTS: Final = range(9)


async def breaches(world: World) -> list[Event]:
    return [each.event for each in await world.stored_events() if each.event.type == BREACH]


async def verdict(world: World) -> Verdict | None:
    found = await world.watch()
    return found.evaluation_verdict if found else None


@pytest.mark.parametrize("config", [ALONE, BOTH, RELATIVE], ids=["alone", "both", "relative"])
@on_virtual_time
async def test_rules_that_do_not_hold_in_time_are_reported_once_and_the_run_goes_on(config: str) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(config)
        await world.count(5)
        await world.ready()
        await world.wait(minutes=40)
        [breach] = await breaches(world)
        assert await world.state() is State.EVALUATING
        await world.count(100)
        await world.wait(minutes=1)
        assert await world.state() is State.POLLING
        await world.wait(hours=4)

    assert breach.at == AT
    missing = breach.detail["missing"]
    assert isinstance(missing, list)
    assert missing == [
        {
            "holds": False,
            "key": "count",
            "field": "rows",
            "check": "gte",
            "required": "at least 100",
            "actual": "5",
            "reason": "count.rows is 5, which is not at least 100",
        }
    ]
    assert len(await breaches(world)) == 1
    assert await verdict(world) is Verdict.BREACHED


@pytest.mark.parametrize("config", [ALONE, BOTH, RELATIVE], ids=["alone", "both", "relative"])
@on_virtual_time
async def test_once_the_rules_held_there_is_no_breach_whatever_becomes_of_the_run(config: str) -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(config)
        await world.ready()
        await world.count(100)
        await world.wait(minutes=1)
        assert await verdict(world) is Verdict.MET
        await world.count(5)  # the retry waits for its rules, past the deadline
        world.runner.fail()
        await world.wait(hours=4)

    assert await breaches(world) == []


@on_virtual_time
async def test_a_run_that_never_begins_is_reported_with_its_trigger() -> None:
    world = await a_world()
    text = pipeline_text(
        "orders",
        "{trigger: {key: ready, check: equals, field: status, value: done}}",
        more='sla: {evaluationDeadline: "15:00"}\nvalidation: {rules: [{key: count, check: exists}]}',
    )
    async with on_watch(world) as held:
        await world.deploy(text)
        await held.until(NOON + timedelta(hours=2, minutes=45))
        armed = await world.watch("2026-03-02")
        assert armed is not None
        assert armed.evaluation_at == NOON + timedelta(hours=3)
        await held.until(NOON + timedelta(hours=4))

    [breach] = await breaches(world)
    assert (breach.period, breach.at, breach.detail["status"]) == (
        "2026-03-02",
        NOON + timedelta(hours=3),
        "not started",
    )
    missing = breach.detail["missing"]
    assert isinstance(missing, list)
    assert [each["key"] for each in missing if isinstance(each, dict)] == ["ready", "count"]


@on_virtual_time
async def test_an_hourly_deadline_is_that_minute_of_the_next_hour() -> None:
    world = await a_world()
    text = pipeline_text(
        "orders",
        "{trigger: {key: ready, check: equals, field: status, value: done}}",
        more='sla: {evaluationDeadline: ":30"}',
    )
    async with on_watch(world) as held:
        await world.deploy(text)
        await held.until(NOON + timedelta(hours=2, minutes=45))

    found = [(event.period, event.at) for event in await breaches(world)]
    assert found[-2:] == [
        ("2026-03-03T12", NOON + timedelta(hours=1, minutes=30)),
        ("2026-03-03T13", NOON + timedelta(hours=2, minutes=30)),
    ]


@on_virtual_time
async def test_after_an_outage_the_first_evaluation_decides() -> None:
    for rows, expected in ((100, 0), (5, 1)):
        world = await a_world()
        async with world.worker("w1"):
            await world.deploy(ALONE)
            await world.ready()
            await world.wait(minutes=1)
        await world.count(rows)
        await world.wait(minutes=45)
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            await world.wait(minutes=5)

        assert len(await breaches(world)) == expected


@on_virtual_time
async def test_rules_that_hold_under_a_pause_are_not_reported() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ALONE)
        await world.ready()
        await world.wait(minutes=1)
        await Pauses(world.tables).put(ORDERS, Pause("maintenance"))
        await world.count(100)
        await world.wait(minutes=40)

    assert await world.state() is State.EVALUATING
    assert await breaches(world) == []
    assert await verdict(world) is Verdict.MET


@on_virtual_time
async def test_a_waived_deadline_and_a_moved_one_are_not_reported_at_the_old_time() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ALONE)
        await world.ready()
        await world.wait(minutes=1)
        await world.ask_cancel(waive=True)
        await world.wait(hours=1)

    assert await breaches(world) == []
    assert await verdict(world) is Verdict.WAIVED


@pytest.mark.parametrize("is_applied", [False, True], ids=["lost", "applied"])
@pytest.mark.parametrize("at", CRASH_POINTS)
def test_a_worker_that_dies_at_any_write_leaves_one_breach_and_none_if_the_rules_held(
    at: int, is_applied: bool
) -> None:
    async def live(rows: int) -> list[Event]:
        made: list[MortalTables] = []

        def wrap(tables: Tables) -> Tables:
            made.append(MortalTables(tables, at, is_applied=is_applied))
            return made[0]

        world = await a_world(wrap)
        async with world.worker("first") as worker:
            await world.deploy(BOTH)
            await world.ready()
            await world.count(rows)
            await world.wait(minutes=35)
        if made[0].died.is_set():
            made[0].died.clear()
            world.read_to.clear()
            async with world.worker("next") as worker:
                await world.adopt_orphans(worker)
                await world.wait(minutes=35)
        return await breaches(world)

    async def both() -> None:
        assert len(await live(5)) == 1
        assert await live(100) == []

    run(both())


def test_the_crash_points_cover_every_write_of_that_life() -> None:
    async def count() -> int:
        made: list[MortalTables] = []

        def wrap(tables: Tables) -> Tables:
            made.append(MortalTables(tables, None, is_applied=False))
            return made[0]

        world = await a_world(wrap)
        async with world.worker("first"):
            await world.deploy(BOTH)
            await world.ready(DAY)
            await world.count(5)
            await world.wait(minutes=35)
        return made[0].writes

    assert 5 <= run(count()) <= len(CRASH_POINTS)
