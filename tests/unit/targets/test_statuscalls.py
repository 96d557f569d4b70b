"""Polls that come close together share a call, and none is lost by it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tests.support.builders.values import a_job
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.runner import FakeRunner
from worker.core.errors import RetryLater
from worker.core.model.pipeline import JobType
from worker.jobs.runner import JobStatus, Running, Sightings, StatusQuery, Succeeded, TargetDown
from worker.targets import batch_status
from worker.targets.batch_status import ALONE_S, StatusCalls
from worker.targets.calls import Limits, Targets
from worker.targets.rates import Rate

PATIENCE = timedelta(seconds=3)
UNHURRIED = Rate(1000, 1000)
JOB = a_job(type=JobType.COMMAND)


@dataclass
class ListingRunner(FakeRunner):
    """Lists its running jobs, a page at a time."""

    page: int = 100
    refuses: RetryLater | None = None
    looks: list[int] = field(default_factory=list[int])

    def group(self, question: StatusQuery, /) -> str:
        return str(question.config["group"]) if question.handle["id"] != "lonely" else ""

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        self.looks.append(len(questions))
        await self._arrive("look")
        if self.refuses:
            raise self.refuses
        begin = int(more or 0)
        listed = self.running[begin : begin + self.page]
        seen: dict[int, JobStatus] = {
            place: Running() for place, question in enumerate(questions) if question.handle["id"] in listed
        }
        return Sightings(seen, str(begin + self.page) if begin + self.page < len(self.running) else "")


def a_target(count: int, *, page: int = 100) -> ListingRunner:
    runner = ListingRunner(page=page)
    runner.jobs = {f"job-{number}": Running() for number in range(count)}
    return runner


def about(job_id: str, group: str = "one") -> StatusQuery:
    return StatusQuery({"id": job_id}, {"group": group})


@asynccontextmanager
async def calls_to(runner: ListingRunner, rate: Rate = UNHURRIED) -> AsyncGenerator[StatusCalls]:
    clock = VirtualClock(NOON)
    async with asyncio.TaskGroup() as tasks:

        def spawn(name: str, work: Callable[[], Awaitable[None]]) -> None:
            async def begin() -> None:
                await work()

            tasks.create_task(begin(), name=name)

        targets = Targets(clock, Limits(rates={JobType.COMMAND: rate}))
        yield StatusCalls({JobType.COMMAND: runner}, targets, clock, spawn)


async def ask(runner: ListingRunner, *questions: StatusQuery, patience: timedelta = PATIENCE) -> list[object]:
    """Ask all at once; what each is told, errors included."""
    told: list[object] = [None] * len(questions)

    async def one(place: int, question: StatusQuery) -> None:
        try:
            told[place] = await calls.ask(JOB, question, patience)
        except RetryLater as problem:
            told[place] = problem

    async with calls_to(runner) as calls, asyncio.TaskGroup() as askers:
        for place, question in enumerate(questions):
            askers.create_task(one(place, question))
    return told


@on_virtual_time
async def test_polls_of_one_group_are_one_call() -> None:
    runner = a_target(50)

    told = await ask(runner, *(about(f"job-{number}") for number in range(50)))

    assert told == [Running()] * 50
    assert runner.calls == {"look": 1}


@on_virtual_time
async def test_a_job_that_is_not_in_the_list_is_asked_about_by_itself() -> None:
    runner = a_target(10)
    runner.jobs["job-3"] = Succeeded()

    told = await ask(runner, *(about(f"job-{number}") for number in range(10)))

    assert told[3] == Succeeded()
    assert runner.calls == {"look": 1, "status": 1}


@on_virtual_time
async def test_groups_are_asked_about_apart_and_one_that_is_alone_gets_a_plain_call() -> None:
    runner = a_target(5)

    await ask(
        runner, about("job-0", "a"), about("job-1", "a"), about("job-2", "b"), about("job-3", "b"), about("job-4")
    )

    assert runner.looks == [2, 2]
    assert runner.calls["status"] == 1


@on_virtual_time
async def test_a_batch_that_is_full_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_status, "BATCH_MAX", 10)
    runner = a_target(25)

    told = await ask(runner, *(about(f"job-{number}") for number in range(25)))

    assert told == [Running()] * 25
    assert runner.calls == {"look": 1, "status": 15}


@on_virtual_time
async def test_polls_that_come_while_a_long_list_is_read_wait_for_the_next_one() -> None:
    runner = a_target(40, page=10)
    async with calls_to(runner, Rate(0.1, 1)) as calls, asyncio.TaskGroup() as askers:
        for number in range(40):
            askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE))
        await asyncio.sleep(5)  # the first page is read, and the next three are ten seconds apart
        for number in range(40):
            askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE))

    assert runner.looks == [40, 30, 20, 10] * 2


@on_virtual_time
async def test_what_cannot_wait_is_asked_at_once() -> None:
    runner = a_target(2)

    await ask(runner, about("job-0"), about("job-1"), patience=timedelta())

    assert runner.calls == {"status": 2}


@on_virtual_time
async def test_a_list_is_read_on_only_while_that_is_cheaper_than_asking_one_by_one() -> None:
    runner = a_target(1000, page=10)

    told = await ask(runner, *(about(f"job-{number}") for number in (990, 991, 992, 993)))

    assert told == [Running()] * 4
    assert runner.calls == {"look": 2, "status": 4}


@on_virtual_time
async def test_the_pages_of_a_list_are_asked_only_about_what_is_still_open() -> None:
    runner = a_target(20, page=10)

    await ask(runner, *(about(f"job-{number}") for number in range(20)))

    assert runner.looks == [20, 10]


@on_virtual_time
async def test_a_target_that_does_not_answer_is_not_asked_again_by_each_of_them() -> None:
    runner = a_target(10)
    runner.refuses = TargetDown("connection refused")

    told = await ask(runner, *(about(f"job-{number}") for number in range(10)))

    assert runner.calls == {"look": 1}
    assert all(isinstance(problem, TargetDown) and "connection refused" in str(problem) for problem in told)


@on_virtual_time
async def test_a_list_that_may_not_be_read_is_left_alone_for_a_while() -> None:
    runner = a_target(2)
    runner.refuses = RetryLater("AccessDeniedException")
    async with calls_to(runner) as calls:
        for _ in range(3):
            async with asyncio.TaskGroup() as askers:
                for number in range(2):
                    askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE))
        assert runner.calls == {"look": 1, "status": 6}

        await asyncio.sleep(ALONE_S)
        async with asyncio.TaskGroup() as askers:
            for number in range(2):
                askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE))
        assert runner.calls["look"] == 2


@on_virtual_time
async def test_a_poll_that_is_given_up_takes_nothing_from_the_others() -> None:
    runner = a_target(3)
    async with calls_to(runner) as calls, asyncio.TaskGroup() as askers:
        polls = [askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE)) for number in range(3)]
        await asyncio.sleep(1)
        polls[0].cancel()

    assert [poll.result() for poll in polls[1:]] == [Running()] * 2
    assert runner.calls == {"look": 1}


@on_virtual_time
async def test_polls_that_come_while_a_busy_target_makes_wait_share_the_same_call() -> None:
    runner = a_target(100)
    async with calls_to(runner, Rate(0.1, 1)) as calls:
        await calls.ask(JOB, about("job-0"), timedelta())  # the next call is in ten seconds
        async with asyncio.TaskGroup() as askers:
            for number in range(90):
                askers.create_task(calls.ask(JOB, about(f"job-{number}"), PATIENCE))
                await asyncio.sleep(0.1)

    assert runner.looks == [90]


@on_virtual_time
async def test_lists_keep_to_a_rate_of_their_own_and_hold_up_nothing_else() -> None:
    runner = a_target(10)
    async with calls_to(runner, Rate(100, 1, lists_per_second=0.1)) as calls, asyncio.TaskGroup() as askers:
        for number in range(10):
            askers.create_task(calls.ask(JOB, about(f"job-{number}", f"group-{number // 2}"), PATIENCE))
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        await calls.ask(JOB, about("job-0"), timedelta())
        assert asyncio.get_running_loop().time() - began < 1

    assert runner.looks == [2] * 5
    assert asyncio.get_running_loop().time() >= 40


@on_virtual_time
async def test_a_job_of_which_no_list_tells_is_never_held_back() -> None:
    runner = a_target(0)
    runner.jobs["lonely"] = Running()
    began = asyncio.get_running_loop().time()

    assert await ask(runner, about("lonely")) == [Running()]
    assert asyncio.get_running_loop().time() == pytest.approx(began)
