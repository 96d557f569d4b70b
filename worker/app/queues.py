"""Wiring of a queue: a message that fails, even because of a bug, becomes a dead letter."""

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
    """Return a consumer that survives any message, and any outage of a queue that has worked before.

    A message that stopped a worker would be delivered again and stop the next one. The handler must use the same
    `tables`, so that no message is blamed for a failure of the store.
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
