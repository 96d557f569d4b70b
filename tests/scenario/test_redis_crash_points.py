"""The crash points of a run, on a real Redis server: a fault at any write or call does not change the outcome.

`test_crash_points` defines the runs, the faults and the points. Here the same happens on the commits, the scripts and
the change feed of the Redis store. CHAOS_ROUNDS tests every fault at every point; otherwise a part of them is tested.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import pytest

from tests.scenario.test_crash_points import (
    LIVES,
    Lived,
    assert_comes_to_the_same,
    live,
    points_of,
    undisturbed,
)
from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.remote_store import DROP_AFTER, DROP_BEFORE, NO_FAULT, Fault, late
from tests.support.redis_virtual import REFUSED, OneSequence
from tests.support.worlds.crash_points import PERILS, WRITE, Course, Peril, PerilousTables
from worker.core.errors import RetryLater
from worker.store.redis.connections import ANSWER_S
from worker.store.sqlite.conditions import holds
from worker.store.table import Tables, Write

# One of so many points is tested. Neither number divides the points of a run, so each fault meets several kinds.
EVERY: Final = 1 if int(os.environ.get("CHAOS_ROUNDS", "0")) else 41
# What happens to one request between the worker and the server; the store itself must recover from each.
REQUEST_FAULTS: Final[Mapping[str, Fault]] = {
    "refused by the server": REFUSED,
    "lost before the server": DROP_BEFORE,
    "applied, the answer lost": DROP_AFTER,
    "applied after it was sent again": late(ANSWER_S + 1.0),
    "answered slowly": Fault(request_delay_s=1.5, reply_delay_s=1.5),
}

pytestmark = [pytest.mark.xdist_group("redis"), pytest.mark.timeout(1800 if EVERY == 1 else 60)]


@cache
def undisturbed_on_redis(name: str) -> Lived:
    return run(live(LIVES[name], None, None, OneSequence))


class RequestFaults(PerilousTables):
    """The store as a worker sees it: at one commit, the first request to the server meets the fault."""

    def __init__(self, tables: Tables, course: Course, store: OneSequence) -> None:
        super().__init__(tables, course)
        self._store = store

    async def commit(self, *writes: Write) -> None:
        point = f"{WRITE} of {writes[0].key.sk} and {len(writes) - 1} more"
        fault = self._course.meet(point).request
        is_possible = fault is NO_FAULT or await self._is_possible(writes)
        self._store.writes.next_fault = fault
        try:
            await self._tables.commit(*writes)
        except RetryLater as trouble:
            if not is_possible:
                raise  # it would have been refused; without an answer nobody can tell why
            # A worker would reload and decide again, and hide that the store did not recognise its own commit.
            raise AssertionError(f"{point}: the store did not recover by itself") from trouble

    async def _is_possible(self, writes: Sequence[Write]) -> bool:
        conditions = [(write, write.condition) for write in writes]
        return all(
            [
                condition is None or holds(condition, await self._tables.get(write.table, write.key))
                for write, condition in conditions
            ]
        )


def with_request_fault(name: str, fault: Fault, at: int) -> Lived:
    stores: list[OneSequence] = []

    def make(clock: VirtualClock) -> OneSequence:
        stores.append(OneSequence(clock))
        return stores[0]

    return run(
        live(LIVES[name], Peril(fault), at, make, lambda tables, course: RequestFaults(tables, course, stores[0]))
    )


def chosen(kind: int, points: list[int]) -> Iterator[int]:
    """A part of the points: another one for each fault and each run."""
    return (at for number, at in enumerate(points) if (7 * kind + number) % EVERY == 0)


@pytest.mark.parametrize("name", LIVES)
def test_a_run_is_the_same_on_redis(name: str) -> None:
    assert undisturbed_on_redis(name) == undisturbed(name)


@pytest.mark.parametrize("name", LIVES)
def test_a_worker_that_fails_at_any_point_does_not_change_the_outcome(name: str) -> None:
    calm, first, count = undisturbed_on_redis(name), list(LIVES).index(name), 0
    for kind, peril in enumerate(PERILS):
        for at in chosen(first + kind, points_of(name, peril)):
            assert_comes_to_the_same(run(live(LIVES[name], PERILS[peril], at, OneSequence)), calm, at)
            count += 1

    print(f"{name}: {count} faults")
    assert count


@pytest.mark.parametrize("name", LIVES)
def test_a_request_that_fails_at_any_write_does_not_change_the_outcome(name: str) -> None:
    calm, first, count = undisturbed_on_redis(name), list(LIVES).index(name), 0
    writes = [at for at, point in enumerate(calm.points) if point.startswith(WRITE)]
    for kind, fault in enumerate(REQUEST_FAULTS.values()):
        for at in chosen(first + kind, writes):
            assert_comes_to_the_same(with_request_fault(name, fault, at), calm, at)
            count += 1

    print(f"{name}: {count} faults of {len(writes)} writes")
    assert count
