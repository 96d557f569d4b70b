"""What the outside world does to a simulated one: producers write sensors, people ask, machines and networks fail."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

from tests.faults import RandomFaults, no_faults
from tests.simulation.node import Node, Surroundings
from tests.simulation.target import SimulatedTarget, world_time
from worker.core.events import Event
from worker.core.instants import format_rfc3339
from worker.core.keys import RunKey
from worker.core.periods import Period
from worker.core.pipeline import Pipeline
from worker.core.runstate import Outcome, Run, State
from worker.core.values import Json
from worker.store.events import Events
from worker.store.requests import CancelRequest, Requests, RerunRequest
from worker.store.runs import Runs, run_key
from worker.store.sensors import Sensors
from worker.store.table import Delete, TableName

HOUR_S: Final = 3600.0
FAULT_EVERY_S: Final = 1500.0  # on average


@dataclass(slots=True)
class Producers:
    """Those who write sensors of one pipeline, and the people who look after it."""

    around: Surroundings
    pipeline: Pipeline
    random: Random
    signalled: set[RunKey] = field(default_factory=set[RunKey])
    uses_keys: bool = field(init=False)  # a sensor of its own for each period, or one that is written over

    def __post_init__(self) -> None:
        self.uses_keys = self.random.random() < 0.5

    async def run(self) -> None:
        """Tell of each hour when it begins, and of what changes in it."""
        async with asyncio.TaskGroup() as hours:
            for hour in range(self.around.plan.hours):
                hours.create_task(self._hour(hour), name=f"producer:{self.pipeline.id}:{hour}")

    async def _hour(self, hour: int) -> None:
        random = self.random
        await asyncio.sleep(hour * HOUR_S + random.uniform(1.0, 600.0))
        key = self._key(hour)
        counts = asyncio.create_task(self._count(key))
        await self._signal(key)
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 60.0))
            await self._signal(key)  # as it was: nothing new
        await counts
        await self._afterwards(key)

    async def _signal(self, key: RunKey, **more: Json) -> None:
        period = key.period
        said: dict[str, Json] = {"status": "done", "date": str(period.date), "hour": f"{period.hour:02d}", **more}
        await self._write(f"ready#{period}" if self.uses_keys else "ready", said)
        self.signalled.add(key)

    async def _count(self, key: RunKey) -> None:
        """The data the rules wait for: there already, late, short at first, or never."""
        drawn, name = self.random.random(), f"count#{key.period}"
        if drawn < 0.1:
            return
        if drawn < 0.4:
            await self._write(name, {"rows": self.random.randint(1, 99)})
            await asyncio.sleep(self.random.uniform(0.5, 1500.0))
        elif drawn < 0.7:
            await asyncio.sleep(self.random.uniform(0.5, 1500.0))
        await self._write(name, {"rows": self.random.randint(100, 999)})

    async def _afterwards(self, key: RunKey) -> None:
        for _ in range(self.random.choice([0, 1, 1, 2])):
            await asyncio.sleep(self.random.uniform(60.0, 2400.0))
            deeds = (self._late, self._drift, self._rerun, self._cancel, self._begin_anew, self._foreign_event)
            await self.random.choice(deeds)(key)

    # --- what may come later ------------------------------------------------------------------------------------------

    async def _late(self, key: RunKey) -> None:
        await self._signal(key, revision=self.random.randint(1, 3))

    async def _drift(self, key: RunKey) -> None:
        for _ in range(2):
            await self._write(f"out#{key.period}", {"sensor_count": self.random.randint(0, 3)})
            await asyncio.sleep(self.random.uniform(1.0, 900.0))

    async def _rerun(self, key: RunKey) -> None:
        requests = Requests(self.around.store)
        request = RerunRequest(
            reason="manual",
            requested_at=self._now(),
            id=self.around.new_name("person"),
            supersede=self.random.random() < 0.5,
        )
        await requests.ask_rerun(key, request, await requests.rerun_of(key))

    async def _cancel(self, key: RunKey) -> None:
        requests = Requests(self.around.store)
        request = CancelRequest(
            reason="not needed",
            requested_at=self._now(),
            id=self.around.new_name("person"),
            waive_sla=self.random.random() < 0.3,
        )
        await requests.ask_cancel(key, request, await requests.cancel_of(key))

    async def _begin_anew(self, key: RunKey) -> None:
        """A person takes the row of a run that is done away, and the producer says once more that it is ready."""
        run = await Runs(self.around.store).load(key)
        if isinstance(run, Run) and run.state is State.COMPLETED and run.outcome is Outcome.SUCCEEDED:
            await self.around.store.commit(Delete(TableName.CONTROL, run_key(key)))
            await self._signal(key)

    async def _foreign_event(self, key: RunKey) -> None:
        event = Event(
            id=self.around.new_name("foreign"), type="NOT_OURS", at=world_time(self._at()), pipeline=key.pipeline
        )
        await Events(self.around.store).put_foreign(event)

    async def _write(self, name: str, data: dict[str, Json]) -> None:
        await Sensors(self.around.store).put(self.pipeline.id, name, data)

    def _key(self, hour: int) -> RunKey:
        at = world_time(hour * HOUR_S)
        return RunKey(self.pipeline.id, self.pipeline.schedules[0].id, Period(at.date(), at.hour))

    def _at(self) -> float:
        return asyncio.get_running_loop().time()

    def _now(self) -> str:
        return format_rfc3339(world_time(self._at()))


@dataclass(slots=True)
class Weather:
    """Lets things fail, one after another and now and then several at once, and sees to it that one worker is up."""

    around: Surroundings
    targets: list[SimulatedTarget]
    random: Random
    nodes: list[Node] = field(default_factory=list[Node])

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
        )
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.random.expovariate(1 / FAULT_EVERY_S))
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
        await asyncio.sleep(self.random.uniform(60.0, 1200.0))
        for node in struck:
            node.tables.choose = no_faults

    async def _index_lag(self) -> None:
        self.around.store.index.lag_s = self.around.plan.index_lag_s
        await asyncio.sleep(self.random.uniform(300.0, 1800.0))
        self.around.store.index.lag_s = 0.0

    async def _step_clock(self) -> None:
        node, by = self._any(), timedelta(seconds=self.random.uniform(-3.0, 3.0))
        if node is not None:
            node.clock.step(by)
            await asyncio.sleep(self.random.uniform(60.0, 600.0))
            node.clock.step(-by)

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
