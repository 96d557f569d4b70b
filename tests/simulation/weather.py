"""What fails in a simulated world: machines, networks, indexes, clocks, targets and feeds."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import Final

from tests.simulation.node import Node, Surroundings
from tests.simulation.target import SimulatedTarget
from tests.support.fakes.remote_store import RandomFaults, no_faults
from worker.core.model.keys import RunKey, pipeline_pk
from worker.core.time.periods import Period
from worker.store.repos.sensors import sensor_of
from worker.store.table import Change, TableName

PIPELINE: Final = pipeline_pk("")


@dataclass(slots=True)
class Weather:
    """Lets things fail, one after another and now and then several at once, and sees to it that one worker is up."""

    around: Surroundings
    targets: list[SimulatedTarget]
    random: Random
    nodes: list[Node] = field(default_factory=list[Node])
    excused: set[RunKey] = field(default_factory=set[RunKey])  # signals that nobody can know of any more
    day_lost: set[RunKey] = field(default_factory=set[RunKey])  # signals of which nobody can know the day any more

    def begin(self) -> None:
        for number in range(self.around.plan.workers):
            self._start(f"w{number}")

    async def run(self) -> None:
        faults = (
            (self._crash, 4),
            (self._freeze, 3),
            (self._storm, 3),
            (self._index_lag, 2),
            (self._step_clock, 1),
            (self._outage, 1),
            (self._redeliver, 3),
            (self._retire, 1),
            (self.trim, 1),
        )
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.random.expovariate(1 / self.around.plan.fault_every_s))
                fault = self.random.choices([each for each, _ in faults], [weight for _, weight in faults])[0]
                tasks.create_task(fault(), name=f"weather:{fault.__name__}")

    def clear(self) -> None:
        """Everything that failed works again; who crashed was replaced."""
        self.around.store.index.lag_s = 0.0
        for target in self.targets:
            target.is_out, target.trouble = False, 0.0
        for node in self.nodes:
            node.tables.choose = no_faults
            if not node.is_gone and node.host.is_frozen:
                node.host.thaw()
        for number in range(self.around.plan.workers - len(self._up())):
            self._start(f"x{number}")

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _crash(self) -> None:
        node = self._victim()
        if node is None:
            return
        node.crash()
        await asyncio.sleep(self.random.choice([1.0, 30.0, 300.0]))
        self._start(node.name.partition(".")[0])

    async def _freeze(self) -> None:
        node = self._victim()
        if node is None:
            return
        node.host.freeze()
        timing = self.around.plan.timing
        # Shorter than anyone notices, longer than it may act, and longer than others take it for alive.
        await asyncio.sleep(self.random.choice([5.0, 30.0, 1.1 * timing.fence_s, 2.0 * timing.kill_s]))
        if not node.is_gone:
            node.host.thaw()

    async def _storm(self) -> None:
        struck = self._up() if self.random.random() < 0.5 else [node for node in [self._any()] if node]
        for node in struck:
            node.tables.choose = RandomFaults(
                random=self.random, delay_max_s=0.5, lost_requests=0.05, lost_replies=0.1, late_requests=0.1
            )
        await asyncio.sleep(self.random.uniform(60.0, self.around.plan.storms_last_s))
        for node in struck:
            node.tables.choose = no_faults

    async def _index_lag(self) -> None:
        self.around.store.index.lag_s = self.around.plan.index_lag_s
        await asyncio.sleep(self.random.uniform(300.0, 1800.0))
        self.around.store.index.lag_s = 0.0

    async def _step_clock(self) -> None:
        """A little off goes unnoticed; beyond that the worker stands aside until its clock is right."""
        node, most_s = self._any(), self.random.choice([3.0, 20.0])
        if node is not None:
            by = timedelta(seconds=self.random.uniform(-most_s, most_s))
            node.step_clock(by)
            await asyncio.sleep(self.random.uniform(60.0, 600.0))
            node.step_clock(-by)

    async def _outage(self) -> None:
        target = self.random.choice(self.targets)
        target.is_out = True
        await asyncio.sleep(self.random.uniform(60.0, 600.0))
        target.is_out = False

    async def _redeliver(self) -> None:
        """Records come again, in another order and to whomever."""
        handled, node = list(self.around.feeds.handled), self._any()
        if node is not None:
            for change in self.random.sample(handled, min(len(handled), 10)):
                node.hand_over(change)
                await asyncio.sleep(self.random.uniform(0.0, 0.1))

    async def _retire(self) -> None:
        """A worker leaves in order and another comes, as with every new version."""
        node = self._victim()
        if node is not None:
            node.retire()
            await asyncio.sleep(self.random.uniform(1.0, 60.0))
            self._start(node.name.partition(".")[0])

    async def trim(self) -> None:
        """The feed forgets everything, also what nobody has read yet."""
        store, feeds = self.around.store, self.around.feeds
        kept = await store.kept_inputs()
        unread = [change for change in kept if change.table is TableName.CONTROL and not feeds.is_done(change)]
        self.excused.update(self._overwritten(unread))
        self.day_lost.update(self._undated(unread))
        while await store.trim(await store.last_position()):
            pass
        feeds.trimmed(kept)

    def _overwritten(self, unread: list[Change]) -> Iterator[RunKey]:
        """The signals that only their record knew of: the next period's was written over them, or will be."""
        for change in unread:
            sensor = None if change.image is None else sensor_of(change.image)
            if sensor is not None and sensor.key == "ready" and "hour" in sensor.data:
                pipeline = self.around.pipelines[change.key.pk.removeprefix(PIPELINE)]
                period = Period(date.fromisoformat(str(sensor.data["date"])), int(str(sensor.data["hour"])))
                yield RunKey(pipeline.id, pipeline.schedules[0].id, period)

    def _undated(self, unread: list[Change]) -> Iterator[RunKey]:
        """The signals whose day only their record knew: whoever finds the row takes it for that day's."""
        for change in unread:
            sensor = None if change.image is None else sensor_of(change.image)
            if sensor is not None and sensor.key == "ready" and "hour" not in sensor.data:
                pipeline = self.around.pipelines[change.key.pk.removeprefix(PIPELINE)]
                yield RunKey(pipeline.id, pipeline.schedules[0].id, Period(change.at.date()))

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        off_by = timedelta(seconds=self.random.uniform(-1.0, 1.0))
        self.nodes = [node for node in self.nodes if not node.is_gone]
        self.nodes.append(Node(self.around, self.around.new_name(name), off_by))

    def _up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    def _any(self) -> Node | None:
        up = self._up()
        return self.random.choice(up) if up else None

    def _victim(self) -> Node | None:
        return self._any() if len(self._up()) > 1 else None
