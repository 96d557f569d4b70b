"""A wall clock is trusted until the store's answers say otherwise."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.worker_group import WorkerGroup
from worker.core.time.skew import skew
from worker.membership.clock_guard import ClockGuard
from worker.membership.notices import ClockWrong

NOON = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("said_s", "sent_s", "received_s", "ahead_s"),
    [
        (0, 0, 0, 0),
        (0, 10, 10, 10),
        (10, 0, 0, -10),
        (5, 0, 10, 0),  # said at some moment on the way
        (0, 2, 30, 2),  # a slow answer: at least this much, whatever the way back took
        (30, 0, 10, -20),
    ],
)
def test_skew_is_the_least_that_explains_the_answer(
    said_s: float, sent_s: float, received_s: float, ahead_s: float
) -> None:
    found = skew(NOON + said_s * SECOND, sent=NOON + sent_s * SECOND, received=NOON + received_s * SECOND)

    assert found == ahead_s * SECOND


def test_a_time_cut_down_to_whole_seconds_is_no_skew() -> None:
    now = NOON + 0.99 * SECOND

    assert skew(NOON, sent=now, received=now, resolution=SECOND) == timedelta(0)


@pytest.mark.parametrize(("ahead_s", "is_trusted"), [(0, True), (6, True), (6.1, False), (-5, True), (-5.1, False)])
def test_a_clock_is_wrong_beyond_five_seconds(ahead_s: float, *, is_trusted: bool) -> None:
    guard, ours = ClockGuard(ManualClock()), NOON + ahead_s * SECOND

    guard.observe(NOON, sent=ours, received=ours)

    assert guard.is_trusted is is_trusted


def test_a_store_without_a_clock_leaves_ours_trusted() -> None:
    assert ClockGuard(ManualClock()).is_trusted


@on_virtual_time
async def test_a_worker_with_a_wrong_clock_holds_nothing_until_it_is_set_right() -> None:
    group = WorkerGroup()
    a, b = group.start("a"), group.start("b")
    await asyncio.sleep(100)
    first = a.member.id

    a.guard.observe(NOON, sent=NOON + 60 * SECOND, received=NOON + 60 * SECOND)
    await asyncio.sleep(5)

    assert b.shards() == group.shards
    assert first not in await group.sessions()
    assert a.notices[-1] == ClockWrong(59.0)

    a.guard.observe(NOON, sent=NOON, received=NOON)
    await asyncio.sleep(100)
    assert a.member.id != first
    assert len(a.shards()) == 3


@on_virtual_time
async def test_a_worker_that_waits_for_its_clock_can_be_stopped() -> None:
    group = WorkerGroup()
    a = group.start("a")
    await asyncio.sleep(10)
    a.guard.observe(NOON, sent=NOON + 60 * SECOND, received=NOON + 60 * SECOND)
    await asyncio.sleep(10)

    a.membership.stop()
    await asyncio.sleep(6)

    assert a.task is not None
    assert a.task.done()


@pytest.mark.parametrize("step_s", [-3600, -6, 6, 86400])
@on_virtual_time
async def test_a_clock_that_is_set_after_it_was_compared_is_wrong_at_once(step_s: float) -> None:
    clock = VirtualClock()
    guard = ClockGuard(clock)
    guard.observe(clock.now(), sent=clock.now(), received=clock.now())
    await asyncio.sleep(100)
    assert guard.is_trusted

    clock.step(step_s * SECOND)

    assert not guard.is_trusted
    assert guard.skew == step_s * SECOND
    clock.step(-step_s * SECOND)
    assert guard.is_trusted


@on_virtual_time
async def test_a_clock_that_is_set_during_a_call_is_not_taken_for_a_slow_answer() -> None:
    clock = VirtualClock()
    guard = ClockGuard(clock)
    guard.observe(clock.now(), sent=clock.now(), received=clock.now())
    sent = said = clock.now()

    clock.step(3600 * SECOND)
    guard.observe(said, sent=sent, received=clock.now())

    assert not guard.is_trusted


@on_virtual_time
async def test_a_slow_answer_is_not_taken_for_a_clock_that_was_set() -> None:
    clock = VirtualClock()
    guard = ClockGuard(clock)
    guard.observe(clock.now(), sent=clock.now(), received=clock.now())
    sent = said = clock.now()

    await asyncio.sleep(3600)
    guard.observe(said, sent=sent, received=clock.now())

    assert guard.is_trusted


@on_virtual_time
async def test_without_a_store_that_tells_the_time_a_clock_that_is_set_is_trusted() -> None:
    clock = VirtualClock()
    guard = ClockGuard(clock)

    clock.step(3600 * SECOND)

    assert guard.is_trusted


@on_virtual_time
async def test_a_worker_whose_clock_was_set_leaves_before_the_store_says_anything() -> None:
    group = WorkerGroup()
    a, b = group.start("a"), group.start("b")
    await asyncio.sleep(100)
    a.guard.observe(NOON, sent=NOON, received=NOON)

    a.clock.step(3600 * SECOND)
    await asyncio.sleep(5)

    assert b.shards() == group.shards
    assert a.notices[-1] == ClockWrong(3600.0)
