"""The fence comes down by itself, in time, for good; and the heart keeps it up."""

import asyncio
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    FaultyTables,
    Operation,
    always,
    late,
    no_faults,
)
from worker.core.errors import ConfigError
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import SessionId
from worker.membership.fence import ENDED_BY_ANOTHER, Fence, SessionLost
from worker.membership.heartbeat import Heart, Pulse
from worker.membership.heartbeat_threads import ThreadBeater
from worker.store.repos.sessions import Session, Sessions
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables, Write

ME = SessionId("me")
GROUP = "g"


def after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def a_fence(clock: ManualClock | VirtualClock) -> Fence:
    return Fence(ME, clock, DEFAULT_TIMING, registered_at=clock.monotonic())


def test_a_fence_holds_for_its_time_and_then_comes_down_for_good() -> None:
    clock = ManualClock()
    fence = a_fence(clock)

    clock.advance(after(4.9))
    assert not fence.is_down()
    assert fence.remaining_s() == pytest.approx(0.1)

    clock.advance(after(0.1))
    assert fence.is_down()
    fence.confirm(sent_at=4.9)
    assert fence.is_down()
    with pytest.raises(SessionLost, match="no beat was confirmed for 5 s"):
        fence.check()


def test_a_confirmation_counts_from_when_the_beat_was_sent() -> None:
    clock = ManualClock()
    fence = a_fence(clock)
    clock.advance(after(4))

    fence.confirm(sent_at=1.0)

    assert fence.remaining_s() == pytest.approx(2.0)


def test_confirmations_out_of_order_do_not_shorten_the_time() -> None:
    clock = ManualClock()
    fence = a_fence(clock)
    clock.advance(after(4))

    fence.confirm(sent_at=3.0)
    fence.confirm(sent_at=1.0)

    assert fence.remaining_s() == pytest.approx(4.0)


def test_a_fence_that_was_taken_down_tells_why() -> None:
    fence = a_fence(ManualClock())

    fence.drop(ENDED_BY_ANOTHER)
    fence.drop("something later")

    assert fence.is_down()
    with pytest.raises(SessionLost, match=ENDED_BY_ANOTHER):
        fence.check()


# --- the heart --------------------------------------------------------------------------------------------------------


class Patient:
    """One session, its heart, and the way from it to the store."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.clock = VirtualClock()
        self.store = SqliteTables.in_memory(self.clock)
        self.far = FaultyTables(self.store)
        self.sessions = Sessions(self.store, GROUP)
        self.fence, self.pulse = a_fence(self.clock), Pulse(self.clock, DEFAULT_TIMING)
        self._tasks = tasks

    async def begin(self) -> "asyncio.Task[None]":
        await self.sessions.register(ME, "test")
        heart = Heart(GROUP, self.fence, self.pulse, self.clock, DEFAULT_TIMING)
        return self._tasks.create_task(heart.beat(self.far))

    async def live(self, seconds: float) -> None:
        """Let time pass while the loop ticks."""
        for _ in range(round(seconds)):
            self.pulse.tick()
            await asyncio.sleep(1)

    async def row(self) -> Session:
        [session] = await self.sessions.list()
        return session


@on_virtual_time
async def test_a_heart_beats_every_two_seconds_and_carries_what_the_loop_says() -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = Patient(tasks)
        beating = await patient.begin()
        patient.pulse.changes, patient.pulse.load = 3, 70

        await patient.live(21)

        session = await patient.row()
        assert (session.beat, session.changes, session.load) == (10, 3, 70)
        assert session.heard_at == patient.clock.now() - timedelta(seconds=1)
        assert not patient.fence.is_down()
        beating.cancel()


@pytest.mark.parametrize("lost", [DROP_BEFORE, DROP_AFTER, late(2.5)], ids=["request", "reply", "too late"])
def test_one_failed_beat_is_tried_again_in_time(lost: Fault) -> None:
    async def scenario() -> None:
        faults = iter([lost])

        def drop_next(_: Operation) -> Fault:
            return next(faults, NO_FAULT)

        async with asyncio.TaskGroup() as tasks:
            patient = Patient(tasks)
            patient.far.choose = drop_next
            beating = await patient.begin()

            await patient.live(30)

            assert not patient.fence.is_down()
            beating.cancel()

    run(scenario())


@on_virtual_time
async def test_a_heart_that_gets_no_answer_ends_with_the_fence() -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = Patient(tasks)
        patient.far.choose = always(DROP_AFTER)
        beating = await patient.begin()

        await patient.live(9)

        assert patient.fence.is_down()
        assert beating.done()


@on_virtual_time
async def test_a_heart_whose_session_was_ended_takes_the_fence_down_at_once() -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = Patient(tasks)
        await patient.begin()
        await patient.live(1)
        await patient.sessions.kill(await patient.row(), patient.clock.now())

        await patient.live(1.5)

        with pytest.raises(SessionLost, match=ENDED_BY_ANOTHER):
            patient.fence.check()


@on_virtual_time
async def test_a_heart_falls_silent_when_the_loop_is_stuck() -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = Patient(tasks)
        await patient.begin()
        await patient.live(10)
        ticked_at = patient.clock.monotonic() - 1

        await asyncio.sleep(60)

        assert (await patient.row()).beat <= (ticked_at + DEFAULT_TIMING.stall_s) / DEFAULT_TIMING.beat_s
        assert patient.fence.is_down()


# --- the thread -------------------------------------------------------------------------------------------------------


class OwnTables(FaultyTables):
    """A store that remembers in which thread it was opened, used and closed."""

    def __init__(self, tables: Tables, log: list[tuple[str, str]]) -> None:
        super().__init__(tables, no_faults)
        self._log = log

    async def start(self) -> None:
        self._log.append(("start", threading.current_thread().name))

    async def stop(self) -> None:
        self._log.append(("stop", threading.current_thread().name))

    async def ping(self) -> None:
        self._log.append(("ping", threading.current_thread().name))


def a_thread_beater(log: list[tuple[str, str]]) -> ThreadBeater:
    return ThreadBeater(lambda: OwnTables(SqliteTables.in_memory(ManualClock()), log))


async def test_a_thread_has_a_store_of_its_own_and_closes_it() -> None:
    log: list[tuple[str, str]] = []

    await a_thread_beater(log).run(lambda tables: tables.ping())

    assert log == [("start", "heartbeat"), ("ping", "heartbeat"), ("stop", "heartbeat")]


async def test_a_thread_ends_when_its_caller_is_cancelled() -> None:
    log: list[tuple[str, str]] = []
    outer, begun = asyncio.get_running_loop(), asyncio.Event()

    async def beat(tables: Tables) -> None:
        await tables.ping()
        outer.call_soon_threadsafe(begun.set)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(a_thread_beater(log).run(beat))
        await begun.wait()
        running.cancel()

    assert log[-1] == ("stop", "heartbeat")


async def test_what_goes_wrong_in_the_thread_is_told_to_the_caller() -> None:
    def beat(_: Tables) -> Coroutine[Any, Any, None]:
        async def fail() -> None:
            raise ZeroDivisionError

        return fail()

    with pytest.raises(ExceptionGroup) as raised:
        await a_thread_beater([]).run(beat)

    assert raised.group_contains(ZeroDivisionError)


@on_virtual_time
async def test_a_store_that_cannot_be_used_ends_the_session_before_anybody_else_knows() -> None:
    clock = VirtualClock()
    fence = a_fence(clock)
    heart = Heart(GROUP, fence, Pulse(clock, DEFAULT_TIMING), clock, DEFAULT_TIMING)

    class Replaced(FaultyTables):
        async def commit(self, *_: Write) -> None:
            raise ConfigError("the file is another one now; stop")

    with pytest.raises(ConfigError):
        await heart.beat(Replaced(SqliteTables.in_memory(clock)))

    assert fence.is_down()
    with pytest.raises(SessionLost, match="the file is another one now"):
        fence.check()
