"""What waiting costs, and what one slow target costs the others."""

import asyncio

import pytest

from tests.support.builders.values import a_job
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.counting_tables import counted
from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.fakes.remote_store import Fault, FaultyTables, on_commit
from tests.support.worlds.engine import CONFIG, ORDERS, a_world
from worker.core.model import keys
from worker.core.model.pipeline import JobType
from worker.core.run.state import Outcome, Pause, State
from worker.net.http_client import CONNECTIONS_MAX
from worker.runtime.rate_limit import TokenBucket
from worker.store.repos.pauses import Pauses
from worker.store.table import Key, Row, TableName, Tables
from worker.targets.calls import Limits, Targets, target_of


class NotedReads(ForwardingTables):
    """The store, with the sort key of every single read noted."""

    def __init__(self, tables: Tables, asked: list[str]) -> None:
        super().__init__(tables)
        self._asked = asked

    async def get(self, table: TableName, key: Key) -> Row | None:
        self._asked.append(key.sk)
        return await super().get(table, key)


@on_virtual_time
async def test_two_thousand_polls_read_and_write_no_row() -> None:
    world, counter = await counted()
    long = CONFIG.replace(
        "maxRetries: 1", "pollIntervalSeconds: 1\n  jobPollWindowSeconds: 86400\n  runTimeoutSeconds: 86400"
    )
    async with world.worker():
        await world.deploy(long)
        await world.count(100)
        await world.ready()
        await world.wait(seconds=30)  # for some seconds after a sensor, the worker looks for new configurations
        before, polls = counter.rows.copy(), world.runner.calls["status"]
        await world.wait(seconds=2_000)

        assert world.runner.calls["status"] - polls >= 1_999
        assert counter.rows == before
        assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_run_that_waits_for_its_rules_writes_nothing_and_reads_only_their_sensors() -> None:
    world, counter = await counted()
    async with world.worker():
        await world.deploy(
            CONFIG.replace("window: 1h, interval: 5m", "window: 24h, interval: 1m").replace(
                "maxRetries: 1", "runTimeoutSeconds: 604800"
            )
        )
        await world.ready()
        await world.wait(seconds=30)
        before = counter.rows.copy()
        await world.wait(minutes=1000)

    spellings_of_two_sensors = 6
    assert counter.rows["written"] == before["written"]
    assert counter.rows["read"] - before["read"] <= 1001 * spellings_of_two_sensors


@on_virtual_time
async def test_a_whole_life_costs_a_constant_number_of_rows_however_long_it_lasts() -> None:
    async def written(minutes: int) -> int:
        world, counter = await counted()
        async with world.worker():
            await world.deploy()
            await world.ready()
            await world.wait(minutes=minutes)
            await world.count(100)
            await world.wait(minutes=minutes)
            world.runner.finish()
            await world.wait(minutes=2)
        assert await world.state() is State.COMPLETED
        return counter.rows["written"]

    assert await written(1) == await written(50)


@on_virtual_time
async def test_a_run_that_a_sensor_starts_reads_no_pause_unless_its_commit_meets_one() -> None:
    asked: list[str] = []
    world = await a_world(lambda tables: NotedReads(tables, asked))
    async with world.worker():
        await world.deploy()
        for day in ("2026-03-01", "2026-03-02"):  # the second is created together with its start
            asked.clear()
            await world.count(100, day)
            await world.ready(day)
            await world.wait(minutes=1)
        begun, asked_while_open = await world.state("2026-03-02"), asked.count(keys.PAUSE)
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        await world.count(100)
        await world.ready()
        await world.wait(minutes=1)

    assert begun is State.POLLING
    assert asked_while_open == 0
    assert keys.PAUSE in asked
    assert await world.state() is None


@on_virtual_time
async def test_a_run_that_is_overdue_is_woken_once_a_second_at_most_while_the_store_is_slow() -> None:
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker() as worker:
        await world.deploy(CONFIG.replace("maxRetries: 1", "runTimeoutSeconds: 600"))
        await world.count(100)
        await world.ready()
        await world.wait(seconds=590)
        far[0].choose = on_commit(Fault(reply_delay_s=2.5))
        worker.standing.asked_more = 60
        await world.wait(seconds=30)

    run = await world.run()
    assert run is not None
    assert run.outcome is Outcome.TIMED_OUT


@on_virtual_time
async def test_a_target_that_hangs_does_not_delay_the_jobs_of_another() -> None:
    clock = VirtualClock(NOON)
    targets = Targets(clock, Limits(calls_at_once=2, in_all=4))
    stuck, done = asyncio.Event(), list[str]()

    async def call(target: str, wait: asyncio.Event | None) -> None:
        async with targets.turn(target):
            if wait is not None:
                await wait.wait()
            done.append(target)

    async with asyncio.TaskGroup() as calls:
        for _ in range(10):
            calls.create_task(call("command:slow", stuck))
        for _ in range(10):
            calls.create_task(call("command:quick", None))
        await clock.sleep(1)
        before = list(done)
        stuck.set()

    assert before == ["command:quick"] * 10
    assert done.count("command:slow") == 10


@on_virtual_time
async def test_a_hanging_job_of_one_run_delays_no_other_run() -> None:
    world = await a_world()
    async with world.worker(limits=Limits(calls_at_once=2)):
        await world.until(State.TRIGGERING)
        stuck, world.runner.hangs = world.runner.hangs, None
        await world.ready("2026-03-02")
        await world.count(100, "2026-03-02")
        await world.wait(milliseconds=100)

        assert stuck is not None
        assert await world.state() is State.TRIGGERING
        assert await world.state("2026-03-02") is State.POLLING


@on_virtual_time
async def test_calls_to_one_target_keep_to_its_rate_once_the_burst_is_used() -> None:
    clock = VirtualClock(NOON)
    bucket = TokenBucket(clock, per_second=10, burst=5)

    for _ in range(25):
        await bucket.take()

    assert 1.9 <= clock.monotonic() <= 2.1


def test_jobs_of_one_host_share_its_limits_and_those_of_two_hosts_do_not() -> None:
    one, same, other = (
        a_job(type=JobType.HTTP, config={"url": url})
        for url in ("https://a.example/x", "https://a.example/y", "https://b.example/x")
    )

    assert target_of(one) == target_of(same) != target_of(other)
    assert target_of(a_job()) == "command"


def test_targets_over_http_run_out_of_calls_before_they_run_out_of_connections() -> None:
    assert Limits().in_all <= CONNECTIONS_MAX


@pytest.mark.parametrize(
    ("url", "target"), [("https://scott:t1ger@A.example:8443/x", "http:a.example:8443"), ("https://[::1", "http")]
)
def test_a_target_is_named_without_credentials_whatever_its_address_is(url: str, target: str) -> None:
    assert target_of(a_job(type=JobType.HTTP, config={"url": url})) == target
