"""The wiring of one session: what is made anew for each, because nothing of it may outlive the session."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias, TypeVar

from consumers.feed import FeedWatcher, TableFeed, feed_name
from consumers.parking import Parking
from consumers.relay import Relay, dead_letter_source
from consumers.resync import Resync, tell_loss
from consumers.routes import Deliver, Route
from consumers.severities import told_to_people
from consumers.source import Gap
from consumers.stream import Beginning, Pace, StreamConsumer, Subscription
from consumers.tries import Tries
from consumers.upkeep import SmallStore, Upkeep
from scheduler.chores import Chore
from scheduler.cron import CronStarts
from scheduler.duty import NapTicker, SchedulerDuty, Ticker
from worker.app_workplace import Readers, Workplace, log_surprise
from worker.clock import Clock
from worker.core import keys
from worker.core.errors import RetryLater, WorkerError
from worker.core.pipeline import JobType
from worker.engine.engine import Engine
from worker.engine.router import Router
from worker.jobs.runner import Runner
from worker.membership.adoption import Adoption
from worker.membership.buckets import OrphanFinder
from worker.membership.heldlease import HeldLease
from worker.membership.leasekeeper import Offer
from worker.membership.memberstanding import MemberStanding
from worker.membership.sessions import Member
from worker.store.active import ActiveRows
from worker.store.deadletters import DeadLetters
from worker.store.events import Events
from worker.store.installation import installed_at
from worker.store.leases import Leases
from worker.store.parked import ParkedKeys
from worker.store.table import Change, ChangeFeed, TableName, Tables
from worker.undertakings import Undertakings

GROUP: Final = "embedded"
CONSOLE: Final = "console"
FOLLOWED: Final = (TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS)
# Where dead letters may be.
DEAD_LETTER_SOURCES: Final = (*(feed_name(table) for table in FOLLOWED), dead_letter_source(CONSOLE))

STARTS_MAX_S: Final = 4.0  # for the answers to starts that were sent, once nothing new is taken on
# A woken reader need not poll: this is for when waking fails.
_PACE: Final = Pace(poll_s=0.5, poll_idle_s=2.0)
# Rows that only workers write. What is not listed goes to the router, which knows what it needs.
_OURS: Final = ("TRIGGER#", "SLA#", "DRY_RUN#", "MARK#", "CONFIGVER#")
_OUR_PARTITIONS: Final = ("GROUP#", "LOCK#", keys.CONFIG_LOG)

T = TypeVar("T")
Handle: TypeAlias = Callable[[T], Awaitable[None]]


class EmbeddedTables(Tables, ChangeFeed, SmallStore, Protocol):
    """A store that keeps its own change feed and must be kept small."""


class Surprise(RetryLater):
    """Something nobody expected: tried again like any trouble, and kept as a dead letter if it stays."""


def embedded_workplace(
    tables: EmbeddedTables,
    alert: Deliver,
    runners: Mapping[JobType, Runner],
    clock: Clock,
    ticker: Ticker | None = None,
) -> Workplace:
    """Where a worker on one machine works: it watches its store's own feed, and keeps it small."""

    async def wake_readers(readers: Readers) -> None:
        await FeedWatcher(tables, clock, [reader.wake for reader in readers.values()]).run()

    def duties(readers: Readers) -> list[Offer]:
        streams = [reader.source.name for reader in readers.values()]
        return [Upkeep(tables, Leases(tables, GROUP), streams).offer()]

    return Workplace(
        group=GROUP,
        tables=tables,
        source_of=lambda table: TableFeed(tables, table, clock),
        wake_readers=wake_readers,
        routes=[Route(CONSOLE, told_to_people(), alert)],
        runners=runners,
        clock=clock,
        duties=duties,
        ticker=ticker or NapTicker(),
        pace=_PACE,
    )


class SessionWork:
    """Everything that acts in one session, from its engine to its relay."""

    def __init__(self, place: Workplace, member: Member, tasks: Undertakings) -> None:
        self._place, self._member, self._tasks = place, member, tasks
        self._tables, self._clock = place.tables, place.clock
        self._letters = DeadLetters(place.tables)
        self._tries = Tries(place.clock, place.tables.ping, place.patience)
        self._services: list[asyncio.Task[None]] = []
        self._engine: Engine | None = None
        self._router: Router | None = None

    @property
    def runs_held(self) -> int:
        """How many runs this session looks after."""
        return 0 if self._engine is None else len(self._engine)

    async def take_in(self, change: Change) -> None:
        """Take in a record once more, out of turn; before the session has begun, nothing happens."""
        if self._router is not None:
            await self._router.handle(change)

    async def begin(self) -> None:
        place, member = self._place, self._member
        began_at = await self._tries.insist(lambda: installed_at(self._tables, place.group, self._clock.now()))
        engine = self._engine = Engine(
            self._tables,
            place.runners,
            MemberStanding(member.fence, member.peers),
            self._clock,
            self._tasks,
            new_id=place.new_id,
            log=place.log,
        )
        router = self._router = Router(self._tables, engine, self._clock, began_at=began_at, log=place.log)
        adoption = Adoption(engine.adopt, self._clock, place.log)
        readers = self._readers(router)
        self._services = [
            self._tasks.create_task(engine.run(), name="timers"),
            self._tasks.create_task(adoption.run(), name="adoption"),
            self._tasks.create_task(router.run(), name="pauses"),
            self._tasks.create_task(place.wake_readers(readers), name="watcher"),
        ]
        reading = [reader.offer() for reader in readers.values()]
        for offer in (self._finder(adoption).offer(), *reading, *self._scheduling(engine), *place.duties(readers)):
            member.keeper.offer(offer)

    async def finish(self) -> None:
        """Fire no more timers, let the leases be given up, and wait a little for answers to what was started."""
        for service in self._services:
            service.cancel()
        while self._member.keeper.held:
            await self._clock.sleep(0.05)
        await self._tasks.wait_for("start:", timeout_s=STARTS_MAX_S)
        # What is left waits for something far off; its rows say so, and another worker takes them up.
        self._tasks.end_all()

    def _finder(self, adoption: Adoption) -> OrphanFinder:
        return OrphanFinder(
            ActiveRows(self._tables),
            self._member.peers,
            self._clock,
            adoption.take_up,
            leases=self._place.buckets.leases,
            pass_every_s=self._place.buckets.pass_every_s,
        )

    def _scheduling(self, engine: Engine) -> list[Offer]:
        ticker = self._place.ticker
        if ticker is None:
            return []

        def chores(held: HeldLease) -> list[Chore]:
            cron = CronStarts(self._tables, engine, self._clock, may_act=held.may_act, log=self._place.log)
            return [self._guarded(chore) for chore in cron.chores()]

        return [SchedulerDuty(chores, self._clock, ticker).offer()]

    def _guarded(self, chore: Chore) -> Chore:
        async def run(_: None) -> None:
            await chore.run()

        guarded = self._expecting_surprises(run)
        return replace(chore, run=lambda: guarded(None))

    def _readers(self, router: Router) -> Readers:
        handle = self._expecting_surprises(router.handle)
        resync = Resync(self._tables, self._expecting_surprises(router.resync), self._tries)
        relay = Relay(
            [Route(each.name, each.pattern, self._expecting_surprises(each.deliver)) for each in self._place.routes],
            events=Events(self._tables),
            letters=self._letters,
            tries=self._tries,
            clock=self._clock,
        )
        subscriptions = {
            TableName.CONTROL: self._facts(handle, resync.catch_up),
            TableName.JOBLOG: self._facts(handle, self._tell_loss),
            TableName.EVENTS: relay.subscription(),
        }
        return {table: self._reader(table, each) for table, each in subscriptions.items()}

    def _facts(self, handle: Handle[Change], catch_up: Handle[Gap | None]) -> Subscription:
        return Subscription(
            wants=is_from_others, lane_of=row_of, handle=handle, catch_up=catch_up, begin=Beginning.NEWEST
        )

    async def _tell_loss(self, gap: Gap | None) -> None:
        """What a lost job log row reported, the next poll or the run's time-out finds out."""
        if gap is not None:
            await tell_loss(self._tables, gap)

    def _reader(self, table: TableName, subscription: Subscription) -> StreamConsumer:
        source = self._place.source_of(table)
        parked = ParkedKeys(self._tables, self._place.group)
        return StreamConsumer(
            source=source,
            subscription=self._place.watched(table, subscription),
            parking=Parking(stream=source.name, letters=self._letters, keys=parked, clock=self._clock),
            tries=self._tries,
            clock=self._clock,
            pace=self._place.pace,
        )

    def _expecting_surprises(self, handle: Handle[T]) -> Handle[T]:
        return expecting_surprises(handle, self._place.on_surprise)


def is_from_others(change: Change) -> bool:
    """Say whether a row may be a fact: most changes are our own writing."""
    return not change.key.sk.startswith(_OURS) and not change.key.pk.startswith(_OUR_PARTITIONS)


def row_of(change: Change) -> str:
    return f"{change.key.pk} {change.key.sk}"


def expecting_surprises(handle: Handle[T], tell: Callable[[Exception], None] = log_surprise) -> Handle[T]:
    """Keep a thing that meets a mistake of ours from ending the worker, again and again after every restart."""

    async def guarded(thing: T) -> None:
        try:
            await handle(thing)
        except WorkerError:
            raise
        except Exception as error:
            tell(error)
            raise Surprise(
                f"{type(error).__name__}: {error}; this is a mistake in Interlock, please report it"
            ) from error

    return guarded
