"""A planned change of hands: for how long nobody works on a lease that one worker gives to another."""

import asyncio
import itertools
import os
from collections import defaultdict
from itertools import pairwise
from typing import Final

import pytest

from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.remote_store import Operation
from tests.support.worlds.worker_group import ACT_EVERY_S, GROUP, STREAM, WorkerGroup, overlaps
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING, Timing
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Sessions

PROMISED_S = 2.0  # beyond what is in hand
SETTLED_S = 400.0  # long enough for every move that an even share needs

each_timing = pytest.mark.parametrize("timing", [DEFAULT_TIMING, FAST_TIMING], ids=["default", "fast"])
MOMENTS_S: Final = [0.0, 0.7, 1.1, 1.9] if os.environ.get("CHAOS_ROUNDS") else [0.0, 1.1]
each_moment = pytest.mark.parametrize("offset_s", MOMENTS_S)


def gaps(group: WorkerGroup) -> list[float]:
    """How long a lease was at rest each time it changed hands."""
    acts = defaultdict[str, list[tuple[float, str]]](list)
    for act in sorted(group.acts, key=lambda act: act.at):
        acts[act.shard].append((act.at, act.session))
    pairs = [pair for shard in acts.values() for pair in pairwise(shard)]
    return [later - earlier for (earlier, one), (later, other) in pairs if one != other]


@each_timing
@each_moment
@pytest.mark.parametrize("finishing_s", [0.0, 3.0])
def test_a_lease_that_is_asked_for_is_at_rest_for_two_seconds_at_most(
    timing: Timing, offset_s: float, finishing_s: float
) -> None:
    async def scenario() -> None:
        group = WorkerGroup(shards=12, timing=timing)
        group.start("a", finishing_s=finishing_s)
        await asyncio.sleep(10 + offset_s)

        group.start("b", finishing_s=finishing_s)
        await asyncio.sleep(SETTLED_S)

        moved = gaps(group)
        assert len(moved) == 6
        assert max(moved) <= finishing_s + PROMISED_S
        assert overlaps(group.acts) == []

    run(scenario())


@each_timing
@each_moment
def test_what_a_leaving_worker_lets_go_is_at_rest_for_two_seconds_at_most(timing: Timing, offset_s: float) -> None:
    async def scenario() -> None:
        group = WorkerGroup(shards=12, timing=timing)
        leaver = group.start("a")
        group.start("b")
        await asyncio.sleep(SETTLED_S + offset_s)
        group.acts.clear()
        await asyncio.sleep(1)

        leaver.membership.stop()
        await asyncio.sleep(20)

        left = gaps(group)
        assert len(left) == 6
        assert max(left) <= PROMISED_S + ACT_EVERY_S
        assert overlaps(group.acts) == []

    run(scenario())


async def live_on(sessions: Sessions, session: SessionId) -> None:
    """Be there, and do nothing about any lease."""
    for number in itertools.count(1):
        await sessions.beat(session, number)
        await asyncio.sleep(1)


@on_virtual_time
async def test_whoever_asks_in_vain_looks_more_often_for_a_while_only() -> None:
    group, mute = WorkerGroup(shards=2), SessionId("mute")
    sessions, leases = Sessions(group.store, GROUP), Leases(group.store, GROUP)
    await sessions.register(mute, "test")
    for shard in group.shards:
        await leases.create(Lease(stream=STREAM, shard=shard))
        await leases.take_free(Lease(stream=STREAM, shard=shard), mute)
    living = asyncio.create_task(live_on(sessions, mute))
    asker = group.start("asker")
    await asyncio.sleep(120)
    asked = [lease.wanted_by for lease in (await group.leases()).values()]
    assert asked.count(asker.member.id) == 1
    asker.tables.calls.clear()

    await asyncio.sleep(600)

    assert asker.tables.calls[Operation.QUERY] == pytest.approx(600 / 2 + 600 / 30, abs=5)
    assert asker.shards() == set()
    living.cancel()


@on_virtual_time
async def test_leases_move_a_tenth_at_once_and_every_half_minute() -> None:
    group = WorkerGroup(shards=40)
    group.start("a")
    await asyncio.sleep(10)
    newcomer = group.start("b")
    moved: list[int] = []

    for _ in range(6):
        await asyncio.sleep(30)
        moved.append(len(newcomer.shards()))

    assert all(later - earlier <= 4 for earlier, later in pairwise([0, *moved]))
    assert moved[-1] == 20
