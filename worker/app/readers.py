"""Stream readers: which tables a worker follows, what handles their changes, and its lease offers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import random
from typing import Final, TypeAlias, TypeVar

from consumers.delivery.retry import RetryPolicy
from consumers.outbox.dead_letter_replay import Replayer, Way, delivered, handled
from consumers.outbox.relay import Relay, dead_letter_source
from consumers.streams.consumer import Beginning, ReadPace, StreamConsumer, Subscription
from consumers.streams.parking import Parking
from consumers.streams.resync import Resync, halting, tell_loss
from consumers.streams.settle import OnFailure
from consumers.streams.sharded import ShardedConsumer, ShardTree
from consumers.streams.source import Gap, Stream
from worker.app.dependencies import Readers, WorkerDeps
from worker.config.lease_roles import TABLE_ROLES
from worker.config.roles import ALL_ROLES, Role
from worker.engine.intake.resync import PipelineResync
from worker.engine.intake.router import Router
from worker.membership.lease_coordinator import LeaseKeeper, LeaseOffer
from worker.runtime.error_boundary import ErrorBoundary
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.events import Events
from worker.store.repos.leases import Leases
from worker.store.table import Change, TableName, Tables

T = TypeVar("T")
Handler: TypeAlias = Callable[[T], Awaitable[None]]

HALT: Final = "halt"


class ReaderFactory:
    """Creates the readers of one session."""

    def __init__(self, deps: WorkerDeps, tables: Tables, keeper: LeaseKeeper, tries: RetryPolicy) -> None:
        self._deps, self._keeper, self._tries = deps, keeper, tries
        self._tables, self._clock = tables, deps.store.clock
        self._letters, self._boundary = DeadLetters(tables), ErrorBoundary(deps.outputs.on_unexpected_error)
        self._routes = [replace(each, deliver=self._boundary.around(each.deliver)) for each in deps.outputs.routes]

    def readers(self, router: Router, resync: PipelineResync) -> Readers:
        """Return a reader for each table whose role this worker has."""
        followed = {
            table: self._subscription(table, router, resync) for table, role in TABLE_ROLES.items() if self._has(role)
        }
        return {table: self._reader(table, subscription) for table, subscription in followed.items()}

    def offers(self, readers: Readers) -> list[LeaseOffer]:
        return [offer for reader in readers.values() for offer in self._of(reader)]

    def replaying(self, readers: Readers, router: Router) -> list[LeaseOffer]:
        """Return the leases for replaying dead letters, each with the handler that first failed on it."""
        handle = handled(self._boundary.around(router.handle))
        facts = {reader.name: handle for table, reader in readers.items() if TABLE_ROLES[table] is Role.ENGINE}
        # An event has dead letters of two kinds: of one route that did not accept it, and of a record that no route
        # saw.
        relay = handled(self._boundary.around(self._relay().handle))
        events = {reader.name: relay for table, reader in readers.items() if TABLE_ROLES[table] is Role.RELAY}
        routes = {dead_letter_source(each.name): delivered(each.deliver) for each in self._routes} | events
        if self._deps.roles == ALL_ROLES:
            return [self._replayer({**facts, **routes, **self._deps.outputs.dead_letter_handlers}).offer()]
        # Workers that only consume queues have no session, and so no work that must have one holder.
        parts = {Role.ENGINE: {**facts, **self._deps.outputs.dead_letter_handlers}, Role.RELAY: routes}
        return [self._replayer(ways, part).offer() for part, ways in parts.items() if self._has(part)]

    def _replayer(self, ways: Mapping[str, Way], part: str = "") -> Replayer:
        return Replayer(
            ways,
            requests=Replays(self._tables, self._deps.store.group),
            letters=self._letters,
            keys=ParkedKeys(self._tables, self._deps.store.group),
            tries=self._tries,
            part=part,
        )

    def _has(self, role: Role) -> bool:
        return role in self._deps.roles

    def _of(self, reader: StreamConsumer | ShardedConsumer) -> list[LeaseOffer]:
        if isinstance(reader, StreamConsumer):
            return [reader.offer()]
        tree = ShardTree(
            stream=reader.stream,
            subscription=reader.subscription,
            leases=Leases(self._tables, self._deps.store.group),
            tries=self._tries,
            clock=self._clock,
            added=self._keeper.wake,
            jitter=random,
        )
        return [reader.offer(), tree.offer()]

    def _reader(self, table: TableName, subscription: Subscription) -> StreamConsumer | ShardedConsumer:
        source = self._deps.sources.source_of(table)
        keys_parked = ParkedKeys(self._tables, self._deps.store.group)
        parking = Parking(stream=source.name, letters=self._letters, keys=keys_parked, clock=self._clock)
        chosen = self._by_policy(table, subscription)
        watched, tries, clock = self._deps.sources.observe(table, chosen), self._tries, self._clock
        pace, budget = self._pace(table), self._deps.tuning.budget
        if isinstance(source, Stream):
            return ShardedConsumer(
                stream=source,
                subscription=watched,
                parking=parking,
                tries=tries,
                clock=clock,
                pace=pace,
                budget=budget,
            )
        return StreamConsumer(
            source=source,
            subscription=watched,
            parking=parking,
            tries=tries,
            clock=clock,
            pace=pace,
            budget=budget,
        )

    def _pace(self, table: TableName) -> ReadPace:
        lanes = self._deps.tuning.event_lanes if table is TableName.EVENTS else None
        return self._deps.tuning.pace if lanes is None else replace(self._deps.tuning.pace, lanes=lanes)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _subscription(self, table: TableName, router: Router, resync: PipelineResync) -> Subscription:
        match table:
            case TableName.EVENTS:
                relay = self._relay()
                return replace(relay.subscription(), handle=self._boundary.around(relay.handle))
            case TableName.CONTROL:
                around, first = self._boundary.around, resync.run if self._deps.store.is_shared else resync.run_first
                resync_all = Resync(self._tables, around(resync.run), self._tries, self._clock, first=around(first))
                return self._facts(router, resync_all.catch_up)
            case _:
                return self._facts(router, self._tell_loss)

    def _by_policy(self, table: TableName, subscription: Subscription) -> Subscription:
        """Apply the settings for records that fail, and for records that are lost."""
        reading, catch_up = self._deps.tuning.reading, subscription.catch_up
        halts = reading.on_loss.get(table) == HALT
        return replace(
            subscription,
            on_failure=OnFailure(reading.on_failure.get(table, OnFailure.PARK_KEY)),
            catch_up=halting(self._tables, catch_up) if halts else catch_up,
        )

    def _relay(self) -> Relay:
        return Relay(
            self._routes,
            events=Events(self._tables),
            letters=self._letters,
            tries=self._tries,
            clock=self._clock,
            on_sent=self._deps.outputs.on_sent,
        )

    def _facts(self, router: Router, catch_up: Handler[Gap | None]) -> Subscription:
        return Subscription(
            wants=router.wants,
            lane_of=row_of,
            handle=self._boundary.around(router.handle),
            catch_up=catch_up,
            begin=Beginning.NEWEST,
        )

    async def _tell_loss(self, gap: Gap | None) -> None:
        """Report a lost job log row; the next poll or the run timeout finds what it reported."""
        if gap is not None:
            await tell_loss(self._tables, gap)


def row_of(change: Change) -> str:
    return f"{change.key.pk} {change.key.sk}"
