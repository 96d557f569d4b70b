"""What was delivered: by the feeds to the workers, and by the workers to the world."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from consumers.streams.consumer import Subscription
from consumers.streams.embedded.feed import FeedPosition
from tests.simulation.violations import Invariant, Verdicts
from worker.core.model import keys
from worker.core.model.events import Event
from worker.engine.intake.router import is_input
from worker.store.repos.events import event_of
from worker.store.table import Change, Put, TableName, Update, Write

REMEMBERED: Final = 50


@dataclass(slots=True)
class FeedLedger:
    """Knows of every record whether it was handled, so that no checkpoint may pass one that was not."""

    verdicts: Verdicts
    handled: "deque[Change]" = field(default_factory=lambda: deque[Change](maxlen=REMEMBERED))
    _open: dict[TableName, dict[int, Change]] = field(default_factory=dict[TableName, dict[int, Change]])
    _done: set[int] = field(default_factory=set[int])
    _checkpoints: dict[TableName, int] = field(default_factory=dict[TableName, int])
    _forgotten: list[Change] = field(default_factory=list[Change])  # by the feed, before they were handled

    def watched(self, table: TableName, subscription: Subscription) -> Subscription:
        unhandled = self._open.setdefault(table, {})

        def wants(change: Change) -> bool:
            is_wanted = subscription.wants(change)
            if is_wanted and change.position not in self._done:
                unhandled[change.position] = change
            elif not is_wanted and is_input(change):
                # This worker knows that nothing is to be done for it; another one may not know it yet.
                unhandled.pop(change.position, None)
                self._done.add(change.position)
            return is_wanted

        async def handle(change: Change) -> None:
            await subscription.handle(change)
            unhandled.pop(change.position, None)
            self._done.add(change.position)
            if table is TableName.CONTROL:
                self.handled.append(change)

        return replace(subscription, wants=wants, handle=handle)

    def is_done(self, change: Change) -> bool:
        return change.position in self._done

    def unread(self, kept: Iterable[Change]) -> list[Change]:
        """The inputs, of those that the feed keeps and those that it forgot, that no worker has taken note of yet.

        A reader that finds records forgotten looks at the rows instead, and sets its checkpoint behind them after that.
        """
        return [change for change in (*self._forgotten, *kept) if is_input(change) and not self._is_passed(change)]

    def _is_passed(self, change: Change) -> bool:
        return self.is_done(change) or change.position <= self._checkpoints.get(change.table, 0)

    def trimmed(self, forgotten: Iterable[Change]) -> None:
        """What was read is handled all the same; what was not can never be."""
        self._forgotten = self.unread(forgotten)
        for unhandled in self._open.values():
            unhandled.clear()

    def committed(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, Update) and "cp" in write.set and (lease := keys.lease_of(write.key.sk)):
                stream = lease[0].removeprefix("feed.")
                if stream in set(TableName):  # the position of the upkeep is a time
                    self._checkpointed(TableName(stream), str(write.set["cp"]))

    def _checkpointed(self, table: TableName, position: str) -> None:
        number = self._checkpoints[table] = FeedPosition.parse(position).number
        passed = [str(change.key) for at, change in self._open.get(table, {}).items() if at <= number]
        self.verdicts.require(
            not passed, Invariant.NOTHING_IS_LOST, f"the checkpoint of {table} passed what was not handled: {passed}"
        )


@dataclass(slots=True)
class Bus:
    """Where events go. Compared in the end with what was decided."""

    verdicts: Verdicts
    decided: dict[str, Event] = field(default_factory=dict[str, Event])
    delivered: set[str] = field(default_factory=set[str])

    async def deliver(self, event: Event) -> None:
        self.verdicts.require(
            event.id in self.decided,
            Invariant.NOTHING_IS_LOST,
            f"{event.type} {event.id} was delivered though we never decided it",
        )
        self.delivered.add(event.id)

    def committed(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.table is TableName.EVENTS and isinstance(write, Put):
                stored = event_of(write.row)
                if stored is not None and stored.out:
                    self._decided(stored.event)

    def _decided(self, event: Event) -> None:
        self.verdicts.require(
            event.id not in self.decided, Invariant.ONE_DECISION_ONE_COMMIT, f"event {event.id} was decided twice"
        )
        self.decided[event.id] = event

    @property
    def undelivered(self) -> list[Event]:
        return [event for id_, event in self.decided.items() if id_ not in self.delivered]
