"""A target that does not answer: it is spared, people are told if it lasts, and nothing is lost or done twice."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import lose
from tests.support.worlds.engine import CONFIG, DAY, Worker, World, a_world
from worker.core.model.events import EventType
from worker.core.run.state import State
from worker.jobs.runner import Guarantee
from worker.targets.circuit_breaker import FAILURES_MAX

OFTEN = CONFIG.replace("maxRetries: 1", "pollIntervalSeconds: 5")
LONG = CONFIG.replace("maxRetries: 1", "jobPollWindowSeconds: 36000\n  runTimeoutSeconds: 36000")


async def polling(world: World, config: str = OFTEN) -> None:
    await world.deploy(config)
    await world.count(100)
    await world.ready()
    await world.settle()
    assert await world.state() is State.POLLING


def logged(worker: Worker) -> Counter[str]:
    return Counter(event for event, _ in worker.log if event.startswith("target."))


@on_virtual_time
async def test_a_silent_target_is_asked_now_and_then_instead_of_at_every_poll() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await polling(world)
        world.runner.is_silent = True
        before = world.runner.calls["status"]
        await world.wait(minutes=10)

        asked = world.runner.calls["status"] - before
        assert FAILURES_MAX < asked < 30  # it was due 120 times
        assert logged(worker) == {"target.closed": 1}


@on_virtual_time
async def test_a_job_that_ended_meanwhile_is_seen_soon_after_the_target_is_back() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await polling(world)
        world.runner.is_silent = True
        await world.wait(minutes=5)
        world.runner.finish()
        world.runner.is_silent = False
        await world.wait(minutes=1, seconds=10)

        assert await world.state() is State.COMPLETED
        assert logged(worker) == {"target.closed": 1, "target.reopened": 1}
        assert EventType.INFRA_FAILURE not in await world.events()


@on_virtual_time
async def test_people_are_told_once_of_a_target_that_stays_silent() -> None:
    world = await a_world()
    async with world.worker():
        await polling(world)
        world.runner.is_silent = True
        await world.wait(minutes=9)
        assert EventType.INFRA_FAILURE not in await world.events()
        await world.wait(minutes=20)

        told = [stored.event for stored in await world.stored_events() if stored.event.type == EventType.INFRA_FAILURE]
        assert len(told) == 1
        assert "command has not answered for 10 minutes" in told[0].message


@on_virtual_time
async def test_a_start_while_the_target_is_left_alone_is_not_sent_and_comes_later_under_its_token() -> None:
    world, other_day = await a_world(), "2026-03-02"
    async with world.worker():
        await polling(world)
        world.runner.is_silent = True
        await world.wait(minutes=2)
        asked = world.runner.calls["status"]
        while world.runner.calls["status"] == asked:  # so that the start is not the one call that asks again
            await world.wait(seconds=1)
        before = world.runner.calls["start"]

        await world.count(100, other_day)
        await world.ready(other_day)
        await world.settle()
        assert world.runner.calls["start"] == before
        assert await world.state(other_day) is State.TRIGGERING
        assert [record.event for record in await world.job_log(other_day)] == ["infra-trigger-failure"]

        world.runner.is_silent = False
        await world.wait(minutes=3)
        run = await world.run(other_day)
        assert run is not None
        assert run.state is State.POLLING
        assert world.runner.tokens.count(run.token) == 1


@pytest.mark.parametrize(
    ("guarantee", "closed"), [(Guarantee.FOUND_AGAIN, {"target.closed": 1}), (Guarantee.AT_LEAST_ONCE, {})]
)
def test_starts_that_are_not_answered_count_unless_it_may_be_the_job_that_takes_long(
    guarantee: Guarantee, closed: dict[str, int]
) -> None:
    @on_virtual_time
    async def starts() -> None:
        world = await a_world()
        world.runner.guarantee = guarantee
        world.runner.scripts.extend([lose] * FAILURES_MAX)
        async with world.worker() as worker:
            await world.deploy()
            for day in range(1, FAILURES_MAX + 1):
                await world.count(100, f"2026-03-0{day}")
                await world.ready(f"2026-03-0{day}")
                await world.settle()

            assert len(world.runner.starts) == FAILURES_MAX
            assert logged(worker) == closed

    starts()


@on_virtual_time
async def test_a_job_like_one_that_took_an_hour_is_polled_rarely_until_that_hour_is_over() -> None:
    world, next_day = await a_world(), "2026-03-04"

    async def polls_of_an_hour(day: str) -> int:
        await world.count(100, day)
        await world.ready(day)
        await world.settle()
        before = world.runner.calls["status"]
        await world.wait(hours=1)
        polled = world.runner.calls["status"] - before
        world.runner.finish()
        await world.wait(minutes=2)
        assert await world.state(day) is State.COMPLETED
        return polled

    async with world.worker():
        await world.deploy(LONG)
        first, second = await polls_of_an_hour(DAY), await polls_of_an_hour(next_day)

    assert first >= timedelta(hours=1) // timedelta(minutes=1) - 1
    assert second <= 20
