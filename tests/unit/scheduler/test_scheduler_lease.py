"""How the periodic tasks of the scheduler get their turns."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from scheduler.apscheduler_jobs import JobScope
from scheduler.periodic import PeriodicTask
from scheduler.scheduler_lease import SchedulerRole, repeat, repeating
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.worker_group import WorkerGroup
from worker.core.errors import RetryLater
from worker.membership.sessions import Member

SECOND = timedelta(seconds=1)


class Book:
    """Tasks that write down their turns."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.turns = Counter[str]()
        self.under_way = self.most_at_once = 0
        self.cancelled: list[str] = []

    def task(self, name: str, every: timedelta, *, takes_s: float = 0.0, fails: bool = False) -> PeriodicTask:
        return PeriodicTask(name, every, partial(self._do, name, takes_s, fails=fails))

    async def _do(self, name: str, takes_s: float, *, fails: bool) -> None:
        self.turns[name] += 1
        if fails:
            raise RetryLater("the store does not answer; try again later")
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await self.clock.sleep(takes_s)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.under_way -= 1


async def do_for(seconds: float, clock: VirtualClock, tasks: Sequence[PeriodicTask]) -> None:
    async with repeating(clock, lambda: True) as (jobs, scope):
        for task in tasks:
            repeat(jobs, task, scope)
        await clock.sleep(seconds)


@on_virtual_time
async def test_each_task_begins_at_once_and_then_as_often_as_it_says() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(19.5, clock, [book.task("often", SECOND), book.task("seldom", 5 * SECOND)])

    assert book.turns == {"often": 20, "seldom": 4}


@on_virtual_time
async def test_a_task_never_overlaps_itself_and_goes_on_when_it_is_over() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(19.5, clock, [book.task("slow", SECOND, takes_s=4.5), book.task("sound", SECOND)])

    assert book.turns == {"slow": 4, "sound": 20}
    assert book.most_at_once == 2


@on_virtual_time
async def test_a_task_that_fails_has_its_next_turn_and_the_others_do_not_notice() -> None:
    clock = VirtualClock()
    book = Book(clock)

    await do_for(9.5, clock, [book.task("broken", SECOND, fails=True), book.task("sound", SECOND)])

    assert book.turns == {"broken": 10, "sound": 10}


@on_virtual_time
async def test_a_task_whose_first_turn_comes_later_keeps_its_interval() -> None:
    clock = VirtualClock()
    book = Book(clock)
    later = PeriodicTask("later", 5 * SECOND, partial(book.task("later", SECOND).run), after=3 * SECOND)

    await do_for(2.5, clock, [later])
    assert book.turns == {}
    await do_for(13.5, clock, [later])

    assert book.turns == {"later": 3}


async def hold_for(group: WorkerGroup, book: Book, seconds: float) -> Member:
    """A worker of a real group holds the lease, with a slow task in hand."""
    members: list[Member] = []

    def make_tasks(_: JobScope) -> Sequence[PeriodicTask]:
        return [book.task("slow", SECOND, takes_s=3.0)]

    async def work(member: Member) -> None:
        members.append(member)
        member.keeper.offer(SchedulerRole(make_tasks, group.clock).offer())

    group.start("a", work=work)
    await group.clock.sleep(seconds)
    assert book.under_way == 1
    return members[0]


@on_virtual_time
async def test_who_gives_the_lease_up_finishes_what_is_in_hand_and_begins_nothing_more() -> None:
    group = WorkerGroup(shards=0)
    await group.store.start()
    book = Book(group.clock)
    member = await hold_for(group, book, 10.5)

    giving_up = asyncio.ensure_future(member.keeper.give_all_up())
    await group.clock.sleep(5)
    turns = book.turns["slow"]
    await group.clock.sleep(20)
    await giving_up

    assert book.under_way == 0
    assert book.cancelled == []
    assert book.turns["slow"] == turns
    assert group.failures() == []
