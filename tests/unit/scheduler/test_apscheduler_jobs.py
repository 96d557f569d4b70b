"""APScheduler on the injected clock: when jobs start, when they do not, and what of the library that needs."""

# The library has no types, and a test reads its private names.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportPrivateUsage=false
# pyright: reportUnknownVariableType=false

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import pytest
from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from scheduler.apscheduler_jobs import (
    REFUSED_RETRY,
    WAIT_MAX_S,
    JobEnd,
    JobOverrun,
    JobScheduler,
    JobScope,
    SteadyTime,
    Work,
)
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from worker.core.errors import RetryLater
from worker.runtime.clock import SystemClock

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY_S: Final = 86_400
# The full numbers run with `CHAOS_ROUNDS`: they take half a minute.
IS_FULL: Final = "CHAOS_ROUNDS" in os.environ
SCHEDULES: Final = 10_000 if IS_FULL else 300
CHECKS: Final = 16 if IS_FULL else 3


def hourly(since: datetime) -> datetime:
    return since.replace(minute=0, second=0, microsecond=0) + HOUR


async def nothing(_: datetime) -> None:
    """Do nothing."""


class Diary:
    """What jobs did, in order, with the time of the clock by which they are due."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now, self.entries = now, list[tuple[str, datetime]]()

    def work(self, name: str, clock: VirtualClock | None = None, takes_s: float = 0) -> Work:
        async def do(_: datetime) -> None:
            self.entries.append((name, self.now()))
            if clock is not None:
                await clock.sleep(takes_s)

        return do

    def times(self, name: str) -> list[datetime]:
        return [at for each, at in self.entries if each == name]


# --- what starts, and what does not -----------------------------------------------------------------------------------


@on_virtual_time
async def test_no_job_starts_without_the_right_to_act_and_none_is_lost_when_the_right_returns() -> None:
    clock, may_act = VirtualClock(), [True]
    jobs, diary = JobScheduler(clock, clock.now), Diary(clock.now)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: may_act[0])
        jobs.at("hourly", hourly, diary.work("hourly"), scope, NOON + HOUR)
        may_act[0] = False
        await clock.sleep(3600 + 600)
        assert diary.entries == []

        may_act[0] = True
        await clock.sleep(REFUSED_RETRY.total_seconds() + 1)
        assert len(diary.entries) == 1
        await clock.sleep(3600)
        jobs.stop()

    assert diary.times("hourly")[1:] == [NOON + 2 * HOUR]


@on_virtual_time
async def test_jobs_that_wait_for_their_turn_do_not_start_once_the_lease_is_lost() -> None:
    clock, may_act = VirtualClock(), [True]
    jobs, diary = JobScheduler(clock, clock.now, at_once_max=2), Diary(clock.now)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: may_act[0])
        for number in range(10):
            jobs.at(f"job {number}", hourly, diary.work(f"job {number}", clock, takes_s=10), scope, NOON)
        await clock.sleep(5)
        assert len(diary.entries) == 2

        may_act[0] = False
        await clock.sleep(60)
        assert len(diary.entries) == 2
        scope.close()
        may_act[0] = True
        await clock.sleep(60)
        jobs.stop()

    assert len(diary.entries) == 2


@on_virtual_time
async def test_a_cancelled_group_ends_its_jobs_and_no_cancellation_is_swallowed() -> None:
    clock, seen = VirtualClock(), list[str]()
    jobs = JobScheduler(clock, SteadyTime(clock))

    async def endless(_: datetime) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            scope = JobScope(group, lambda: True)
            jobs.every("endless", MINUTE, endless, scope, after=timedelta(0))
            jobs.every("other", SECOND, nothing, scope, after=timedelta(0))
            try:
                await asyncio.Event().wait()
            finally:
                scope.close()

    holding = asyncio.ensure_future(hold())
    await clock.sleep(10)
    holding.cancel()
    await asyncio.wait([holding])

    assert holding.cancelled()
    assert seen == ["cancelled"]
    jobs.stop()


@on_virtual_time
async def test_a_mistake_in_a_job_ends_its_group_and_not_the_jobs_of_others() -> None:
    clock = VirtualClock()
    jobs, diary = JobScheduler(clock, clock.now), Diary(clock.now)

    async def mistaken(_: datetime) -> None:
        raise KeyError("a mistake")

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            scope = JobScope(group, lambda: True)
            for number in range(3):
                jobs.at(f"mistaken {number}", hourly, mistaken, scope, NOON + HOUR)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as others:
        jobs.at("sound", hourly, diary.work("sound"), JobScope(others, lambda: True), NOON + HOUR)
        failed = await asyncio.wait([asyncio.ensure_future(hold())])
        await clock.sleep(2 * 3600 + 1)
        jobs.stop()

    [holding] = failed[0]
    assert isinstance(holding.exception(), ExceptionGroup)
    assert diary.times("sound") == [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]


@on_virtual_time
async def test_a_job_that_is_due_while_it_runs_runs_again_right_after_that() -> None:
    clock = VirtualClock()
    diary, told = Diary(clock.now), list[JobEnd | JobOverrun]()
    jobs = JobScheduler(clock, clock.now, on_job=told.append)
    async with asyncio.TaskGroup() as group:
        jobs.at("slow", hourly, diary.work("slow", clock, takes_s=4000), JobScope(group, lambda: True), NOON + HOUR)
        await clock.sleep(3 * 3600 - 1)
        jobs.stop()

    assert diary.times("slow") == [NOON + HOUR, NOON + HOUR + timedelta(seconds=4000)]
    assert [each for each in told if isinstance(each, JobOverrun)] == [JobOverrun("slow")]


@on_virtual_time
async def test_what_a_job_met_is_told_with_its_lateness_and_its_duration_by_our_clock() -> None:
    clock, told = VirtualClock(), list[JobEnd | JobOverrun]()
    jobs = JobScheduler(clock, clock.now, on_job=told.append, at_once_max=1)

    async def fails(_: datetime) -> None:
        await clock.sleep(3)
        raise RetryLater("the store does not answer")

    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: True)
        jobs.at("a", hourly, fails, scope, NOON + HOUR)
        jobs.at("b", hourly, nothing, scope, NOON + HOUR)
        await clock.sleep(3700)
        jobs.stop()

    [first, second] = told
    assert isinstance(first, JobEnd)
    assert isinstance(second, JobEnd)
    assert (first.name, first.late_s, first.took_s) == ("a", 0, 3)
    assert isinstance(first.problem, RetryLater)
    assert (second.name, second.late_s, second.took_s, second.problem) == ("b", 3, 0, None)


@on_virtual_time
async def test_a_removed_job_leaves_nothing_behind_and_its_name_may_be_used_again() -> None:
    clock = VirtualClock()
    jobs, diary = JobScheduler(clock, clock.now), Diary(clock.now)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: True)
        jobs.at("a", hourly, diary.work("first"), scope, NOON + HOUR)
        jobs.remove("a")
        jobs.remove("a")
        assert len(jobs) == 0
        jobs.at("a", hourly, diary.work("second"), scope, NOON + HOUR)
        jobs.move("a", NOON + MINUTE)
        jobs.move("unknown", NOON)
        await clock.sleep(120)
        jobs.stop()

    assert diary.entries == [("second", NOON + MINUTE)]


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [timedelta(hours=-2), timedelta(hours=2), timedelta(days=-30), timedelta(days=30)])
def test_what_is_repeated_by_elapsed_time_goes_on_whatever_the_wall_clock_is_set_to(step: timedelta) -> None:
    @on_virtual_time
    async def scenario() -> None:
        clock = VirtualClock()
        elapsed = SteadyTime(clock)
        jobs, diary = JobScheduler(clock, elapsed), Diary(elapsed)
        async with asyncio.TaskGroup() as group:
            jobs.every("check", MINUTE, diary.work("check"), JobScope(group, lambda: True), after=timedelta(0))
            await clock.sleep(150)
            clock.step(step)
            await clock.sleep(149)
            jobs.stop()

        assert diary.times("check") == [NOON + number * MINUTE for number in range(5)]

    scenario()


@on_virtual_time
async def test_a_wall_clock_set_ahead_is_noticed_within_seconds() -> None:
    clock = VirtualClock()
    jobs, diary = JobScheduler(clock, clock.now), Diary(clock.now)
    async with asyncio.TaskGroup() as group:
        jobs.at("hourly", hourly, diary.work("hourly"), JobScope(group, lambda: True), NOON + HOUR)
        await clock.sleep(600)
        clock.step(timedelta(hours=5))
        await clock.sleep(WAIT_MAX_S + 1)
        assert len(diary.entries) == 1  # several missed times are one
        await clock.sleep(3600)
        jobs.stop()

    assert diary.times("hourly")[1:] == [NOON + 6 * HOUR]


async def test_jobs_run_on_the_machines_own_clock_too() -> None:
    clock, turns = SystemClock(), list[datetime]()
    jobs, third = JobScheduler(clock, SteadyTime(clock)), asyncio.Event()

    async def work(_: datetime) -> None:
        turns.append(clock.now())
        if len(turns) == 3:
            third.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        jobs.every("often", timedelta(milliseconds=20), work, JobScope(group, lambda: True), after=timedelta(0))
        await third.wait()
        jobs.stop()

    assert turns == sorted(turns)


# --- a day ------------------------------------------------------------------------------------------------------------


async def a_day(schedules: int) -> tuple[list[tuple[str, datetime]], int]:
    """A day of the watchdog's checks and of many schedules, with the clock set back and ahead, and a slow check.

    Says what ran, in order, and how many overruns were told.
    """
    clock, told = VirtualClock(), Counter[str]()
    began = clock.now()
    elapsed = SteadyTime(clock)
    checks = JobScheduler(clock, elapsed, on_job=lambda job: told.update([type(job).__name__]))
    cron = JobScheduler(clock, clock.now)
    diary = Diary(elapsed)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, lambda: True)
        for number in range(CHECKS):
            after = timedelta(seconds=number / 2)
            checks.every(f"check {number:02}", MINUTE, diary.work(f"check {number:02}"), scope, after=after)
        checks.every("slow", MINUTE, diary.work("slow", clock, takes_s=90), scope, after=timedelta(0))
        for number in range(schedules):
            begin = NOON + HOUR + timedelta(seconds=number % 3600)
            daily = partial(_daily, begin)
            cron.at(f"schedule {number:05}", daily, diary.work(f"schedule {number:05}"), scope, begin)
        assert len(cron) == schedules
        await clock.sleep(DAY_S / 3)
        clock.step(timedelta(hours=-2))
        await clock.sleep(DAY_S / 3)
        clock.step(timedelta(hours=2))
        await clock.sleep(DAY_S / 3 - 1)
        checks.stop()
        cron.stop()
        assert began == NOON
    return diary.entries, told["JobOverrun"]


def _daily(begin: datetime, since: datetime) -> datetime:
    return begin + timedelta(days=1) * max(0, (since - begin) // timedelta(days=1) + 1)


def test_a_day_of_checks_and_schedules_is_the_same_twice_and_a_slow_check_delays_no_other() -> None:
    first, again = run(a_day(SCHEDULES)), run(a_day(SCHEDULES))

    assert first == again
    entries, overruns = first
    turns = Counter(name for name, _ in entries)
    assert {turns[f"check {number:02}"] for number in range(CHECKS)} == {DAY_S // 60}
    check = [at for name, at in entries if name == "check 01"]
    assert check == [NOON + timedelta(seconds=0.5) + number * MINUTE for number in range(DAY_S // 60)]
    assert turns["slow"] == DAY_S // 120
    assert overruns == DAY_S // 120
    assert all(turns[f"schedule {number:05}"] == 1 for number in range(SCHEDULES))


# --- the library ------------------------------------------------------------------------------------------------------


def test_the_private_names_of_the_library_that_are_used_exist() -> None:
    """An upgrade that moves one of them fails here, and not at night."""
    scheduler = AsyncIOScheduler()
    assert list(inspect.signature(scheduler._start_timer).parameters) == ["wait_seconds"]
    assert list(inspect.signature(scheduler._process_jobs).parameters) == []
    assert list(inspect.signature(scheduler._lookup_jobstore).parameters) == ["alias"]
    assert list(inspect.signature(scheduler._dispatch_event).parameters) == ["event"]
    source = inspect.getsource(type(scheduler)._process_jobs)
    assert "datetime.now(self.timezone)" in source  # our zone answers with our time
    assert "get_due_jobs(now)" in source
    assert isinstance(MemoryJobStore()._jobs, list)
    assert list(inspect.signature(BaseExecutor._do_submit_job).parameters) == ["self", "job", "run_times"]
    assert list(inspect.signature(BaseExecutor._run_job_success).parameters) == ["self", "job_id", "events"]
    assert "self._instances[job.id] >= job.max_instances" in inspect.getsource(BaseExecutor.submit_job)
