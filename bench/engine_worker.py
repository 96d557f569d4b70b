"""A whole worker on a SQLite file inside the benchmark: everything that `interlock run` wires, but the jobs.

Its target lives in the same process and is done at once, so that what is measured is the worker.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from worker.app.embedded import embedded_deps
from worker.app.redis import redis_deps
from worker.app.session import SessionWork
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.store_setting import GROUP
from worker.core.model.events import Event
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType, Pipeline, PipelineId, ScheduleId
from worker.core.time.periods import Period
from worker.jobs.runner import (
    Config,
    Guarantee,
    Handle,
    JobStatus,
    StartAnswer,
    Started,
    StartRequest,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
)
from worker.membership.heartbeat_threads import ThreadBeater
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime.clock import SystemClock
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import configure_logs
from worker.store.backends.open import open_tables
from worker.store.redis.tables import RedisTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

# Calls to one target are limited, so the runs are spread over many, as those of a real installation are.
PIPELINES: Final = 64
SCHEDULE: Final = ScheduleId("stream")
BEGAN_AT: Final = datetime.now(UTC)

_CONFIG: Final = """
pipeline: {{id: {name}}}
schedule:
  trigger: {{key: ready, check: equals, field: status, value: done}}
  evaluation: {{window: 12h, interval: 5m}}
validation:
  rules:
    - {{key: {awaited}, check: exists}}
job:
  type: http
  config: {{url: "https://{name}.example.com/jobs"}}
"""


def pipeline_id(number: int) -> PipelineId:
    return PipelineId(f"orders-{number % PIPELINES:02d}")


def key_of(number: int) -> RunKey:
    """The runs of all pipelines in turn, hour by hour into the past."""
    hour = BEGAN_AT - timedelta(hours=1 + number // PIPELINES)
    return RunKey(pipeline_id(number), SCHEDULE, Period(hour.date(), hour.hour))


def pipeline(number: int, awaited: str) -> Pipeline:
    """One that starts on `ready`, and begins its job once the sensor `awaited` is there."""
    loaded = load_text(_CONFIG.format(name=pipeline_id(number), awaited=awaited)).pipeline
    assert loaded is not None
    return loaded


async def deploy_all(tables: Tables, awaited: str) -> None:
    for number in range(PIPELINES):
        await deploy(tables, pipeline(number, awaited), SystemClock())


class InProcess:
    """A target whose jobs are over as soon as they have begun."""

    def __init__(self, on_start: Callable[[StartRequest], None]) -> None:
        self._on_start = on_start

    def traits(self, _config: Config, /) -> Traits:
        return Traits(guarantee=Guarantee.EXACTLY_ONCE, can_stop=True)

    async def start(self, request: StartRequest, /) -> StartAnswer:
        self._on_start(request)
        return Started({"id": request.token})

    async def status(self, _handle: Handle, _config: Config, /) -> JobStatus:
        return Succeeded()

    async def find(self, token: str, _config: Config, /) -> Handle | None:
        return {"id": token}

    async def stop(self, _handle: Handle, _config: Config, /) -> StopAnswer:
        return Stopped()


class BenchWorker:
    """What the benchmark sees of the worker."""

    def __init__(self) -> None:
        self.session: SessionWork | None = None
        self.completed = 0
        self.on_start: Callable[[StartRequest], None] = lambda _: None
        self._awaited, self._reached = 0, asyncio.Event()

    def start(self, request: StartRequest) -> None:
        self.on_start(request)

    async def count(self, event: Event) -> None:
        """Take what the relay brings: an event is there only after its commit is on the disk."""
        self.completed += event.type == "JOB_COMPLETED"
        if self.completed >= self._awaited:
            self._reached.set()

    async def until_completed(self, count: int) -> None:
        self._awaited, self._reached = count, asyncio.Event()
        if self.completed < count:
            await self._reached.wait()

    @property
    def runs_held(self) -> int:
        return 0 if self.session is None else self.session.runs_held

    async def until_held(self, count: int) -> None:
        while self.runs_held < count:  # noqa: ASYNC110 - the worker tells nobody, and need not
            await asyncio.sleep(0.01)


def store_of(url: str) -> Tables:
    """The store that a URL names, as a worker has it."""
    return open_tables(url, SystemClock())


@asynccontextmanager
async def worker_on(url: str) -> AsyncGenerator[BenchWorker]:
    """A worker in its session; it leaves in order at the end."""
    seen, clock = BenchWorker(), SystemClock()
    runner = InProcess(seen.start)
    tables = store_of(url)
    if isinstance(tables, RedisTables):
        deps = redis_deps(tables, seen.count, {JobType.HTTP: runner}, clock)
    else:
        assert isinstance(tables, SqliteTables)
        deps = embedded_deps(tables, seen.count, {JobType.HTTP: runner}, clock)
    membership = Membership(
        GroupSettings(name=GROUP, program="bench"),
        tables=tables,
        beater=ThreadBeater(lambda: store_of(url)),
        clock=clock,
        new_session_id=session_ids("bench"),
    )

    async def work(member: Member) -> None:
        async with TrackedTaskGroup() as tasks:
            session = SessionWork(deps, member, tasks)
            await session.begin()
            seen.session = session
            await member.stopping.wait()
            await session.finish()

    await tables.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(membership.serve(work), name="worker")
        yield seen
        membership.stop()
    await tables.stop()


@contextmanager
def logging_to_nowhere() -> Generator[None]:
    """Every line is made, as it is in production, and none is kept."""
    with Path(os.devnull).open("w") as nowhere:
        configure_logs(nowhere, SystemClock())
        yield
