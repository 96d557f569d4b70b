"""Whatever becomes of the worker in the middle of a pass, no run is lost and none begins twice."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import pytest

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.slices import ALL_SLICES
from scheduler.cron.starter import CronStarts
from scheduler.periodic import PeriodicTask
from scheduler.scheduler_lease import STREAM, SchedulerRole, Schedulers
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import Host, on_virtual_time, run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.crash_points import WRITE_PERILS, Course, Fate, Peril, PerilousTables
from tests.support.worlds.cron import a_timed_config, cron_key, periods_of, run_cron
from tests.support.worlds.engine import World, a_world
from tests.support.worlds.worker_group import WorkerGroup
from worker.app.components import build_engine
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import JobType, PipelineId, ScheduleId
from worker.core.run.state import Run
from worker.core.schedule.due import ScheduleKey
from worker.membership.peers import MemberStanding
from worker.membership.sessions import Member
from worker.store.repos.runs import Runs
from worker.store.repos.schedule_marks import ScheduleMarks

TODAY: Final = "2026-03-03"
NAMES: Final = ("p1", "p2")
PERIODS: Final = [f"{TODAY}T1205", f"{TODAY}T1210"]
TAKES_OVER_AFTER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Lived:
    points: Sequence[str]
    periods: Sequence[Sequence[str]]
    creations: Sequence[str]  # whose word each run began by
    considered: Sequence[timedelta]


async def work(world: World, name: str) -> None:
    """A worker that holds the duty until its host is no more."""
    async with world.worker(name, reads_feed=False) as worker:

        def make(jobs: JobScheduler) -> CronStarts:
            return CronStarts(world.seen_by_workers, worker.engine, worker.parts.configs, world.clock, jobs=jobs)

        await run_cron(make, world.clock, worker.standing.may_act)


async def live(peril: Peril | None, at: int | None) -> Lived:
    """Ten minutes with two fires; at one write about the first of them the peril strikes, and another takes over."""
    course = Course(peril, at)
    world = await a_world(lambda tables: PerilousTables(tables, course), start=NOON + timedelta(minutes=4, seconds=50))
    for name in NAMES:
        await world.deploy(a_timed_config("*/5 * * * *", pipeline=name, more=", misfire: all"))
    first = course.victim = Host("first")
    first.start(work(world, "w1"))
    await world.wait(seconds=15 + TAKES_OVER_AFTER_S)
    points = list(course.points)
    if course.struck.is_set() and course.peril and course.peril.fate is not Fate.LIVES:
        world.group[SessionId("w1")] = False
        Host("second").start(work(world, "w2"))
        await world.wait(seconds=course.peril.frozen_s)
        if course.peril.fate is Fate.FREEZES:
            first.thaw()  # and does not know that another has its duty
    await world.wait(minutes=6)
    return await lived(world, points)


async def lived(world: World, points: Sequence[str]) -> Lived:
    marks = await ScheduleMarks(world.tables).load(
        [ScheduleKey(PipelineId(name), ScheduleId("cron")) for name in NAMES]
    )
    return Lived(
        points=points,
        periods=[await periods_of(world.tables, name) for name in NAMES],
        creations=[await run_id(world, name, period) for name in NAMES for period in PERIODS],
        considered=[mark.considered - NOON for mark in marks.values()],
    )


async def run_id(world: World, name: str, period: str) -> str:
    found = await Runs(world.tables).load(cron_key(period, name))
    assert isinstance(found, Run)
    return found.run_id


@cache
def undisturbed() -> Lived:
    return run(live(None, None))


def test_a_pass_writes_each_run_before_its_mark() -> None:
    points = undisturbed().points

    assert len([point for point in points if "TRIGGER#cron#2026-03-03T1205" in point]) >= 2
    assert len([point for point in points if "MARK#SCHEDULE#cron" in point]) == 2
    assert all("MARK#SCHEDULE#cron" not in point for point in points[:2])


@pytest.mark.parametrize("peril", WRITE_PERILS)
def test_a_pass_that_is_cut_short_anywhere_loses_and_doubles_nothing(peril: str) -> None:
    for at, point in enumerate(undisturbed().points):
        told = run(live(WRITE_PERILS[peril], at))

        assert told.periods == [PERIODS, PERIODS], point
        assert len(set(told.creations)) == len(told.creations), point
        assert told.considered == [timedelta(minutes=10), timedelta(minutes=10)], point


@on_virtual_time
async def test_two_workers_that_both_believe_to_hold_the_duty_begin_each_run_once() -> None:
    world = await a_world()
    for name in NAMES:
        await world.deploy(a_timed_config("*/5 * * * *", pipeline=name))
    for name in ("w1", "w2", "w3"):
        Host(name).start(work(world, name))
    await world.wait(minutes=31)

    for name in NAMES:
        assert await periods_of(world.tables, name) == [f"{TODAY}T12{minute:02d}" for minute in range(5, 35, 5)]


# --- the duty ---------------------------------------------------------------------------------------------------------


class CronGroup(WorkerGroup):
    """Workers of a real group, each ready to hold the scheduler's duty."""

    def __init__(self) -> None:
        super().__init__(shards=0)
        self.hosts: dict[str, Host] = {}

    def join(self, name: str) -> None:
        self.hosts[name] = self.start(name, work=self._work).host

    async def _work(self, member: Member) -> None:
        async with asyncio.TaskGroup() as tasks:
            standing = MemberStanding(member.fence, member.peers, member.guard)
            runners = {JobType.COMMAND: FakeRunner()}
            parts = build_engine(self.store, runners, standing, self.clock, tasks, began_at=self.clock.now())

            def tasks_of(schedulers: Schedulers, scope: JobScope) -> Sequence[PeriodicTask]:
                cron = CronStarts(self.store, parts.engine, parts.configs, self.clock, jobs=schedulers.wall)
                cron.hold(ALL_SLICES, scope)
                return cron.tasks()

            member.keeper.offer(SchedulerRole(tasks_of, self.clock).offer())
            timers = tasks.create_task(parts.engine.run(), name="timers")
            await member.stopping.wait()
            timers.cancel()

    async def holder(self) -> str:
        """The name of the worker that has the duty, by its row."""
        owner = (await self.leases(STREAM))["0"].owner
        assert owner is not None
        return owner.partition(".")[0]


async def created_at(group: CronGroup, period: str) -> datetime:
    found = await Runs(group.store).load(cron_key(period))
    assert isinstance(found, Run)
    return found.created_at


@on_virtual_time
async def test_another_worker_has_the_duty_within_ten_seconds_of_a_crash_and_what_came_meanwhile_begins() -> None:
    group = CronGroup()
    await group.store.start()
    loaded = load_text(a_timed_config("* * * * *", more=", misfire: skip")).pipeline
    assert loaded is not None
    await deploy(group.store, loaded, group.clock)
    for name in ("a", "b", "c"):
        group.join(name)
    await group.clock.sleep(90)
    first = await group.holder()

    await group.clock.sleep(29)  # a second before 12:02
    group.hosts[first].crash()
    await group.clock.sleep(10)

    assert await group.holder() != first
    await group.clock.sleep(51)
    assert await periods_of(group.store) == [f"{TODAY}T1201", f"{TODAY}T1202"]
    assert await created_at(group, f"{TODAY}T1201") < NOON + timedelta(minutes=1, seconds=2)
    assert await created_at(group, f"{TODAY}T1202") < NOON + timedelta(minutes=2, seconds=11)
    assert group.failures() == []


@on_virtual_time
async def test_a_frozen_holder_that_goes_on_notices_that_the_duty_is_anothers() -> None:
    group = CronGroup()
    await group.store.start()
    loaded = load_text(a_timed_config("* * * * *")).pipeline
    assert loaded is not None
    await deploy(group.store, loaded, group.clock)
    for name in ("a", "b"):
        group.join(name)
    await group.clock.sleep(90)
    first = await group.holder()

    group.hosts[first].freeze()
    await group.clock.sleep(60)
    group.hosts[first].thaw()
    await group.clock.sleep(100)

    assert await group.holder() != first
    assert await periods_of(group.store) == [f"{TODAY}T12{minute:02d}" for minute in (1, 2, 3, 4)]
    assert group.failures() == []
