"""A whole worker on virtual time: the store in memory, its change feed read as the consumers do, a target in the test.

Two workers on one store are two worlds' `worker()`; what a test says is written as producers and people write it.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from math import inf
from typing import Protocol

from tests.simulation.memory_tables import MemoryTables
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.probes import FakeProbes
from tests.support.fakes.runner import FakeRunner
from worker.app.components import EngineComponents, build_engine
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected, RetryLater
from worker.core.model import keys
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import JobType, Pipeline, PipelineId, ScheduleId
from worker.core.model.probes import ProbeType
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.engine.engine import Engine
from worker.engine.intake.router import Router
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.events import Events, StoredEvent
from worker.store.repos.job_log import JobLog, JobRecord
from worker.store.repos.requests import CancelRequest, Requests, RerunRequest, TriggerRequest
from worker.store.repos.reruns import RerunRecord, Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, ChangeFeed, TableName, Tables, Write
from worker.targets.calls import Limits, alone
from worker.targets.job_hints import JobHints
from worker.targets.measures import Measures, NoMeasures

ORDERS = PipelineId("orders")
DAY = "2026-03-03"  # of NOON

# A pipeline that starts when `ready` says so, and waits for `count`.
CONFIG = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: count, check: gte, field: rows, value: 100}
job:
  type: command
  config: {command: "true", environment: {DAY: "${DATE}"}}
  maxRetries: 1
"""


class TablesWithFeed(Tables, ChangeFeed, Protocol):
    """A store that keeps its own change feed."""


class ToldTables:
    """A store that tells its listeners of each commit."""

    def __init__(self, tables: TablesWithFeed) -> None:
        self._tables, self._listeners = tables, list[asyncio.Event]()
        self.start, self.stop, self.ping = tables.start, tables.stop, tables.ping
        self.get, self.get_many, self.query = tables.get, tables.get_many, tables.query
        self.changes, self.last_position = tables.changes, tables.last_position

    def listen(self) -> asyncio.Event:
        """An event that the next commit sets."""
        heard = asyncio.Event()
        self._listeners.append(heard)
        return heard

    async def commit(self, *writes: Write) -> None:
        await self._tables.commit(*writes)
        heard, self._listeners = self._listeners, []
        for each in heard:
            each.set()


@dataclass
class FakeStanding:
    """A session that acts until the test ends it. `asked_more`: how often it may be asked, which is before each act.

    Who goes round in circles asks without end, and no time passes meanwhile.
    """

    session: SessionId
    group: dict[SessionId, bool]
    is_alive: bool = True
    asked_more: float = inf
    is_clock_right: bool = True

    def may_act(self) -> bool:
        self.asked_more -= 1
        assert self.asked_more >= 0, "the worker goes round in circles"
        return self.is_alive

    def may_judge_time(self) -> bool:
        return self.is_clock_right

    async def is_over(self, session: SessionId) -> bool:
        return not self.group.get(session, False)


@dataclass
class Worker:
    parts: EngineComponents
    standing: FakeStanding
    log: list[tuple[str, Mapping[str, object]]]

    @property
    def engine(self) -> Engine:
        return self.parts.engine

    @property
    def router(self) -> Router:
        return self.parts.router


@dataclass
class World:
    """Everything a test looks at. Times are virtual."""

    clock: VirtualClock
    tables: ToldTables
    runner: FakeRunner
    seen_by_workers: Tables
    probes: FakeProbes = field(default_factory=FakeProbes)
    group: dict[SessionId, bool] = field(default_factory=dict[SessionId, bool])
    read_to: dict[TableName, int] = field(default_factory=dict[TableName, int])
    dead_letters: list[str] = field(default_factory=list[str])
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    measures: Measures = field(default_factory=NoMeasures)

    # --- workers ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self,
        name: str = "w1",
        *,
        limits: Limits | None = None,
        configs: PipelineVersions | None = None,
        reads_feed: bool = True,
        hints: JobHints | None = None,
        workers: Callable[[], int] = alone,
    ) -> AsyncGenerator[Worker]:
        """A worker that lives as long as the block, and then is gone without a word: as after a crash."""
        async with self._started(name, limits, configs, hints=hints, workers=workers) as worker:
            if not reads_feed:
                yield worker
                return
            feed = asyncio.get_running_loop().create_task(self._feed(worker), name=f"feed:{name}")
            try:
                yield worker
            finally:
                feed.cancel()
                await asyncio.wait([feed])
            if not feed.cancelled() and (problem := feed.exception()):
                raise problem

    @asynccontextmanager
    async def _started(
        self,
        name: str,
        limits: Limits | None,
        configs: PipelineVersions | None,
        *,
        hints: JobHints | None,
        workers: Callable[[], int],
    ) -> AsyncGenerator[Worker]:
        session = SessionId(name)
        self.group[session] = True
        standing = FakeStanding(session, self.group)
        log: list[tuple[str, Mapping[str, object]]] = []
        started: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        live = self._live(standing, log, started, limits, configs, hints=hints, workers=workers)
        life = asyncio.get_running_loop().create_task(live, name=name)
        worker = await started
        try:
            yield worker
        finally:
            self.group[session] = standing.is_alive = False
            life.cancel()
            await asyncio.wait([life])
            if not life.cancelled() and (problem := life.exception()):
                raise problem

    async def _live(
        self,
        standing: FakeStanding,
        log: list[tuple[str, Mapping[str, object]]],
        started: "asyncio.Future[Worker]",
        limits: Limits | None,
        configs: PipelineVersions | None,
        *,
        hints: JobHints | None,
        workers: Callable[[], int],
    ) -> None:
        def note(event: str, facts: Mapping[str, object]) -> None:
            log.append((event, facts))

        async with asyncio.TaskGroup() as tasks:
            parts = build_engine(
                self.seen_by_workers,
                {JobType.COMMAND: self.runner, JobType.GLUE: self.runner},
                standing,
                self.clock,
                tasks,
                began_at=NOON - timedelta(days=1),
                new_id=lambda: f"{standing.session}-{next(self.numbers):06d}",
                configs=configs,
                limits=limits,
                log=note,
                hints=hints,
                workers=workers,
                probe_runners=dict.fromkeys(ProbeType, self.probes),
                measures=self.measures,
            )
            tasks.create_task(parts.engine.run(), name="timers")
            tasks.create_task(parts.router.run(), name="pauses")
            started.set_result(Worker(parts, standing, log))

    async def _feed(self, worker: Worker) -> None:
        """Hand each change to the worker's router, in order, as the feed's reader does."""
        while True:
            news = self.tables.listen()
            await self.drain(worker)
            await news.wait()

    async def drain(self, worker: Worker) -> None:
        for table in (TableName.CONTROL, TableName.JOBLOG):
            for change in await self.tables.changes(table, self.read_to.get(table, 0)):
                await self._hand_over(worker, change)
                self.read_to[table] = change.position

    async def _hand_over(self, worker: Worker, change: Change) -> None:
        """As the consumer does: trouble is tried again, poison is put aside."""
        for _ in range(100):
            try:
                return await worker.router.handle(change) if worker.router.wants(change) else None
            except RetryLater:
                await self.clock.sleep(1)
            except Rejected as problem:
                self.dead_letters.append(str(problem))
                return None
        raise AssertionError(f"{change.key} was never handled")

    async def adopt_orphans(self, worker: Worker, buckets: Iterable[int] = range(keys.ACTIVE_BUCKETS)) -> None:
        """What the holder of all buckets does when a session has died."""
        for number in buckets:
            async for row in ActiveRows(self.tables).in_bucket(number):
                if row.owner is None or not self.group.get(row.owner, False):
                    await self._adopt(worker, row)

    async def _adopt(self, worker: Worker, row: ActiveRow) -> None:
        for _ in range(100):
            try:
                return await worker.engine.adopt(row.kind, row.key)
            except RetryLater:
                await self.clock.sleep(1)  # the bucket's next look finds it still there
        raise AssertionError(f"{row.key} was never adopted")

    # --- what producers and people do ---------------------------------------------------------------------------------

    async def deploy(self, config: str = CONFIG) -> None:
        await deploy(self.tables, _loaded(config), self.clock)

    async def write(self, key: str, /, **data: Json) -> None:
        await Sensors(self.tables).put(ORDERS, key, data)

    async def ready(self, day: str = DAY, **data: Json) -> None:
        await self.write("ready", status="done", date=day, **data)

    async def count(self, rows: int, day: str = DAY) -> None:
        await self.write(f"count#{day}", rows=rows)

    async def ask_rerun(self, day: str = DAY, *, reason: str = "manual", supersede: bool = False) -> None:
        key, requests = run_key(day), Requests(self.tables)
        request = RerunRequest(
            reason=reason, requested_at=format_rfc3339(self.clock.now()), id=self._name(), supersede=supersede
        )
        await requests.ask_rerun(key, request, await requests.rerun_of(key))

    async def ask_trigger(self, day: str = DAY, *, reason: str = "came by mail", by: str = "mia") -> None:
        now = self.clock.now()
        request = TriggerRequest(reason=reason, requested_at=format_rfc3339(now), id=self._name(), by=by)
        await Requests(self.tables).ask_trigger(run_key(day), request, now)

    async def ask_cancel(self, day: str = DAY, *, reason: str = "not needed", waive: bool = False) -> None:
        key, requests = run_key(day), Requests(self.tables)
        request = CancelRequest(
            reason=reason, requested_at=format_rfc3339(self.clock.now()), id=self._name(), waive_sla=waive
        )
        await requests.ask_cancel(key, request, await requests.cancel_of(key))

    def _name(self) -> str:
        return f"person-{next(self.numbers)}"

    async def wait(self, **passed: float) -> None:
        """Let time pass, with all that happens in it."""
        await self.clock.sleep(timedelta(**passed).total_seconds())

    async def until(self, state: State, day: str = DAY) -> None:
        """Bring a run to a state by the shortest way."""
        await self.deploy()
        await self.ready(day)
        if state is State.EVALUATING:
            await self.settle()
            return
        if state is State.TRIGGERING:
            self.runner.hangs = asyncio.Event()
        await self.count(100, day)
        await self.settle()
        if state is State.STOPPING:
            self.runner.stops_slowly = True
            await self.ask_cancel(day)
        if state is State.COMPLETED:
            self.runner.finish()
            await self.wait(minutes=2)
        if state is State.FAILED_FINAL:
            self.runner.fail()
            await self.wait(minutes=2)
            self.runner.fail()
            await self.wait(minutes=2)
        await self.settle()
        assert await self.state(day) is state

    async def settle(self) -> None:
        """Long enough for what is under way, too short for any interval."""
        await self.wait(seconds=2)

    # --- what can be seen ---------------------------------------------------------------------------------------------

    async def run(self, day: str = DAY) -> Run | None:
        found = await Runs(self.tables).load(run_key(day))
        assert found is None or isinstance(found, Run)
        return found

    async def state(self, day: str = DAY) -> State | None:
        run = await self.run(day)
        return None if run is None else run.state

    async def watch(self, day: str = DAY) -> SlaWatch | None:
        return await SlaWatches(self.tables).load(run_key(day))

    async def events(self) -> list[str]:
        """The types of all events, in the order in which they were committed."""
        return [stored.event.type for stored in await self.stored_events()]

    async def stored_events(self) -> list[StoredEvent]:
        told = await Events(self.tables).latest(ORDERS)
        order = [change.key.sk for change in await self.tables.changes(TableName.EVENTS, 0)]
        return sorted(told, key=lambda stored: order.index(keys.stamped_sk(*_stamp(stored))))

    async def job_log(self, day: str = DAY) -> list[JobRecord]:
        return [record async for record in JobLog(self.tables).list(run_key(day))]

    async def reruns(self, day: str = DAY) -> list[RerunRecord]:
        return await Reruns(self.tables).list(run_key(day))


@cache  # the same few texts are deployed in thousands of worlds
def _loaded(config: str) -> Pipeline:
    loaded = load_text(config)
    assert loaded.pipeline is not None, loaded.errors
    return loaded.pipeline


def _stamp(stored: StoredEvent) -> tuple[datetime, str, str]:
    return stored.event.at, stored.event.type, stored.event.id


def run_key(day: str = DAY) -> RunKey:
    period = Period.parse(day)
    assert period is not None
    return RunKey(ORDERS, ScheduleId("stream"), period)


def store_in_memory(clock: VirtualClock) -> TablesWithFeed:
    """For tests that live one life hundreds of times: dictionaries, which take a third less time than SQLite.

    The contract suite holds both to the same answers. CHAOS_ROUNDS asks for SQLite.
    """
    return SqliteTables.in_memory(clock) if int(os.environ.get("CHAOS_ROUNDS", "0")) else MemoryTables(clock)


async def a_world(
    wrap: Callable[[ToldTables], Tables] = lambda tables: tables,
    *,
    start: datetime = NOON,
    make: Callable[[VirtualClock], TablesWithFeed] = SqliteTables.in_memory,
) -> World:
    """A world without a worker. `wrap` puts something between the workers and their store."""
    clock = VirtualClock(start)
    tables = ToldTables(make(clock))
    await tables.start()
    return World(clock, tables, FakeRunner(), wrap(tables))


async def begin(world: World, config: str = CONFIG) -> None:
    await world.deploy(config)
    await world.count(100)
    await world.ready()
