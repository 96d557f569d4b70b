"""The wiring of a queue: what its handler cannot take, also by a mistake of ours, becomes a dead letter."""

from collections.abc import Callable

from consumers.delivery.retry import RetryPolicy
from consumers.queues.consumer import Handle, QueueConsumer
from consumers.queues.dead_letters import QueueDeadLetters
from consumers.queues.proven import FailFastOnceQueue
from consumers.queues.queue import QueueCalls
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import ErrorBoundary, OnUnexpectedError, log_unexpected_error
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.delivery.dead_letters import DeadLetters


def queue_consumer(
    name: str,
    calls: QueueCalls,
    handle: Handle,
    *,
    tables: FailureCountingTables,
    clock: Clock,
    is_waiting: Callable[[], bool] = lambda: False,
    on_unexpected_error: OnUnexpectedError = log_unexpected_error,
) -> QueueConsumer:
    """A consumer that neither a message can end, which would come again and end the next worker as well, nor a queue
    that was of use before. What its handler uses must be the same `tables`: then no message is blamed for the store.
    """
    tries = RetryPolicy(clock, tables.ping, store_failures=lambda: tables.failures)
    letters = QueueDeadLetters(name, DeadLetters(tables), tries, clock)
    return QueueConsumer(
        name=name,
        calls=FailFastOnceQueue(name, calls),
        handle=ErrorBoundary(on_unexpected_error).around(handle),
        tries=tries,
        clock=clock,
        is_waiting=is_waiting,
        park=letters.park,
        failed=letters.failed,
    )
