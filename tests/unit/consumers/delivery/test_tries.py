"""Trying again: what counts against a thing that fails, and what is the store's own fault."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from random import Random

from consumers.delivery.retry import RetryPolicy
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.remote_store import FaultyTables, RandomFaults
from tests.support.worlds.stream import FULL_WAITS
from worker.core.errors import Rejected, RetryLater
from worker.store.failure_counter import FailureCountingTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Put, TableName


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


def flaky_store(clock: VirtualClock, seed: int, share: float) -> FailureCountingTables:
    faults = RandomFaults(random=Random(seed), lost_requests=share)
    return FailureCountingTables(FaultyTables(SqliteTables.in_memory(clock), faults, patience_s=0.1))


def ten_calls(tables: FailureCountingTables) -> Callable[[], Awaitable[None]]:
    async def make() -> None:
        for number in range(10):
            await tables.commit(Put(TableName.CONTROL, {"PK": "a", "SK": str(number)}))

    return make


@on_virtual_time
async def test_work_that_needs_a_store_which_loses_every_fourth_call_is_never_given_up() -> None:
    clock = VirtualClock()
    for tables in [flaky_store(clock, seed, share=0.25) for seed in range(20)]:
        tries = RetryPolicy(clock, tables.ping, FULL_WAITS, store_failures=partial(getattr, tables, "failures"))

        assert await tries.limited(ten_calls(tables)) is None


@on_virtual_time
async def test_without_knowing_the_store_the_same_work_would_be_given_up() -> None:
    clock = VirtualClock()
    stores = [flaky_store(clock, seed, share=0.25) for seed in range(20)]
    tries = RetryPolicy(clock, SqliteTables.in_memory(clock).ping, FULL_WAITS)

    given_up = [await tries.limited(ten_calls(tables)) for tables in stores]

    assert given_up.count(None) < 15


@on_virtual_time
async def test_what_fails_for_its_own_reason_counts_even_though_the_store_was_unwell_before() -> None:
    clock = VirtualClock()
    tables = flaky_store(clock, seed=1, share=0.0)
    tables.failures = 7

    given_up = await RetryPolicy(clock, tables.ping, FULL_WAITS, store_failures=lambda: tables.failures).limited(
        failing(RetryLater("target is down"))
    )

    assert given_up is not None
    assert given_up.history == ("target is down",) * 5


@on_virtual_time
async def test_excuses_end_with_age() -> None:
    clock, failures = VirtualClock(), 0

    def ever_more() -> int:
        nonlocal failures
        failures += 1
        return failures

    tries = RetryPolicy(
        clock,
        SqliteTables.in_memory(clock).ping,
        FULL_WAITS,
        store_failures=ever_more,
        tried_max=timedelta(hours=1),
    )

    given_up = await tries.limited(failing(RetryLater("no answer")))

    assert given_up is not None
    assert clock.monotonic() >= 3600
    assert len(given_up.history) == 20, "the last ones are enough"


@on_virtual_time
async def test_what_can_never_succeed_is_tried_once() -> None:
    clock = VirtualClock()

    given_up = await RetryPolicy(clock, SqliteTables.in_memory(clock).ping).limited(
        failing(Rejected("not a known event"))
    )

    assert given_up is not None
    assert given_up.history == ("not a known event",)


@on_virtual_time
async def test_outages_one_after_another_are_held_against_nobody() -> None:
    """Each time the store is away for a while when the act has failed, and back when it is tried again."""
    clock = VirtualClock()
    tried, pings = 0, 0

    async def needs_store() -> None:
        nonlocal tried
        tried += 1
        if tried <= 20:
            raise RetryLater("no answer")

    async def ping() -> None:
        nonlocal pings
        pings += 1
        if pings % 3:
            raise RetryLater("away")

    assert await RetryPolicy(clock, ping, FULL_WAITS).limited(needs_store) is None
    assert tried == 21


@on_virtual_time
async def test_what_is_insisted_on_is_tried_ever_more_rarely_until_it_is_done() -> None:
    clock, tried_at = VirtualClock(), list[float]()

    async def late() -> str:
        tried_at.append(clock.monotonic())
        if clock.monotonic() < 600:
            raise RetryLater("not yet")
        return "done"

    tries = RetryPolicy(clock, SqliteTables.in_memory(clock).ping, FULL_WAITS)

    assert await tries.forever(late) == "done"
    assert len(tried_at) < 600 / FULL_WAITS.longest_s * 3
    waits = [later - earlier for earlier, later in pairwise(tried_at)]
    assert waits == sorted(waits)
    assert not tries.is_waiting
