"""What cron costs: it follows what is due, and not what is stored."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from scheduler.apscheduler_jobs import JobScheduler
from scheduler.cron.starter import CronStarts
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.counting_tables import CountingTables, counted
from tests.support.worlds.cron import a_timed_config, holding_cron
from tests.support.worlds.engine import Worker, World

DUE: Final = 5


def cron_of(world: World, worker: Worker, counter: CountingTables) -> Callable[[JobScheduler], CronStarts]:
    return lambda jobs: CronStarts(counter, worker.engine, worker.parts.configs, world.clock, jobs=jobs)


async def cost_of_a_pass(resting: int) -> Counter[str]:
    """The rows that one look costs with a few times due, among many that are not."""
    world, counter = await counted()
    for number in range(resting):
        await world.deploy(a_timed_config("0 6 * * *", pipeline=f"resting-{number:04d}"))
    for number in range(DUE):
        await world.deploy(a_timed_config("0 13 * * *", pipeline=f"due-{number}"))
    async with (
        world.worker(reads_feed=False) as worker,
        holding_cron(cron_of(world, worker, counter), world.clock, worker.standing.may_act, follow_s=86_400) as cron,
    ):
        await world.wait(minutes=59, seconds=59)
        assert len(cron) == resting + DUE
        counter.rows.clear()

        await world.wait(seconds=1)

    return counter.rows


def test_a_look_costs_what_is_due_however_many_schedules_there_are() -> None:
    few, many = run(cost_of_a_pass(resting=10)), run(cost_of_a_pass(resting=150))

    assert few == many
    assert many["written"] <= DUE * 6  # one of them: the first result of the rules, which readers show
    assert many["read"] <= DUE * 10


@on_virtual_time
async def test_a_look_with_nothing_due_asks_nothing_and_following_asks_for_the_newest_changes_only() -> None:
    world, counter = await counted()
    for number in range(100):
        await world.deploy(a_timed_config("0 6 * * *", pipeline=f"resting-{number:04d}"))
    await world.wait(hours=1)
    async with (
        world.worker(reads_feed=False) as worker,
        holding_cron(cron_of(world, worker, counter), world.clock, worker.standing.may_act, follow_s=86_400) as cron,
    ):
        await world.wait(seconds=1)
        counter.rows.clear()

        await world.wait(minutes=10)
        assert counter.rows == {}
        await cron.follow()

    assert counter.rows == {"read": 1}
