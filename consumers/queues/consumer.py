"""Consume a queue: receive messages, extend their visibility while they are handled, then settle them.

The consumer never receives more messages than it has room for. A message ends in one of four ways: it is done, it
failed (the queue shows it again, later each time), it was kept as a dead letter, or it was released unhandled. Until
the queue has confirmed the outcome, the message is in flight. The counts always add up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeAlias

from consumers.delivery.lanes import Lanes
from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.queues.polls import Permits, Polling, Polls
from consumers.queues.queue import Message, QueueCalls
from consumers.queues.settle import Acknowledger, MessageOutcome, QueueCounts
from consumers.queues.visibility import InFlight, VisibilityKeeper
from worker.core.errors import Rejected, RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import logger
from worker.store.table import StaleWrite

POLL_LATE_S: Final = 1.0  # how long a poll may take beyond the requested wait during a stop
# Waits before the next receipt, by the number of failures of a message. After the last one the message becomes a dead
# letter.
RETRIES: Final = Backoff(attempts_max=5, first_s=2.0, longest_s=900.0)

# A consumer is stuck if it makes no poll and ends no message for this long: its handlers hang, or its polls do. A poll
# takes seconds, and a single slow handler does not block the other messages in flight.
STUCK_AFTER_S: Final = 300.0
LOOKED_AFTER_S: Final = 30.0

# Returns once its effects are durable, because the consumer then deletes the message. Any message may arrive twice.
# Raises `RetryLater`, and `Rejected` for a message that can never be handled. It may take long: the consumer extends
# the visibility of the message meanwhile.
Handle: TypeAlias = Callable[[Message], Awaitable[None]]
# Stores a message that cannot be handled as a dead letter, durably.
Park: TypeAlias = Callable[[Message, GivenUp], Awaitable[None]]
# Counts a failure of a message and returns the number of its failures, including this one.
Failed: TypeAlias = Callable[[Message], Awaitable[int]]

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePace:
    in_hand_max: int = 100
    polling: Polling = field(default_factory=Polling)
    retries: Backoff = RETRIES
    finish_s: float = 15.0  # limit for handlers during a stop
    settle_s: float = 3.0  # limit for settling messages, after the last poll and handler


@dataclass(slots=True, kw_only=True)
class QueueConsumer:
    """Handles the messages of one queue. Call `run` once; `stop` drains it within 25 s.

    If `park` is None, a message that cannot be handled goes back to the queue until the queue's redrive policy removes
    it.
    """

    name: str
    calls: QueueCalls
    handle: Handle
    tries: RetryPolicy
    clock: Clock
    park: Park | None = None
    # None: every receipt counts as a failure, also a receipt that a stopping worker released.
    failed: Failed | None = None
    # Says that handling goes on trying, because what it hands things to is away: nothing ends then, and none is stuck.
    is_waiting: Callable[[], bool] = lambda: False
    pace: QueuePace = field(default_factory=QueuePace)
    counts: QueueCounts = field(default_factory=QueueCounts)
    _work: "_Work | None" = None
    _is_stopped: bool = False

    @property
    def in_flight(self) -> int:
        return 0 if self._work is None else self._work.in_flight

    @property
    def is_well(self) -> bool:
        """Return False if the consumer neither polls nor waits, so that an operator must act."""
        return self._work is None or not self._work.is_stuck

    @property
    def polls_at_once(self) -> int:
        """Return the highest number of concurrent polls so far."""
        return 0 if self._work is None else self._work.polls_at_once

    async def run(self) -> None:
        """Consume until stopped. Raises a group of `ConfigError` if the queue cannot be used."""
        async with TrackedTaskGroup() as tasks:
            self._work = _Work(self, tasks)
            if not self._is_stopped:
                await self._work.run()
            tasks.end_all()

    def stop(self) -> None:
        """Receive nothing more and finish the messages in flight. A second call stops their handlers."""
        if self._work is not None:
            self._work.stop(at_once=self._is_stopped)
        self._is_stopped = True


class _Work:
    """Holds the state of a consumer from its start to its end."""

    def __init__(self, consumer: QueueConsumer, tasks: TrackedTaskGroup) -> None:
        self._tasks = tasks
        self._consumer, self._counts, self._pace = consumer, consumer.counts, consumer.pace
        self._clock = consumer.clock
        self._custody = VisibilityKeeper(consumer.calls, consumer.clock, consumer.pace.polling.visibility_s)
        self._permits = Permits(consumer.pace.in_hand_max)
        self._polls = Polls(
            consumer.calls, consumer.pace.polling, self._permits, arrived=self._arrived, clock=consumer.clock
        )
        self._lanes: Lanes[InFlight] = Lanes(tasks, self._attend)
        self._settling = Acknowledger(consumer.calls, self._custody, self._ended, tasks=tasks, clock=consumer.clock)
        self._stopping = asyncio.Event()
        self._is_out_of_time = False
        self._moved_at = consumer.clock.monotonic()

    @property
    def is_stuck(self) -> bool:
        quiet_s = self._clock.monotonic() - max(self._polls.asked_at, self._moved_at)
        return quiet_s > STUCK_AFTER_S and not self._is_excused

    @property
    def _is_excused(self) -> bool:
        """Return whether a lack of progress is expected, so that a restart would not help.

        This is so while the consumer stops, and while the store or the destination of the handlers is unavailable.
        """
        return self._stopping.is_set() or self._consumer.tries.is_waiting or self._consumer.is_waiting()

    @property
    def in_flight(self) -> int:
        return len(self._custody)

    @property
    def polls_at_once(self) -> int:
        return self._polls.most_at_once

    # --- Life cycle ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until stopped, then until every message is settled or the time limits are reached."""
        name = self._consumer.name
        self._tasks.create_task(self._custody.keep(), name=f"queue-guard:{name}")
        self._tasks.create_task(self._custody.watch(), name=f"queue-watch:{name}")
        self._tasks.create_task(self._excuse(), name=f"queue-excuse:{name}")
        self._polls.start(self._tasks)
        await self._stopping.wait()
        self._tasks.create_task(self._stop_handlers_later(), name=f"queue-deadline:{name}")
        self._permits.close()
        self._settling.polls_end()
        await self._polls_run_out()
        self._settling.polls_ended()
        await self._lanes.drained()
        await self._settled()

    async def _excuse(self) -> None:
        """Restart the stuck timer during every expected wait, until cancelled.

        The messages that waited then get the full time to finish.
        """
        while True:
            await self._clock.sleep(LOOKED_AFTER_S)
            if self._is_excused:
                self._moved_at = self._clock.monotonic()

    async def _polls_run_out(self) -> None:
        try:
            async with asyncio.timeout(self._pace.polling.wait_s + POLL_LATE_S):
                await self._polls.ran_out()
        except TimeoutError:
            # The queue shows the messages of this poll again when their visibility ends.
            _log.warning("queue.poll_abandoned", queue=self._consumer.name)

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(self._pace.settle_s):
                await self._custody.emptied()
        except TimeoutError:
            # The handlers have ended. The queue shows these messages to other consumers when their visibility ends.
            _log.warning("queue.left_unsettled", queue=self._consumer.name, messages=len(self._custody))

    def stop(self, *, at_once: bool) -> None:
        self._stopping.set()
        if at_once:
            self._stop_handlers()

    async def _stop_handlers_later(self) -> None:
        await self._clock.sleep(self._pace.finish_s)
        self._stop_handlers()

    def _stop_handlers(self) -> None:
        self._is_out_of_time = True
        for held in self._custody:
            held.stop()

    # --- Handling -----------------------------------------------------------------------------------------------------

    def _arrived(self, messages: Sequence[Message]) -> int:
        """Take messages in flight and return how many of them are new."""
        taken = [held for message in messages if (held := self._custody.take(message)) is not None]
        self._counts.received += len(taken)
        self._counts.repeated += len(messages) - len(taken)
        for held in taken:
            self._lanes.put(held.message.group or held.message.id, held)
        return len(taken)

    async def _attend(self, _lane: str, held: InFlight) -> None:
        """Handle one message and hand its outcome to the acknowledger."""
        held.is_attended = True
        # Messages of the last polls are handled while there is time: to return them would cost one more delivery.
        if held.is_unwanted or self._is_out_of_time:
            self._return(held, MessageOutcome.RELEASED, visible_in_s=0)
            return
        try:
            async with asyncio.timeout(None) as held.scope:
                await self._handle(held)
        except TimeoutError:
            if held.scope is None or not held.scope.expired():
                raise
            self._return(held, MessageOutcome.RELEASED, visible_in_s=0)
        finally:
            held.scope = None

    async def _handle(self, held: InFlight) -> None:
        try:
            # While it is our store that is in trouble, and not the message, this receipt goes on.
            await self._consumer.tries.while_store_down(lambda: self._consumer.handle(held.message))
        except Rejected as error:
            await self._give_up(held, str(error))
        except (RetryLater, StaleWrite) as error:
            await self._failed(held, str(error))
        else:
            self._settling.delete(held, MessageOutcome.DONE)

    async def _failed(self, held: InFlight, reason: str) -> None:
        failed, retries = self._consumer.failed, self._pace.retries
        tried = held.message.receive_count if failed is None else await failed(held.message)
        if tried >= retries.attempts_max and self._consumer.park is not None:
            await self._give_up(held, f"failed {tried} times, last: {reason}")
            return
        _log.warning("message.failed", queue=self._consumer.name, message=held.message.id, tried=tried, reason=reason)
        self._return(held, MessageOutcome.FAILED, visible_in_s=max(1, ceil(retries.wait_s(min(tried, 20)))))

    async def _give_up(self, held: InFlight, reason: str) -> None:
        if self._consumer.park is None:
            self._return(held, MessageOutcome.FAILED, visible_in_s=ceil(self._pace.retries.longest_s))
            return
        await self._consumer.park(held.message, GivenUp(reason, (reason,)))
        _log.error("message.parked", queue=self._consumer.name, message=held.message.id, reason=reason)
        self._settling.delete(held, MessageOutcome.PARKED)

    def _return(self, held: InFlight, outcome: MessageOutcome, *, visible_in_s: int) -> None:
        if held.message.group:
            self._release_rest_of_group(held)
        self._settling.give_back(held, outcome, visible_in_s=visible_in_s)

    def _release_rest_of_group(self, returned: InFlight) -> None:
        """Release the unhandled messages of a group, so that none of them overtakes a returned message.

        The queue holds back the group until the returned message is visible again.
        """
        for other in self._custody:
            if other.message.group == returned.message.group and not other.is_attended:
                other.is_unwanted = True

    def _ended(self, outcome: MessageOutcome) -> None:
        self._counts.add(outcome)
        self._moved_at = self._clock.monotonic()
        self._permits.give_back(1)
