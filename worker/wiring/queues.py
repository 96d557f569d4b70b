"""The wiring of a queue: what its handler cannot take, also by a mistake of ours, becomes a dead letter."""

from collections.abc import Callable

from consumers.sqs import Handle, QueueConsumer
from consumers.sqs_calls import QueueCalls
from consumers.sqs_letters import QueueLetters
from consumers.sqs_proven import ProvenQueue
from consumers.tries import Tries
from worker.clock import Clock
from worker.store.deadletters import DeadLetters
from worker.store.watched import WatchedTables
from worker.wiring.surprises import expecting_surprises, log_surprise


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
