"""Rows that nobody looks after are found by whoever holds their bucket, and nothing is written for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from tests.contract.storevalues import a_run, a_watch
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.remote_store import DROP_BEFORE, Operation, always, no_faults
from tests.support.worlds.worker_group import Station, WorkerGroup
from worker.core.model.keys import ACTIVE_BUCKETS, RowKind, RunKey, SessionId
from worker.membership.lease_coordinator import PATIENCE_S
from worker.membership.orphan_finder import (
    EMPTY_FOR,
    LEASES,
    PASS_EVERY_S,
    STREAM,
    WARY_FOR,
    OrphanFinder,
    buckets_of,
)
from worker.membership.sessions import Member
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables

GONE = SessionId("gone")
FAR_AHEAD = NOON + timedelta(days=1)


@dataclass(slots=True)
class Adoptions:
    """What one group's finders handed over, and how many buckets they read."""

    looks: int = 0
    told: list[tuple[float, ActiveRow]] = field(default_factory=list[tuple[float, ActiveRow]])

    def keys(self, since: float = 0.0) -> Counter[RunKey]:
        return Counter(row.key for at, row in self.told if at >= since)

    def first_at(self, key: RunKey) -> float:
        return min(at for at, row in self.told if row.key == key)


class CountedRows(ActiveRows):
    def __init__(self, tables: Tables, adoptions: Adoptions) -> None:
        super().__init__(tables)
        self._adoptions = adoptions

    def in_bucket(self, number: int) -> AsyncIterator[ActiveRow]:
        self._adoptions.looks += 1
        return super().in_bucket(number)


def a_finder(group: WorkerGroup, name: str, adoptions: Adoptions) -> Station:
    """A worker that holds buckets."""

    def take_up(row: ActiveRow) -> None:
        adoptions.told.append((now(), row))

    async def work(member: Member) -> None:
        finder = OrphanFinder(CountedRows(station.tables, adoptions), member.peers, station.clock, take_up)
        member.keeper.offer(finder.offer())

    station = group.start(name, work=work)
    return station


async def owned_run(group: WorkerGroup, owner: SessionId | None, *, timeout_at: datetime = FAR_AHEAD) -> RunKey:
    run = replace(a_run(), owner=owner, timeout_at=timeout_at)
    await Runs(group.store).save(run)
    return run.key


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_leases_cover_every_bucket_once() -> None:
    covered = [number for lease in range(LEASES) for number in buckets_of(f"{lease:02d}")]

    assert sorted(covered) == list(range(ACTIVE_BUCKETS))


@on_virtual_time
async def test_rows_of_the_dead_are_found_when_their_bucket_is_taken_and_rows_of_the_living_are_left_alone() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    other = group.start("other")
    await asyncio.sleep(1)
    orphans = [await owned_run(group, owner) for owner in (GONE, None)]
    await owned_run(group, other.member.id)

    a_finder(group, "a", adoptions)
    await asyncio.sleep(2 * PATIENCE_S)

    assert adoptions.keys() == Counter(orphans)


@on_virtual_time
async def test_the_runs_of_a_crashed_worker_are_found_within_ten_seconds() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a_finder(group, "a", adoptions)
    a_finder(group, "b", adoptions)
    dying = group.start("dying")
    await asyncio.sleep(30)
    keys = [await owned_run(group, dying.member.id) for _ in range(20)]
    await asyncio.sleep(PASS_EVERY_S)
    assert adoptions.keys() == Counter()

    dying.host.crash()
    crashed_at = now()
    await asyncio.sleep(10)

    assert adoptions.keys(crashed_at).keys() == set(keys)


@on_virtual_time
async def test_the_runs_of_a_worker_that_leaves_are_found_as_soon_as_it_says_so() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a_finder(group, "a", adoptions)
    leaving = group.start("leaving", finishing_s=10)
    await asyncio.sleep(100)
    key = await owned_run(group, leaving.member.id)

    leaving.membership.stop()
    stopped_at = now()
    await asyncio.sleep(20)

    assert adoptions.first_at(key) - stopped_at <= 3


@on_virtual_time
async def test_a_run_that_a_worker_commits_while_it_leaves_is_found_as_soon_as_it_is_gone() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a_finder(group, "a", adoptions)
    leaving = group.start("leaving", finishing_s=10)
    await asyncio.sleep(100)

    leaving.membership.stop()
    stopped_at = now()
    await asyncio.sleep(6)  # the finder has looked for rows of the worker that leaves, and there were none
    key = await owned_run(group, leaving.member.id)
    await asyncio.sleep(20)

    assert adoptions.first_at(key) - stopped_at <= 10 + 3


@on_virtual_time
async def test_a_run_whose_living_owner_slept_through_its_time_is_found_by_the_next_pass() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a_finder(group, "a", adoptions)
    other = group.start("other")
    await asyncio.sleep(1)
    key = await owned_run(group, other.member.id, timeout_at=NOON + timedelta(seconds=100))

    await asyncio.sleep(300)

    assert 100 + 60 < adoptions.first_at(key) <= 100 + 60 + PASS_EVERY_S


@pytest.mark.parametrize(
    ("warned_s", "found_after_s"), [(None, 30 + 60), (30, 100 + 60)], ids=["before its warning", "before its breach"]
)
def test_a_deadline_that_nobody_judged_is_found(warned_s: float | None, found_after_s: float) -> None:
    async def scenario() -> None:
        group, adoptions = WorkerGroup(), Adoptions()
        a_finder(group, "a", adoptions)
        other = group.start("other")
        await asyncio.sleep(1)
        watch = replace(
            a_watch(a_run().key),
            owner=other.member.id,
            warning_at=NOON + timedelta(seconds=30),
            warned_at=None if warned_s is None else NOON + timedelta(seconds=warned_s),
            breach_at=NOON + timedelta(seconds=100),
        )
        await SlaWatches(group.store).save(watch)

        await asyncio.sleep(400)

        assert found_after_s < adoptions.first_at(watch.key) <= found_after_s + PASS_EVERY_S
        assert {row.kind for _, row in adoptions.told} == {RowKind.SLA}

    run(scenario())


@on_virtual_time
async def test_the_run_of_a_newcomer_is_not_taken_for_an_orphan() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    finder = a_finder(group, "a", adoptions)
    await asyncio.sleep(PASS_EVERY_S - 0.5)
    newcomer = group.start("newcomer")
    await asyncio.sleep(0.1)
    await owned_run(group, newcomer.member.id)
    assert not finder.member.peers.knows(newcomer.member.id), "the next pass must come before the next look"

    await asyncio.sleep(PASS_EVERY_S)

    assert adoptions.told == []


@on_virtual_time
async def test_finding_orphans_writes_nothing_and_goes_on_until_someone_takes_them_up() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    finder = a_finder(group, "a", adoptions)
    key = await owned_run(group, GONE)
    await asyncio.sleep(10)
    finder.tables.calls.clear()

    await asyncio.sleep(3 * PASS_EVERY_S)

    assert adoptions.keys(since=10) == {key: 3}
    beats = 3 * PASS_EVERY_S / group.timing.beat_s
    assert finder.tables.calls[Operation.COMMIT] == pytest.approx(beats, abs=1)


@on_virtual_time
async def test_a_pass_that_could_not_read_is_made_up_for_soon() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    finder = a_finder(group, "a", adoptions)
    await asyncio.sleep(EMPTY_FOR * PASS_EVERY_S - 1)
    key = await owned_run(group, GONE)

    finder.tables.choose = always(DROP_BEFORE)
    await asyncio.sleep(3)
    finder.tables.choose = no_faults
    await asyncio.sleep(15)

    assert adoptions.keys()[key] == 1


@on_virtual_time
async def test_empty_buckets_are_read_every_five_minutes_and_each_minute_after_a_session_has_ended() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    finder, other = a_finder(group, "a", adoptions), group.start("other")
    await asyncio.sleep((WARY_FOR + EMPTY_FOR) * PASS_EVERY_S)

    async def looks(seconds: float) -> int:
        before = adoptions.looks
        await asyncio.sleep(seconds)
        return adoptions.looks - before

    at_rest = await looks(EMPTY_FOR * PASS_EVERY_S)
    other.host.crash()
    disturbed = await looks(2 * PASS_EVERY_S)

    assert at_rest == ACTIVE_BUCKETS
    assert disturbed >= 2 * ACTIVE_BUCKETS
    assert finder.member.peers.departures == 1


@on_virtual_time
async def test_the_run_of_a_worker_that_came_and_went_between_two_passes_is_found_in_an_empty_bucket() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a_finder(group, "a", adoptions)
    await asyncio.sleep((WARY_FOR + EMPTY_FOR + 0.1) * PASS_EVERY_S)

    visitor = group.start("visitor")
    await asyncio.sleep(20)
    key = await owned_run(group, visitor.member.id)
    visitor.membership.stop()
    stopped_at = now()
    await asyncio.sleep(2 * PASS_EVERY_S)

    assert adoptions.first_at(key) - stopped_at <= 10


@on_virtual_time
async def test_buckets_are_shared_like_all_leases() -> None:
    group, adoptions = WorkerGroup(), Adoptions()
    a, b = a_finder(group, "a", adoptions), a_finder(group, "b", adoptions)
    await asyncio.sleep(400)

    assert len(a.shards(STREAM)) == len(b.shards(STREAM)) == LEASES / 2
