"""The wiring of a queue: what its handler cannot take, also by a mistake of ours, becomes a dead letter."""

from collections.abc import Callable

from consumers.delivery.retry import Tries
from consumers.queues.consumer import Handle, QueueConsumer
from consumers.queues.dead_letters import QueueLetters
from consumers.queues.proven import ProvenQueue
from consumers.queues.queue import QueueCalls
from worker.app.guard import expecting_surprises, log_surprise
from worker.runtime.clock import Clock
from worker.store.failure_counter import WatchedTables
from worker.store.repos.delivery.dead_letters import DeadLetters


def queue_consumer(
    name: str,
    calls: QueueCalls,
    handle: Handle,
    *,
    tables: WatchedTables,
    clock: Clock,
    is_waiting: Callable[[], bool] = lambda: False,
    on_surprise: Callable[[Exception], None] = log_surprise,
) -> QueueConsumer:
    """A consumer that neither a message can end, which would come again and end the next worker as well, nor a queue
    that was of use before. What its handler uses must be the same `tables`: then no message is blamed for the store.
    """
    tries = Tries(clock, tables.ping, store_failures=lambda: tables.failures)
    letters = QueueLetters(name, DeadLetters(tables), tries, clock)
    return QueueConsumer(
        name=name,
        calls=ProvenQueue(name, calls),
        handle=expecting_surprises(handle, on_surprise),
        tries=tries,
        clock=clock,
        is_waiting=is_waiting,
        park=letters.park,
        failed=letters.failed,
    )
