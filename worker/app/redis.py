"""Wiring of workers on several machines that share a Redis or Valkey server."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from consumers.outbox.routes import Deliver, Route
from consumers.outbox.severities import told_to_people
from consumers.streams.consumer import ReadPace
from consumers.streams.redis.housekeeping import SliceHousekeeping
from consumers.streams.redis.lag import SliceLags
from consumers.streams.redis.slices import SlicedStream
from consumers.streams.sharded import ShardedConsumer
from scheduler.watchdog.checks.table import Watched
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, Tuning, WorkerDeps
from worker.app.embedded import CONSOLE, FOLLOWED, Options, open_resources, watched_without_queues
from worker.app.platforms import Resources
from worker.app.runners import CommandRoot
from worker.config.store_setting import GROUP
from worker.core.model.pipeline import JobType
from worker.jobs.runner import Runner
from worker.membership.clock_guard import ClockGuard
from worker.membership.lease_coordinator import LeaseOffer
from worker.net.http_client import HttpClient
from worker.runtime.clock import Clock
from worker.store.proven_access import ProvenAccess
from worker.store.redis.connections import Servers
from worker.store.redis.notices import ChangeNotices
from worker.store.redis.tables import RedisTables
from worker.store.repos.leases import Leases
from worker.store.table import TableName
from worker.store.url import RedisPlace

JOBS: Final = Path("interlock-jobs")  # in the directory that a worker is started in; hosts share no files
BEAT_SHARE: Final = 0.75  # of a heartbeat interval: then the heartbeat itself can still try again

# A notice wakes a reader: this pace is for when notices are lost.
_PACE: Final = ReadPace(poll_s=0.5, poll_idle_s=2.0)


class RedisPlatform:
    """The platform of workers on a Redis server; alerts go to the console, or to Slack."""

    group = GROUP

    def __init__(self, options: Options, place: RedisPlace, clock: Clock) -> None:
        self._options, self._place, self._clock = options, place, clock
        self._guard, self._proven = ClockGuard(clock), ProvenAccess()
        self._tables = RedisTables(Servers(place, proven=self._proven), clock, observe_time=self._guard.observe)

    @property
    def where(self) -> str:
        return self._place.shown

    @property
    def tables(self) -> RedisTables:
        return self._tables

    @property
    def guard(self) -> ClockGuard:
        return self._guard

    @property
    def witness(self) -> None:
        # Copies of one virtual machine share its boot id, and any of them can reach the store: nothing is proven.
        return None

    def beater_tables(self) -> RedisTables:
        """Return a second pair of connections, for the heartbeat's own thread."""
        answer_s = max(1.0, BEAT_SHARE * self._options.settings.timing.beat_s)
        servers = Servers(self._place, answer_s=answer_s, proven=self._proven)
        return RedisTables(servers, self._clock, observe_time=self._guard.observe)

    async def open(self, stack: AsyncExitStack) -> Resources:
        tables, clock = self._tables, self._clock
        return await open_resources(
            stack,
            self._options,
            clock,
            tables=tables,
            command=CommandRoot(path=JOBS.absolute(), is_shared=False),
            deps_of=lambda deliver, runners: redis_deps(tables, deliver, runners, clock),
            watchdog_of=self._watchdog,
        )

    def _watchdog(self, http: HttpClient) -> Watched:
        leases = Leases(self._tables, GROUP)
        return watched_without_queues(
            self._options.settings.alerts, http, lambda tables: SliceLags(self._tables, leases, self._clock, tables)
        )


def redis_deps(
    tables: RedisTables,
    alert: Deliver,
    runners: Mapping[JobType, Runner],
    clock: Clock,
) -> WorkerDeps:
    """Return the dependencies of a worker that shares the slices of its store's change feed with others."""

    async def wake_readers(readers: Readers) -> None:
        def wake(table: TableName, number: int | None) -> None:
            match readers.get(table):
                case ShardedConsumer() as sharded if number is not None:
                    sharded.wake_shard(str(number))  # to wake all would cost a request for each slice
                case None:
                    return
                case reader:
                    reader.wake()

        await ChangeNotices(tables.servers, clock).listen(wake)

    def extra_leases(_: Readers) -> list[LeaseOffer]:
        return [SliceHousekeeping(tables, Leases(tables, GROUP), frozenset(FOLLOWED), clock).offer()]

    return WorkerDeps(
        store=StoreDeps(group=GROUP, tables=tables, clock=clock),
        sources=SourceDeps(
            schedules=True,
            source_of=lambda table: SlicedStream(tables, table, clock),
            wake_readers=wake_readers,
            extra_leases=extra_leases,
        ),
        outputs=OutputDeps(routes=[Route(CONSOLE, told_to_people(), alert)], runners=runners),
        tuning=Tuning(pace=_PACE),
    )
