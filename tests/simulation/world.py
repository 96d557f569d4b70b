"""A whole world from one seed: workers, producers, people, targets and faults on one virtual clock.

The same seed gives the same history, commit by commit, so a violation can be looked at again as often as it takes.
"""

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Final, TypeAlias

from tests.simulation.dependents import DependencyInspector
from tests.simulation.evaluators import Evaluators
from tests.simulation.graph import HOURLY, Graph, draw_graph
from tests.simulation.inputs import InputLedger
from tests.simulation.invariants import Inspector
from tests.simulation.leaserows import LeaseInspector
from tests.simulation.ledger import Bus, FeedLedger
from tests.simulation.memory_tables import MemoryTables
from tests.simulation.node import Surroundings
from tests.simulation.operators import Backfill, Operators
from tests.simulation.plan import Plan, draw_pipeline, draw_probe
from tests.simulation.producers import HOUR_S, Producers
from tests.simulation.store import MakeStore, SimulatedStore
from tests.simulation.target import Record, SimulatedTarget, world_time
from tests.simulation.violations import Invariant, Verdicts
from tests.simulation.weather import Weather
from tests.support.clock.virtual_time import OUTSIDE, VirtualClock
from tests.support.clock.virtual_time import run as on_virtual_loop
from worker.config.deploy import deploy
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType, Pipeline
from worker.core.time.periods import Period
from worker.engine.intake.router import is_input
from worker.jobs.runner import Guarantee
from worker.store.table import (
    AllOf,
    AnyOf,
    Change,
    ChangeKind,
    Check,
    Condition,
    Equals,
    Less,
    TableName,
    Update,
    Write,
)

WAKE_AFTER_S: Final = 0.02  # how soon a reader notices that there is something new
STEP_S: Final = 60.0
LOOK_EVERY_S: Final = 300.0  # for what is overdue: far less than the grace it has
OBJECTS_MADE: Final = 100_000  # between two looks of the collector
SETTLE_MAX_S: Final = 6 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a history came to."""

    plan: Plan
    digest: str  # of every commit and its time, in order
    commits: int
    runs: Mapping[str, int]  # by how they ended
    jobs: int


# Told of each hour that has passed, and of how many commits there were by then.
OnHour: TypeAlias = Callable[[int, int], None]


def simulate(
    plan: Plan, on_hour: OnHour = lambda _hour, _commits: None, make_store: MakeStore = MemoryTables
) -> Report:
    """Live through one history. Raises `Violated`."""
    with _collecting_rarely():
        return on_virtual_loop(_live(plan, on_hour, make_store))


@contextmanager
def _collecting_rarely() -> Generator[None]:
    """Let the collector look less often: a history makes millions of objects, and next to none of them in circles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(OBJECTS_MADE, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


async def _live(plan: Plan, on_hour: OnHour, make_store: MakeStore) -> Report:
    world = World(plan, on_hour, make_store)
    await world.open()
    history = asyncio.create_task(world.history(), name="history")
    await asyncio.wait([history, world.verdicts.first], return_when=asyncio.FIRST_COMPLETED)
    world.verdicts.check()
    await history
    return world.report()


class World:
    def __init__(self, plan: Plan, on_hour: OnHour, make_store: MakeStore) -> None:
        self._plan, self._random, self._on_hour = plan, Random(plan.seed), on_hour
        self._clock, self.verdicts = VirtualClock(), Verdicts.open()
        self._store = SimulatedStore(self._clock, make_store)
        self._record, self._names = Record(), Counter[str]()
        roots = [
            draw_pipeline(number, self._random, draw_probe(plan.seed, number) if number < plan.probes else None)
            for number in range(plan.pipelines)
        ]
        self._pipelines = [*roots, *draw_graph(plan, roots)]
        pipelines: dict[str, Pipeline] = {each.id: each for each in self._pipelines}
        self._inspector = Inspector(pipelines, self._record, self.verdicts, plan.grace)
        self._inputs = InputLedger(self.verdicts, timedelta(seconds=plan.timing.fence_s + 60.0))
        self._graph = Graph(pipelines)
        self._below = DependencyInspector(self._graph, self.verdicts, timedelta(seconds=plan.timing.fence_s + 60.0))
        self._feeds, self._bus = FeedLedger(self.verdicts), Bus(self.verdicts)
        self._digest, self._commits = hashlib.sha256(), 0
        # A luck of its own: what else happens is the same with probes and without.
        self._evaluators = Evaluators(plan, pipelines, self.verdicts, Random(f"evaluators {plan.seed}"))
        targets = self._targets()
        self._around = Surroundings(
            plan=plan,
            store=self._store,
            runners=targets,
            record=self._record,
            evaluators=self._evaluators,
            pipelines=pipelines,
            deliver=self._bus.deliver,
            feeds=self._feeds,
            verdicts=self.verdicts,
            random=self._draw_random(),
            new_name=self._new_name,
        )
        self._producers = [self._people(each) for each in self._pipelines]
        self.weather = Weather(self._around, list(targets.values()), self._draw_random())

    async def open(self) -> None:
        await self._store.start()
        self._store.observers += [
            self._note,
            self._bus.committed,
            self._feeds.committed,
            self._inspector.committed,
            self._inputs.committed,
            *([self._below.committed] if self._plan.downstreams else []),
            *([self._evaluators.committed] if self._plan.probes else []),
            LeaseInspector(self.verdicts).committed,
            self._wake_readers,
        ]
        for pipeline in self._pipelines:
            await deploy(self._store, pipeline, self._clock, lambda: self._around.new_name("id"))

    async def history(self) -> None:
        """The hours of the plan, and then as many as it takes to come to rest."""
        self.weather.begin()
        async with asyncio.TaskGroup() as outside:
            weather = outside.create_task(self.weather.run(), name="weather")
            looks = outside.create_task(self._look_now_and_then(), name="looks")
            said = [outside.create_task(each.run(), name=f"producers:{each.pipeline.id}") for each in self._producers]
            for hour in range(self._plan.hours):
                await asyncio.sleep(HOUR_S)
                self._on_hour(hour + 1, self._commits)
            weather.cancel()
            await asyncio.wait([weather])
            self.weather.clear()
            await asyncio.wait(said)
            await self.come_to_rest()
            looks.cancel()

    def report(self) -> Report:
        runs = Counter(str(run.outcome) for run in self._inspector.runs.values())
        return Report(
            plan=self._plan,
            digest=self._digest.hexdigest(),
            commits=self._commits,
            runs=runs,
            jobs=len(self._record.jobs),
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    async def come_to_rest(self) -> None:
        """Wait until nothing is left to do, and check that nothing was lost."""
        await self._settle()
        self._check_nothing_is_lost()

    async def _settle(self) -> None:
        """Wait until nothing is left to do; what is overdue meanwhile is a violation of its own."""
        for _ in range(int(SETTLE_MAX_S / STEP_S)):
            await asyncio.sleep(STEP_S)
            if await self._is_at_rest():
                return
        self._below.check()
        self.verdicts.violated(Invariant.BOUNDED_LIFE, f"the world never came to rest: {await self._unrest()}")

    async def _is_at_rest(self) -> bool:
        is_done = self._inspector.is_quiet and not self._bus.undelivered and not self._unsignalled()
        return is_done and not self._below.undone() and not await self._unread()

    async def _unrest(self) -> str:
        active = [f"{key} {run.state}" for key, run in self._inspector.runs.items() if not run.is_ended]
        left = f"{len(self._bus.undelivered)} events to deliver, {self._unsignalled()} without a run"
        return f"{active}, {left}, {await self._unread()} not read"

    async def _unread(self) -> list[str]:
        """The rows that somebody wrote and no worker has taken note of: who holds the feed may be frozen or dead."""
        return [str(change.key) for change in self._feeds.unread(await self._store.kept_inputs())]

    def _unsignalled(self) -> list[str]:
        wanted = {key for producers in self._producers for key in producers.signalled}
        begun = self._inspector.runs.keys() | self._inspector.rehearsed
        moved = {key for key in self.weather.day_lost if any(later in begun for later in _later_days(key))}
        return sorted(str(key) for key in wanted - begun - self.weather.excused - moved)

    def _check_nothing_is_lost(self) -> None:
        lost = self._unsignalled()
        self.verdicts.require(not lost, Invariant.NOTHING_IS_LOST, f"{lost} were signalled and never ran")
        unsent = [f"{event.type} {event.id}" for event in self._bus.undelivered]
        self.verdicts.require(not unsent, Invariant.NOTHING_IS_LOST, f"decided and never delivered: {unsent}")
        self._inputs.check(self.weather.excused)

    # --- what happens all the time ------------------------------------------------------------------------------------

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._inspector.check_overdue()

    def _note(self, writes: Sequence[Write]) -> None:
        self._commits += 1
        self._digest.update(f"{asyncio.get_running_loop().time()}".encode())
        for write in writes:
            if write.key.pk != keys.CONFIG_LOG:  # whose ids are drawn anew each time
                self._digest.update(_text(write).encode())

    def _wake_readers(self, writes: Sequence[Write]) -> None:
        tables = {write.table for write in writes if self._is_news(write)}
        for table in sorted(tables) if len(tables) > 1 else tables:
            for node in self.weather.nodes:
                if table in node.readers:
                    asyncio.get_running_loop().call_later(
                        WAKE_AFTER_S, node.readers[table].wake, context=OUTSIDE.copy()
                    )

    @staticmethod
    def _is_news(write: Write) -> bool:
        if write.table is TableName.RERUN or isinstance(write, Check):
            return False
        seen = Change(
            position=0, table=write.table, key=write.key, kind=ChangeKind.MODIFY, image=None, at=world_time(0)
        )
        return write.table is TableName.EVENTS or is_input(seen)

    # --- making -------------------------------------------------------------------------------------------------------

    def _targets(self) -> dict[JobType, SimulatedTarget]:
        kinds = {
            JobType.STEP_FUNCTION: (Guarantee.EXACTLY_ONCE, True),
            JobType.GLUE: (Guarantee.FOUND_AGAIN, True),
            JobType.LAMBDA: (Guarantee.AT_LEAST_ONCE, False),
        }
        return {
            kind: SimulatedTarget(
                guarantee=guarantee,
                can_stop=can_stop,
                random=self._draw_random(),
                record=self._record,
                on_send=self._inspector.sent,
                on_begin=self._inspector.begins,
                trouble=self._plan.trouble,
            )
            for kind, (guarantee, can_stop) in kinds.items()
        }

    def _people(self, pipeline: Pipeline) -> Producers:
        random = self._draw_random()
        if pipeline.id == HOURLY:
            return Backfill(self._around, pipeline, random)
        if pipeline.schedules[0].trigger is None:
            return Operators(self._around, pipeline, random, graph=self._graph)
        return Producers(self._around, pipeline, random)

    def _draw_random(self) -> Random:
        """One for each who draws, so that what one does leaves the others' luck alone."""
        return Random(self._random.getrandbits(64))

    def _new_name(self, of: str) -> str:
        self._names[of] += 1
        return f"{of}.{self._names[of]}"


def _text(write: Write) -> str:
    """What `repr` says, spelled out for the write of which there are most: every beat is one."""
    if type(write) is not Update:
        return repr(write)
    return (
        f"Update(table={write.table!r}, key=Key(pk={write.key.pk!r}, sk={write.key.sk!r}), set={write.set!r}, "
        f"set_if_absent={write.set_if_absent!r}, remove={write.remove!r}, condition={_condition_text(write.condition)})"
    )


def _condition_text(condition: Condition | None) -> str:
    match condition:
        case Equals(attribute, value):
            return f"Equals(attribute={attribute!r}, value={value!r})"
        case Less(attribute, value):
            return f"Less(attribute={attribute!r}, value={value!r})"
        case AnyOf(one_of) | AllOf(one_of) if len(one_of) > 1:  # one alone has a comma behind it
            inner = ", ".join(map(_condition_text, one_of))
            return f"{type(condition).__name__}(conditions=({inner}))"
        case _:
            return repr(condition)


def _later_days(key: RunKey) -> list[RunKey]:
    """The days on which a signal may be found that came on the day of a run."""
    days = [key.period.date + timedelta(days=days) for days in range(1, 4)]
    return [replace(key, period=Period(day)) for day in days]
