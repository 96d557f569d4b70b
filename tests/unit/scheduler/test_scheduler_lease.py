"""How the periodic tasks of the scheduler get their turns."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from scheduler.apscheduler_ticker import ApschedulerTicker
from scheduler.periodic import PeriodicRunner, PeriodicTask
from scheduler.scheduler_lease import NapTicker, SchedulerRole
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.worker_group import WorkerGroup
from worker.core.errors import RetryLater
from worker.membership.held_lease import HeldLease
from worker.membership.sessions import Member

SECOND = timedelta(seconds=1)


class Book:
    """Tasks that write down their turns."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.turns = Counter[str]()
        self.under_way = self.most_at_once = 0

    def task(self, name: str, every: timedelta, *, takes_s: float = 0.0, fails: bool = False) -> PeriodicTask:
        return PeriodicTask(name, every, partial(self._do, name, takes_s, fails=fails))

    async def _do(self, name: str, takes_s: float, *, fails: bool) -> None:
        self.turns[name] += 1
        if fails:
            raise RetryLater("the store does not answer; try again later")
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        await self.clock.sleep(takes_s)
        self.under_way -= 1


async def do_for(seconds: int, clock: VirtualClock, make_tasks: Sequence[PeriodicTask]) -> None:
    async with asyncio.TaskGroup() as tasks:
        rota = PeriodicRunner(make_tasks, clock, tasks)
        for _ in range(seconds):
            rota.begin_due()
            await clock.sleep(1)


@on_virtual_time
async def test_each_chore_begins_at_once_and_then_as_often_as_it_says() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(20, clock, [book.task("often", SECOND), book.task("seldom", 5 * SECOND)])

    assert book.turns == {"often": 20, "seldom": 4}


@on_virtual_time
async def test_a_chore_never_overlaps_itself_and_goes_on_when_it_is_over() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(20, clock, [book.task("slow", SECOND, takes_s=4.5)])

    assert book.turns == {"slow": 4}
    assert book.most_at_once == 1


@on_virtual_time
async def test_a_chore_that_fails_has_its_next_turn_and_the_others_do_not_notice() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(10, clock, [book.task("broken", SECOND, fails=True), book.task("sound", SECOND)])

    assert book.turns == {"broken": 10, "sound": 10}


@on_virtual_time
async def test_who_gives_the_duty_up_finishes_what_is_in_hand_and_begins_nothing_more() -> None:
    group = WorkerGroup(shards=0)
    await group.store.start()
    book = Book(group.clock)

    def make_tasks(_: HeldLease) -> Sequence[PeriodicTask]:
        return [book.task("slow", SECOND, takes_s=3.0)]

    async def work(member: Member) -> None:
        member.keeper.offer(SchedulerRole(make_tasks, group.clock, NapTicker()).offer())

    station = group.start("a", work=work)
    await group.clock.sleep(10.5)
    assert book.under_way == 1
    station.membership.stop()
    await group.clock.sleep(5)
    turns = book.turns["slow"]
    await group.clock.sleep(20)

    assert book.under_way == 0
    assert book.turns["slow"] == turns
    assert group.failures() == []


async def test_the_library_rings_while_it_is_asked_to_and_not_afterwards() -> None:
    rings = 0
    third = asyncio.Event()

    def ring() -> None:
        nonlocal rings
        rings += 1
        if rings == 3:
            third.set()

    with ApschedulerTicker(every_s=0.01).ticking(ring):
        async with asyncio.timeout(10):
            await third.wait()
    await rest()
    stopped_at = rings
    await rest()

    assert rings == stopped_at


async def rest() -> None:
    """Let everything that is ready run; a tick that was still set up would come in this time."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    at: Callable[[], None] = over.set
    loop.call_later(0.05, at)
    await over.wait()
