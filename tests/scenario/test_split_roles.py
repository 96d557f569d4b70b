"""Roles split among workers: the work of each is done by those that have it alone, and what waits is seen to wait."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from consumers.streams.embedded.feed import feed_name
from consumers.streams.embedded.housekeeping import EVERY_S
from consumers.streams.embedded.lag import FeedLags
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.worlds.embedded_workers import Crew, told_of
from tests.support.worlds.streamed_workers import StreamedCrew, Way
from worker.config.roles import Role
from worker.config.store_setting import GROUP
from worker.core.run.state import State
from worker.operations.workers.group_view import look, reason
from worker.store.repos.leases import Leases
from worker.store.table import TableName

EVENTS = feed_name(TableName.EVENTS)


async def relay_lag(crew: Crew) -> timedelta:
    return (await FeedLags(crew.store, Leases(crew.store, GROUP), crew.clock, (TableName.EVENTS,))())[EVENTS]


async def owners(crew: Crew, stream: str) -> set[str]:
    """The names of the workers that hold leases of a stream."""
    leases = await Leases(crew.store, GROUP).list(stream)
    return {lease.owner.partition("-")[0] for lease in leases if lease.owner is not None}


@on_virtual_time
async def test_one_worker_decides_and_another_tells() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("decides", Role.ENGINE, Role.SCHEDULER)
    crew.worker("tells", Role.RELAY)
    await crew.clock.sleep(5)

    await crew.ready()
    await crew.clock.sleep(1)
    crew.finish_jobs()
    await crew.clock.sleep(120)

    assert await crew.state() is State.COMPLETED
    assert told_of(crew.told, "JOB_COMPLETED") == 1
    assert await owners(crew, EVENTS) == {"tells"}
    for stream in (feed_name(TableName.CONTROL), feed_name(TableName.JOBLOG), "active", "scheduler"):
        assert await owners(crew, stream) == {"decides"}


@on_virtual_time
async def test_while_nobody_has_the_relay_events_wait_the_lag_shows_and_the_next_one_tells_them_once() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("decides", Role.ENGINE, Role.SCHEDULER)
    host, _ = crew.worker("tells", Role.RELAY)
    await crew.clock.sleep(5)
    host.crash()
    await crew.ready()
    await crew.clock.sleep(1)
    crew.finish_jobs()
    await crew.clock.sleep(10 * EVERY_S)

    assert await crew.state() is State.COMPLETED
    assert told_of(crew.told, "JOB_COMPLETED") == 0
    assert await owners(crew, EVENTS) <= {"tells"}
    assert await relay_lag(crew) > timedelta(minutes=5)

    crew.worker("tells2", Role.RELAY)
    await crew.clock.sleep(60)

    assert [event.type for event in crew.told].count("JOB_COMPLETED") == 1
    assert await relay_lag(crew) < timedelta(minutes=1)


@on_virtual_time
async def test_events_wait_for_the_first_relay_there_ever_was() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("decides", Role.ENGINE, Role.SCHEDULER)
    await crew.clock.sleep(5)
    await crew.ready()
    await crew.clock.sleep(1)
    crew.finish_jobs()
    await crew.clock.sleep(10 * EVERY_S)

    assert await relay_lag(crew) > timedelta(minutes=5)


@on_virtual_time
async def test_events_that_nobody_came_for_until_they_were_forgotten_still_show() -> None:
    crew = Crew()
    await crew.deployed()
    await crew.store.trim(await crew.store.last_position())

    assert await relay_lag(crew) >= timedelta(hours=24)


@on_virtual_time
async def test_what_nobody_reads_meanwhile_is_kept_for_whoever_does_so_next() -> None:
    crew = Crew()
    await crew.deployed()
    host, _ = crew.worker("decides", Role.ENGINE, Role.SCHEDULER)
    crew.worker("tells", Role.RELAY)
    await crew.clock.sleep(5)
    host.crash()
    await crew.ready()
    await crew.clock.sleep(10 * EVERY_S)

    crew.worker("decides2", Role.ENGINE, Role.SCHEDULER)
    await crew.clock.sleep(5)

    assert await crew.state() is State.POLLING
    assert told_of(crew.told, "DATA_LOSS_SUSPECTED") == 0


SETTLED_S = 400.0  # long enough for every move that an even share needs


@pytest.mark.parametrize(
    "crew_of", [Crew, StreamedCrew, lambda: StreamedCrew(way=Way.KINESIS)], ids=["feeds", "streams", "kinesis"]
)
def test_what_is_said_about_the_plan_is_what_the_workers_do(crew_of: Callable[[], Crew]) -> None:
    """Whoever asks makes the plan anew from the rows: a lease that it took for another role's it would want to move."""

    async def scenario() -> None:
        crew = crew_of()
        await crew.deployed()
        for name in ("one", "two"):
            crew.worker(name, Role.ENGINE, Role.SCHEDULER)
        crew.worker("tells", Role.RELAY)
        await crew.clock.sleep(SETTLED_S)

        view = await look(crew.store)

        assert len(view.sessions) == 3
        said = {
            (each.stream, lease.shard): reason(lease, each) for each in view.streams for lease in each.leases.values()
        }
        assert len(said) > 10
        assert set(said.values()) == {"stays"}, said

    run(scenario())
