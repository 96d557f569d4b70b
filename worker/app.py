"""The wiring: every adapter is made here, joined here, and ended here in order.

An embedded worker is one process on one SQLite file, or one of several on the same file. Everything that must have one
holder is a lease; what a session held when it was lost begins anew from the rows in the next one.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar

from consumers.console import DIGEST_EVERY, ConsoleAlerts, WriteLine
from consumers.feed import FeedWatcher, TableFeed
from consumers.parking import Parking
from consumers.relay import Relay
from consumers.resync import Resync, tell_loss
from consumers.routes import Route
from consumers.severities import told_to_people
from consumers.source import Gap
from consumers.stream import Beginning, Pace, StreamConsumer, Subscription
from consumers.tries import Tries
from consumers.upkeep import Upkeep
from worker.adoption import Adoption
from worker.beaters import ThreadBeater
from worker.buckets import OrphanFinder
from worker.clock import Clock
from worker.core import keys
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.core.pipeline import JobType
from worker.engine import Engine
from worker.jobs.addresses import AddressPolicy
from worker.jobs.command import CommandRunner, minimal_environment
from worker.jobs.http import HttpRunner
from worker.jobs.http_client import HttpClient
from worker.jobs.runner import Runner
from worker.jobs.secrets import EnvironmentSecrets
from worker.logs import logger
from worker.memberstanding import MemberStanding
from worker.router import Router
from worker.sessions import Group, Member, Membership, session_ids
from worker.settings import Settings
from worker.store.active import ActiveRows
from worker.store.deadletters import DeadLetters
from worker.store.events import Events
from worker.store.installation import installed_at
from worker.store.leases import Leases
from worker.store.open import SqlitePlace, locate
from worker.store.parked import ParkedKeys
from worker.store.sqlite import SqliteTables
from worker.store.table import Change, TableName
from worker.worklog import log_notice, log_work

GROUP: Final = "embedded"
STARTS_MAX_S: Final = 4.0  # for the answers to starts that were sent, once nothing new is taken on
SWEEP_JOBS_EVERY_S: Final = 3600.0
# A woken reader need not poll: this is for when waking fails.
_PACE: Final = Pace(poll_s=0.5, poll_idle_s=2.0)
# Rows that only workers write. What is not listed goes to the router, which knows what it needs.
_OURS: Final = ("TRIGGER#", "SLA#", "DRY_RUN#", "MARK#", "CONFIGVER#")
_OUR_PARTITIONS: Final = ("GROUP#", "LOCK#", keys.CONFIG_LOG)

_log = logger()

T = TypeVar("T")
Handle = Callable[[Change], Awaitable[None]]


class Surprise(RetryLater):
    """Something nobody expected: tried again like any trouble, and kept as a dead letter if it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a worker on one machine is run."""

    settings: Settings
    environment: Mapping[str, str]
    write_alert: WriteLine
    digest_every: timedelta | None = DIGEST_EVERY  # None: every success gets its own line


class EmbeddedWorker:
    """One worker on a SQLite file. `run` it once; `stop` ends it in order, within 25 s."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._path = sqlite_path(options.settings.store)
        self._tables = SqliteTables(self._path, clock)
        self._alerts = ConsoleAlerts(options.write_alert, clock, options.digest_every)
        self._membership = Membership(
            Group(name=GROUP, program=version("interlock"), timing=options.settings.timing),
            tables=self._tables,
            beater=ThreadBeater(lambda: SqliteTables(self._path, clock)),
            clock=clock,
            new_session_id=session_ids(socket.gethostname()),
            notify=log_notice,
        )

    def stop(self) -> None:
        """Take nothing more, finish what is in hand, give everything up, end the session."""
        _log.info("worker.stopping")
        self._membership.stop()

    async def run(self) -> None:
        """Work until stopped. Raises `ConfigError` and `RetryLater` if the store cannot be opened."""
        async with AsyncExitStack() as stack:
            await self._tables.start()
            stack.push_async_callback(self._tables.stop)
            client = await stack.enter_async_context(HttpClient(AddressPolicy.parse(self._options.settings.http_allow)))
            _log.info("worker.started", store=str(self._path), version=version("interlock"))
            await self._serve(client)
        _log.info("worker.stopped")

    async def _serve(self, client: HttpClient) -> None:
        secrets = EnvironmentSecrets(self._options.environment)
        command = CommandRunner(
            root=self._path.with_name(f"{self._path.name}-jobs").absolute(),
            clock=self._clock,
            secrets=secrets,
            environment=minimal_environment(self._options.environment, self._options.settings.job_environment),
        )
        runners = {JobType.COMMAND: command, JobType.HTTP: HttpRunner(client, self._clock, secrets)}
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._alerts.run(), name="digests"),
                tasks.create_task(self._sweep_jobs(command), name="sweep-jobs"),
            ]
            await self._membership.serve(lambda member: self._work(member, runners))
            for task in beside:
                task.cancel()

    async def _work(self, member: Member, runners: Mapping[JobType, Runner]) -> None:
        """One session: everything of it runs until the session ends or is asked to."""
        async with asyncio.TaskGroup() as tasks:
            session = _Session(self._tables, self._alerts, self._clock, member, tasks)
            await session.begin(runners)
            await member.stopping.wait()
            await session.finish()

    async def _sweep_jobs(self, command: CommandRunner) -> None:
        while True:
            with suppress(OSError):  # what cannot be removed now is tried again
                await command.sweep()
            await self._clock.sleep(SWEEP_JOBS_EVERY_S)


class _Session:
    """What is made anew for each session, because it must not outlive it."""

    def __init__(
        self, tables: SqliteTables, alerts: ConsoleAlerts, clock: Clock, member: Member, tasks: asyncio.TaskGroup
    ) -> None:
        self._tables, self._alerts, self._clock, self._member, self._tasks = tables, alerts, clock, member, tasks
        self._letters, self._tries = DeadLetters(tables), Tries(clock, tables.ping)
        self._services: list[asyncio.Task[None]] = []

    async def begin(self, runners: Mapping[JobType, Runner]) -> None:
        began_at = await self._tries.insist(lambda: installed_at(self._tables, GROUP, self._clock.now()))
        standing = MemberStanding(self._member.fence, self._member.peers)
        engine = Engine(self._tables, runners, standing, self._clock, self._tasks, log=log_work)
        router = Router(self._tables, engine, self._clock, began_at=began_at, log=log_work)
        adoption = Adoption(engine.adopt, self._clock, log_work)
        finder = OrphanFinder(ActiveRows(self._tables), self._member.peers, self._clock, adoption.take_up)
        readers = self._readers(router)
        watcher = FeedWatcher(self._tables, self._clock, [reader.wake for reader in readers])
        upkeep = Upkeep(self._tables, Leases(self._tables, GROUP), [reader.source.name for reader in readers])
        self._services = [
            self._tasks.create_task(work, name=name)
            for name, work in (("timers", engine.run()), ("adoption", adoption.run()), ("watcher", watcher.run()))
        ]
        for offer in (finder.offer(), *(reader.offer() for reader in readers), upkeep.offer()):
            self._member.keeper.offer(offer)

    async def finish(self) -> None:
        """Fire no more timers, let the leases be given up, and wait a little for answers to what was started."""
        for service in self._services:
            service.cancel()
        while self._member.keeper.held:
            await self._clock.sleep(0.05)
        if starts := _tasks_named("start:"):
            await asyncio.wait(starts, timeout=STARTS_MAX_S)
        # What is left waits for something far off; its rows say so, and another worker takes them up.
        for task in _tasks_named("start:", "FindJob:", "PollNow:", "StopJob:", "wake:", "pass:"):
            task.cancel()

    def _readers(self, router: Router) -> list[StreamConsumer]:
        handle, resync = (
            expecting_surprises(router.handle),
            Resync(self._tables, expecting_surprises(router.resync), self._tries),
        )
        relay = Relay(
            [Route("console", told_to_people(), expecting_surprises(self._alerts.deliver))],
            events=Events(self._tables),
            letters=self._letters,
            tries=self._tries,
            clock=self._clock,
        )
        return [
            self._reader(TableName.CONTROL, self._facts(handle, resync.catch_up)),
            self._reader(TableName.JOBLOG, self._facts(handle, self._tell_loss)),
            self._reader(TableName.EVENTS, relay.subscription()),
        ]

    def _facts(self, handle: Handle, catch_up: Callable[[Gap | None], Awaitable[None]]) -> Subscription:
        return Subscription(
            wants=is_from_others, lane_of=row_of, handle=handle, catch_up=catch_up, begin=Beginning.NEWEST
        )

    async def _tell_loss(self, gap: Gap | None) -> None:
        """What a lost job log row reported, the next poll or the run's time-out finds out."""
        if gap is not None:
            await tell_loss(self._tables, gap)

    def _reader(self, table: TableName, subscription: Subscription) -> StreamConsumer:
        source = TableFeed(self._tables, table, self._clock)
        parked = ParkedKeys(self._tables, GROUP)
        return StreamConsumer(
            source=source,
            subscription=subscription,
            parking=Parking(stream=source.name, letters=self._letters, keys=parked, clock=self._clock),
            tries=self._tries,
            clock=self._clock,
            pace=_PACE,
        )


def sqlite_path(url: str) -> Path:
    """The file a URL names. Raises `ConfigError` if it names another kind of store."""
    match locate(url):
        case SqlitePlace(path):
            return path
        case _:
            raise ConfigError(
                f"`interlock run` works on a SQLite file, and the store is {url!r}: its changes cannot be read by "
                "this version; use --store sqlite:///interlock.db"
            )


def is_from_others(change: Change) -> bool:
    """Say whether a row may be a fact: most changes are our own writing."""
    return not change.key.sk.startswith(_OURS) and not change.key.pk.startswith(_OUR_PARTITIONS)


def row_of(change: Change) -> str:
    return f"{change.key.pk} {change.key.sk}"


def expecting_surprises(handle: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
    """Keep a thing that meets a mistake of ours from ending the worker, again and again after every restart."""

    async def guarded(thing: T) -> None:
        try:
            await handle(thing)
        except WorkerError:
            raise
        except Exception as error:
            _log.exception("mistake.met")
            raise Surprise(
                f"{type(error).__name__}: {error}; this is a mistake in Interlock, please report it"
            ) from error

    return guarded


def _tasks_named(*beginnings: str) -> set[asyncio.Task[object]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith(beginnings)}
