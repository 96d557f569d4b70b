"""Ten thousand running jobs on one target: its rates are kept, and every job is looked at in time."""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.support.builders.values import a_job
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.runner import FakeRunner
from worker.core.model.pipeline import JobType
from worker.jobs.runner import Config, Handle, JobStatus, Running, Sightings, StatusQuery
from worker.targets.batch_status import StatusCalls
from worker.targets.calls import Targets
from worker.targets.rates import DEFAULT_RATES

JOBS, EVERY_S, LASTS_S = 10_000, 30, 120


@dataclass
class Lister(FakeRunner):
    """A target whose jobs are listed group by group, and never end."""

    groups: int = 1
    page: int = 1
    called_at: list[float] = field(default_factory=list[float])

    def group_of(self, number: int) -> int:
        return number % self.groups

    def group(self, question: StatusQuery, /) -> str:
        return str(question.handle["group"])

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        self._note()
        first, size = int(more or 0), JOBS // self.groups
        places = {int(str(question.handle["number"])): place for place, question in enumerate(questions)}
        listed = range(first * self.groups + int(str(questions[0].handle["group"])), JOBS, self.groups)[: self.page]
        seen: dict[int, JobStatus] = {places[number]: Running() for number in listed if number in places}
        return Sightings(seen, str(first + self.page) if first + self.page < size else "")

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        self._note()
        return Running()

    def _note(self) -> None:
        self.called_at.append(asyncio.get_running_loop().time())


@pytest.mark.parametrize(
    ("kind", "groups", "page", "seen_every_s"),
    [
        (JobType.STEP_FUNCTION, 10, 1000, 30),
        (JobType.GLUE, 100, 200, 30),
        (JobType.DATABRICKS, 1, 25, 40),
    ],
)
def test_ten_thousand_jobs_stay_inside_the_rates_and_are_seen_in_time(
    kind: JobType, groups: int, page: int, seen_every_s: float
) -> None:
    runner, seen = Lister(groups=groups, page=page), defaultdict[int, list[float]](list)

    _poll_all(kind, runner, seen)

    rate = DEFAULT_RATES[kind]
    per_second = rate.lists_per_second or rate.per_second
    assert len(runner.called_at) <= rate.burst + per_second * runner.called_at[-1] + 1
    assert max(Counter(map(int, runner.called_at)).values()) <= rate.burst + per_second + 1
    assert len(seen) == JOBS
    # A poll waits up to a fifth of its interval for others, and its list takes its turn.
    gaps = [later - earlier for times in seen.values() for earlier, later in itertools.pairwise(times)]
    assert sorted(gaps)[len(gaps) // 2] <= seen_every_s * 1.5


@on_virtual_time
async def _poll_all(kind: JobType, runner: Lister, seen: dict[int, list[float]]) -> None:
    clock = VirtualClock(NOON)
    job = a_job(type=kind)

    async with asyncio.timeout(LASTS_S + 60), asyncio.TaskGroup() as tasks:

        def spawn(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.create_task(work(), name=name)

        calls = StatusCalls({kind: runner}, Targets(clock), clock, spawn)

        async def follow(number: int) -> None:
            question = StatusQuery({"number": number, "group": runner.group_of(number)}, {})
            await clock.sleep(number / JOBS * EVERY_S)
            while clock.monotonic() < LASTS_S:
                began = clock.monotonic()
                await calls.ask(job, question, timedelta(seconds=EVERY_S / 5))
                seen[number].append(clock.monotonic())
                await clock.sleep(max(0.0, began + EVERY_S - clock.monotonic()))

        for number in range(JOBS):
            tasks.create_task(follow(number))
