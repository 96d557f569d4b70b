"""Consuming a queue: take what there is room for, guard it while it is handled, then delete it or give it back.

A message ends in one of four ways: done, failed (it comes back by itself, later each time), parked as a dead letter, or
released untouched. Until the queue has heard which, it is in hand; the counts always add up.
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

POLL_LATE_S: Final = 1.0  # for an answer beyond the wait that was asked for, once we are asked to stop
# Waits before the next receipt, by how often a message has failed; then it is parked.
RETRIES: Final = Backoff(attempts_max=5, first_s=2.0, longest_s=900.0)

# Without a poll and without the end of any message, because then its handlers hang, or its polls. A poll takes seconds,
# and what is slow for a reason of its own is not all that a queue has in hand.
STUCK_AFTER_S: Final = 300.0
LOOKED_AFTER_S: Final = 30.0

# Returns once its effects are durable, because then the message is deleted. Any message may come twice. Raises
# `RetryLater`, and `Rejected` for what can never be handled. It may take long: the message is guarded meanwhile.
Handle: TypeAlias = Callable[[Message], Awaitable[None]]
# Keeps a message that cannot be handled, durably.
Park: TypeAlias = Callable[[Message, GivenUp], Awaitable[None]]
# Says how often a message has failed, with this time.
Failed: TypeAlias = Callable[[Message], Awaitable[int]]

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePace:
    in_hand_max: int = 100
    polling: Polling = field(default_factory=Polling)
    retries: Backoff = RETRIES
    finish_s: float = 15.0  # for handlers, once we are asked to stop
    settle_s: float = 3.0  # for telling the queue, after the last poll and handler


@dataclass(slots=True, kw_only=True)
class QueueConsumer:
    """Handles the messages of one queue. `run` it once; `stop` ends it in order, within 25 s of time.

    `park` None: what cannot be handled goes back until the queue's own redrive policy takes it away.
    """

    name: str
    calls: QueueCalls
    handle: Handle
    tries: RetryPolicy
    clock: Clock
    park: Park | None = None
    # None: its receipts are taken for failures, also those after which somebody who stopped gave it back.
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
        """False: nobody asks the queue any more, and nobody waits for anything. Somebody must look."""
        return self._work is None or not self._work.is_stuck

    @property
    def polls_at_once(self) -> int:
        """The most there were."""
        return 0 if self._work is None else self._work.polls_at_once

    async def run(self) -> None:
        """Consume until stopped. Raises a group of `ConfigError` if the queue cannot be used."""
        async with TrackedTaskGroup() as tasks:
            self._work = _Work(self, tasks)
            if not self._is_stopped:
                await self._work.run()
            tasks.end_all()

    def stop(self) -> None:
        """Take nothing more and finish what is in hand; said again, finish nothing."""
        if self._work is not None:
            self._work.stop(at_once=self._is_stopped)
        self._is_stopped = True


class _Work:
    """From the start of a consumer to its end."""

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
        """Say whether it is to stop, or the store or what it hands things to is away: a new one would wait, too."""
        return self._stopping.is_set() or self._consumer.tries.is_waiting or self._consumer.is_waiting()

    @property
    def in_flight(self) -> int:
        return len(self._custody)

    @property
    def polls_at_once(self) -> int:
        return self._polls.most_at_once

    # --- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until stopped, then until all is settled or there is no time left for it."""
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
        """Count from the end of a wait, until cancelled: what waited needs some time then to come to an end."""
        while True:
            await self._clock.sleep(LOOKED_AFTER_S)
            if self._is_excused:
                self._moved_at = self._clock.monotonic()

    async def _polls_run_out(self) -> None:
        try:
            async with asyncio.timeout(self._pace.polling.wait_s + POLL_LATE_S):
                await self._polls.ran_out()
        except TimeoutError:
            # What it took, if anything, is shown again when its visibility ends.
            _log.warning("queue.poll_abandoned", queue=self._consumer.name)

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(self._pace.settle_s):
                await self._custody.emptied()
        except TimeoutError:
            # Their handlers have ended; the queue shows them to others when their visibility ends.
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

    # --- handling -----------------------------------------------------------------------------------------------------

    def _arrived(self, messages: Sequence[Message]) -> int:
        """Take messages into hand, and say how many are new."""
        taken = [held for message in messages if (held := self._custody.take(message)) is not None]
        self._counts.received += len(taken)
        self._counts.repeated += len(messages) - len(taken)
        for held in taken:
            self._lanes.put(held.message.group or held.message.id, held)
        return len(taken)

    async def _attend(self, _lane: str, held: InFlight) -> None:
        """See one message to its end, as far as it depends on us."""
        held.is_attended = True
        # What the last polls bring is handled while there is time: to give it back would be one more delivery.
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
        """None may overtake one that goes back: the queue keeps the group back until that one is seen again."""
        for other in self._custody:
            if other.message.group == returned.message.group and not other.is_attended:
                other.is_unwanted = True

    def _ended(self, outcome: MessageOutcome) -> None:
        self._counts.add(outcome)
        self._moved_at = self._clock.monotonic()
        self._permits.give_back(1)
