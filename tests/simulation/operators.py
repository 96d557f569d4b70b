"""The people who look after pipelines that run after others: they replay, rerun, cancel and pause, above and below."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.simulation.graph import Graph, yesterday
from tests.simulation.producers import HOUR_S, Producers
from tests.support.clock.virtual_time import VirtualClock
from worker.config.versions import PipelineVersions
from worker.core.errors import WorkerError
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.reruns import REPLAY
from worker.core.run.state import Run, State
from worker.core.time.periods import Granularity, Period
from worker.operations.runs.requests import RerunSpec, RunRequests
from worker.store.repos.runs import Runs

TRIES_MAX = 4  # of a person who repairs what failed


@dataclass(slots=True)
class Operators(Producers):
    """Those who look after one pipeline below others, and after what is above it."""

    graph: Graph = field(kw_only=True)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as hours:
            for hour in range(self.around.plan.hours):
                hours.create_task(self._act(hour), name=f"operator:{self.pipeline.id}:{hour}")

    async def _act(self, hour: int) -> None:
        random = self.random
        await asyncio.sleep(hour * HOUR_S + random.uniform(0.0, HOUR_S))
        if random.random() < 0.5:
            return
        key = self._own(random.randint(max(0, hour - 3), hour))
        match random.choices(["above", "rerun", "cancel", "pause", "twice"], weights=[6, 2, 1, 2, 1])[0]:
            case "above":
                await self._replay_above(hour, random)
            case "rerun":
                await self._rerun(key)
            case "cancel":
                await self._cancel(key)
            case "pause":
                self.uses_keys = True
                await self._pause(key)
            case _:
                await self._replay_above(hour, random)
                await asyncio.sleep(random.uniform(0.0, 1200.0))
                await self._replay_above(hour, random)

    async def _replay_above(self, hour: int, random: Random) -> None:
        """Replay some of the last hours of a pipeline at the top, or of one in between."""
        above = random.choice(self.graph.roots_above(self.pipeline))
        if random.random() < 0.2:
            above = self.graph.pipelines[random.choice(self.pipeline.schedules[0].after).pipeline]
        first = max(0, hour - random.randint(0, 2))
        periods = [self._own(each).period for each in range(first, hour + 1)]
        if above.schedules[0].grain is Granularity.HOURLY:
            periods = random.sample(yesterday(), k=random.randint(1, 4))
        await replay(self, above, [*dict.fromkeys(periods)], is_followed=random.random() < 0.2)

    def _own(self, hour: int) -> RunKey:
        key = self._key(hour)
        is_day = self.pipeline.schedules[0].grain is Granularity.DAILY
        return RunKey(key.pipeline, key.schedule, Period(yesterday()[0].date)) if is_day else key


@dataclass(slots=True)
class Backfill(Producers):
    """Those who load the 24 hours of a day, repair what failed, and later load all of them again."""

    async def run(self) -> None:
        """Share the time of the history among what is to be done."""
        step_s = self.around.plan.hours * HOUR_S / 6
        self.uses_keys = True
        for period in yesterday():
            await self._signal(self._of(period))
            await asyncio.sleep(self.random.uniform(0.0, 30.0))
        await asyncio.sleep(step_s)
        await self._repair()
        await asyncio.sleep(self.random.uniform(0.5, 1.0) * step_s)
        await replay(self, self.pipeline, yesterday(), is_followed=self.random.random() < 0.3)
        for _ in range(2):
            await asyncio.sleep(step_s)
            await self._repair()

    async def _repair(self) -> None:
        """Run the hours again that failed, a few at a time."""
        for period in yesterday():
            run = await Runs(self.around.store).load(self._of(period))
            if isinstance(run, Run) and run.state is State.FAILED_FINAL and run.attempt < TRIES_MAX:
                await replay(self, self.pipeline, [period], is_followed=False)
                await asyncio.sleep(self.random.uniform(0.0, 60.0))

    def _of(self, period: Period) -> RunKey:
        return RunKey(self.pipeline.id, self.pipeline.schedules[0].id, period)


async def replay(people: Producers, pipeline: Pipeline, periods: list[Period], *, is_followed: bool) -> None:
    """Request what `interlock replay` requests."""
    around = people.around
    requests = RunRequests(around.store, VirtualClock(), new_id=lambda: around.new_name("person"))
    version = await PipelineVersions(around.store).current(pipeline.id)
    assert version is not None
    wish = RerunSpec(reason=REPLAY, is_followed=is_followed)
    with suppress(WorkerError):  # another request was first
        await requests.replay([RunKey(pipeline.id, pipeline.schedules[0].id, each) for each in periods], version, wish)
