"""Sensors that name a period for which nothing may begin, or one of another grain than the schedule's."""

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import ScheduleId
from worker.core.model.values import Json
from worker.core.run.state import State
from worker.core.time.periods import Period
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Put, TableName

HOURLY = CONFIG.replace("schedule:\n", 'schedule:\n  cron: "0 * * * *"\n')
DAILY = CONFIG.replace("schedule:\n", 'schedule:\n  cron: "0 6 * * *"\n')
BY_THE_HOUR = CONFIG.replace("value: done}", 'value: done, deadline: ":45"}')
FORECAST = CONFIG.replace("schedule:\n", "schedule:\n  maxAhead: 720h\n")


def key_of(text: str, schedule: str) -> RunKey:
    period = Period.parse(text)
    assert period is not None
    return RunKey(ORDERS, ScheduleId(schedule), period)


async def told(world: World, event_type: str) -> list[tuple[str, str, Json]]:
    return [
        (stored.event.period, stored.event.message, stored.event.detail["actionHint"])
        for stored in await world.stored_events()
        if stored.event.type == event_type
    ]


@pytest.mark.parametrize("day", ["2026-03-06", "2026-03-08", "2027-03-03", "2062-03-03", "9998-12-31", "2024-12-01"])
def test_a_sensor_of_a_period_out_of_range_begins_nothing_and_is_told_once(day: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker() as worker:
            await world.deploy()
            await world.ready(day)
            await world.settle()
            # Delivered again, looked at again, and written again with the same content.
            world.read_to[TableName.CONTROL] = 0
            await world.settle()
            await worker.parts.resync.run(ORDERS)
            await world.ready(day)
            await world.settle()

        assert await world.run(day) is None
        [(period, message, hint)] = await told(world, "TRIGGER_REJECTED")
        assert period == day
        assert message.startswith(f"ready begins no run: {day} ")
        assert hint
        assert [facts["sensor"] for event, facts in worker.log if event == "signal.refused"] == ["ready"]

    scenario()


@on_virtual_time
async def test_other_content_for_a_period_out_of_range_is_told_again() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ready("2062-03-03")
        await world.settle()
        await world.ready("2062-03-03", batch=2)
        await world.settle()

    assert len(await told(world, "TRIGGER_REJECTED")) == 2


@pytest.mark.parametrize(
    ("day", "config", "begins"),
    [
        ("2026-03-04", CONFIG, True),
        ("2026-03-05", CONFIG, True),  # midnight is 36 hours away
        ("2026-03-30", CONFIG, False),
        ("2026-03-30", FORECAST, True),
        ("2026-04-05", FORECAST, False),
        ("2026-03-04", CONFIG.replace("schedule:\n", "schedule:\n  maxAhead: 0s\n"), False),
        (DAY, CONFIG.replace("schedule:\n", "schedule:\n  maxAhead: 0s\n"), True),
    ],
)
def test_a_schedule_says_how_far_ahead_its_periods_may_begin(day: str, config: str, begins: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy(config)
            await world.ready(day)
            await world.settle()

        assert (await world.run(day) is not None) is begins
        assert len(await told(world, "TRIGGER_REJECTED")) == (0 if begins else 1)

    scenario()


@on_virtual_time
async def test_a_sensor_that_came_too_early_begins_its_run_when_its_time_is_near() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await Sensors(world.tables).put(ORDERS, "ready#2026-03-08", {"status": "done"})
        await world.settle()
        too_early = await world.run("2026-03-08")
        await world.wait(days=4)
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert too_early is None
    assert await world.run("2026-03-08") is not None


@on_virtual_time
async def test_a_run_that_exists_goes_on_however_far_ahead_its_period_is() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(FORECAST)
        await world.ready("2026-03-30")
        await world.settle()
        await world.deploy(CONFIG)
        await world.ready("2026-03-30", batch=2)
        await world.count(100, "2026-03-30")
        await world.settle()

    assert await world.state("2026-03-30") is State.POLLING
    assert await told(world, "TRIGGER_REJECTED") == []


@on_virtual_time
async def test_a_rerun_of_a_period_too_far_ahead_is_rejected_with_that_reason() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ask_rerun("2062-03-03")
        await world.settle()

    assert await world.run("2062-03-03") is None
    [(_, message, hint)] = await told(world, "RERUN_REJECTED")
    assert "2062-03-03 begins more than 48h from now" in message
    assert "maxAhead" in str(hint)


@on_virtual_time
async def test_a_cascade_for_a_period_too_far_ahead_is_told_once() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        for path in (["upstream"], ["upstream", "other"]):
            row = {"PK": f"MARKER#{ORDERS}", "SK": "2062-03-03#stream", "path": path}
            await world.tables.commit(Put(TableName.CONTROL, row))
            await world.settle()

    assert await world.run("2062-03-03") is None
    assert [period for period, _, _ in await told(world, "TRIGGER_REJECTED")] == ["2062-03-03"]


# --- the grain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "schedule", "named", "says"),
    [
        (HOURLY, "cron", [DAY, "2026-03-02"], "names a day, and the schedule expects an hour"),
        (HOURLY, "cron", [f"{DAY}T0730", f"{DAY}T0745"], "names a minute, and the schedule expects an hour"),
        (DAILY, "cron", [f"{DAY}T07", f"{DAY}T08"], "names an hour, and the schedule expects a day"),
        (BY_THE_HOUR, "stream", [DAY, "2026-03-02"], "names a day, and the schedule expects an hour"),
    ],
)
def test_a_period_of_another_grain_is_run_and_told_once_for_the_schedule(
    config: str, schedule: str, named: list[str], says: str
) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker() as worker:
            await world.deploy(config)
            for period in named:
                await world.write(f"ready#{period}", status="done")
                await world.settle()
            world.read_to[TableName.CONTROL] = 0
            await world.settle()

        [(_, message, _)] = await told(world, "GRAIN_MISMATCH")
        assert says in message
        assert [facts["run"] for event, facts in worker.log if event == "signal.grain_mismatched"] == [
            f"orders/{schedule}/{named[0]}"
        ]
        for period in named:
            assert await Runs(world.tables).load(key_of(period, schedule)) is not None

    scenario()


@pytest.mark.parametrize(
    ("config", "period"),
    [(HOURLY, f"{DAY}T07"), (DAILY, DAY), (BY_THE_HOUR, f"{DAY}T11"), (CONFIG, DAY), (CONFIG, f"{DAY}T07")],
)
def test_a_period_of_the_right_grain_or_of_a_schedule_that_implies_none_is_not_told(config: str, period: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy(config)
            await world.write(f"ready#{period}", status="done")
            await world.settle()

        assert await told(world, "GRAIN_MISMATCH") == []

    scenario()
