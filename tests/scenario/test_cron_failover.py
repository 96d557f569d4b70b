"""Whatever becomes of the worker in the middle of a pass, no run is lost and none begins twice."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Final

import pytest

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.cron_lease import STREAM, CronRole, MakeCron, shard_of
from scheduler.cron.slices import ALL_SLICES, SLICES, slice_of
from scheduler.cron.starter import CronStarts
from scheduler.periodic import PeriodicTask
from scheduler.scheduler_lease import SchedulerRole
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import Host, on_virtual_time, run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.crash_points import WRITE_PERILS, Course, Fate, Peril, PerilousTables
from tests.support.worlds.cron import a_timed_config, cron_key, periods_of, run_cron
from tests.support.worlds.engine import World, a_world
from tests.support.worlds.worker_group import Station, WorkerGroup
from worker.app.components import build_engine
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import JobType, PipelineId, ScheduleId
from worker.core.run.state import Run
from worker.core.schedule.due import ScheduleKey
from worker.engine.engine import Engine
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


# --- the leases -------------------------------------------------------------------------------------------------------


class CronGroup(WorkerGroup):
    """Workers of a real group, each ready to hold slices of cron. Old ones have all of it by the scheduler's lease."""

    def __init__(self) -> None:
        super().__init__(shards=0)
        self.stations: dict[str, Station] = {}
        self.engines: dict[str, Engine] = {}
        self.carries: dict[str, int] = {}  # runs that a worker says to hold, if not those that it does

    def join(self, name: str, *, is_old: bool = False) -> None:
        self.stations[name] = self.start(name, work=partial(self._work, name, is_old))

    async def _work(self, name: str, is_old: bool, member: Member) -> None:
        async with asyncio.TaskGroup() as tasks:
            standing = MemberStanding(member.fence, member.peers, member.guard)
            runners = {JobType.COMMAND: FakeRunner()}
            parts = build_engine(self.store, runners, standing, self.clock, tasks, began_at=self.clock.now())
            self.engines[name] = parts.engine
            member.pulse.measure = lambda: self.carries.get(name, len(parts.engine))

            def make(jobs: JobScheduler) -> CronStarts:
                return CronStarts(self.store, parts.engine, parts.configs, self.clock, jobs=jobs)

            services = [tasks.create_task(parts.engine.run(), name="timers")]
            if is_old:
                member.keeper.offer(SchedulerRole(partial(self._all_of_cron, make), self.clock).offer())
            else:
                role = CronRole(make, self.clock)
                services.append(tasks.create_task(role.run(), name="cron"))
                member.keeper.offer(role.offer())
                member.keeper.offer(SchedulerRole(lambda _: [], self.clock).offer())
            await member.stopping.wait()
            for service in services:
                service.cancel()

    def _all_of_cron(self, make: MakeCron, scope: JobScope) -> Sequence[PeriodicTask]:
        cron = make(JobScheduler(self.clock, self.clock.now))
        cron.hold(ALL_SLICES, scope)
        return cron.tasks()

    async def deploy(self, *configs: str) -> None:
        for config in configs:
            loaded = load_text(config).pipeline
            assert loaded is not None
            await deploy(self.store, loaded, self.clock)

    async def slices_held(self) -> Counter[str]:
        leases = (await self.leases(STREAM)).values()
        return Counter(lease.owner.partition(".")[0] for lease in leases if lease.owner is not None)

    async def holder(self, pipeline: str = "orders") -> str:
        """The name of the worker that starts a pipeline's runs, by the row of its slice."""
        owner = (await self.leases(STREAM))[shard_of(slice_of(PipelineId(pipeline)))].owner
        assert owner is not None
        return owner.partition(".")[0]


async def created_at(group: CronGroup, period: str) -> datetime:
    found = await Runs(group.store).load(cron_key(period))
    assert isinstance(found, Run)
    return found.created_at


def minutes(*numbers: int) -> list[str]:
    return [f"{TODAY}T12{number:02d}" for number in numbers]


@on_virtual_time
async def test_another_worker_has_the_slice_within_ten_seconds_of_a_crash_and_what_came_meanwhile_begins() -> None:
    group = CronGroup()
    await group.store.start()
    await group.deploy(a_timed_config("* * * * *", more=", misfire: skip"))
    for name in ("a", "b", "c"):
        group.join(name)
    await group.clock.sleep(90)
    first = await group.holder()

    await group.clock.sleep(29)  # a second before 12:02
    group.stations[first].host.crash()
    await group.clock.sleep(10)

    assert await group.holder() != first
    await group.clock.sleep(51)
    assert await periods_of(group.store) == minutes(1, 2)
    assert await created_at(group, f"{TODAY}T1201") < NOON + timedelta(minutes=1, seconds=2)
    assert await created_at(group, f"{TODAY}T1202") < NOON + timedelta(minutes=2, seconds=11)
    assert group.failures() == []


@on_virtual_time
async def test_a_frozen_holder_that_goes_on_notices_that_the_slice_is_anothers() -> None:
    group = CronGroup()
    await group.store.start()
    await group.deploy(a_timed_config("* * * * *"))
    for name in ("a", "b"):
        group.join(name)
    await group.clock.sleep(90)
    first = await group.holder()

    group.stations[first].host.freeze()
    await group.clock.sleep(60)
    group.stations[first].host.thaw()
    await group.clock.sleep(1)
    after_thaw = await group.holder()
    await group.clock.sleep(99)  # its slices move back to it, a few at a time

    assert after_thaw != first
    assert await periods_of(group.store) == minutes(1, 2, 3, 4)
    assert group.failures() == []


@on_virtual_time
async def test_workers_share_the_slices_and_so_the_runs() -> None:
    group = CronGroup()
    await group.store.start()
    names = [f"p{number:03d}" for number in range(64)]
    await group.deploy(*(a_timed_config("*/5 * * * *", pipeline=name) for name in names))
    for name in ("a", "b"):
        group.join(name)
    await group.clock.sleep(310)

    assert await group.slices_held() == {"a": SLICES // 2, "b": SLICES // 2}
    assert all([await periods_of(group.store, name) == minutes(5) for name in names])
    assert len(group.engines["a"]) + len(group.engines["b"]) == len(names)
    expected = Counter([await group.holder(name) for name in names])
    assert {name: len(engine) for name, engine in group.engines.items()} == expected
    assert group.failures() == []


@on_virtual_time
async def test_a_worker_that_holds_many_runs_gets_fewer_slices_until_the_others_hold_as_many() -> None:
    group = CronGroup()
    await group.store.start()
    group.carries["a"] = 2000
    for name in ("a", "b"):
        group.join(name)
    await group.clock.sleep(240)
    assert await group.slices_held() == {"a": 6, "b": 10}

    group.carries["b"] = 1990
    await group.clock.sleep(240)

    assert await group.slices_held() == {"a": 8, "b": 8}
    assert group.failures() == []


@on_virtual_time
async def test_during_an_upgrade_old_and_new_workers_start_each_run_once_and_leave_no_schedule_alone() -> None:
    group = CronGroup()
    await group.store.start()
    names = [f"p{number:03d}" for number in range(20)]
    await group.deploy(*(a_timed_config("* * * * *", pipeline=name) for name in names))
    group.join("old", is_old=True)
    await group.clock.sleep(90)  # the old one alone
    group.join("new")
    await group.clock.sleep(120)  # both: each run is wanted twice
    group.stations["old"].membership.stop()
    await group.clock.sleep(120)  # the new one alone
    group.join("old again", is_old=True)
    await group.clock.sleep(60)
    group.stations["new"].membership.stop()  # and the upgrade is taken back
    await group.clock.sleep(120)

    for name in names:
        assert await periods_of(group.store, name) == minutes(*range(1, 9)), name
    late = [
        at - NOON.replace(minute=number + 1)
        for number, at in enumerate([await created_at_of(group, names[0], period) for period in minutes(*range(1, 9))])
    ]
    assert max(late) < timedelta(seconds=15)
    assert group.failures() == []


async def created_at_of(group: CronGroup, pipeline: str, period: str) -> datetime:
    found = await Runs(group.store).load(cron_key(period, pipeline))
    assert isinstance(found, Run)
    return found.created_at
