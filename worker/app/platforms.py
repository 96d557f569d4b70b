"""The platform port: what differs between a worker on one machine and one on AWS."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from consumers.alerts.measures import AlertMeasures
from consumers.queues.consumer import QueueConsumer
from worker.app.alerts import BackgroundTask, never_failed
from worker.app.dependencies import WorkerDeps
from worker.membership.clock_guard import ClockGuard
from worker.runtime.process_identity import ProcessWitness
from worker.store.table import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Holds everything that a worker process has open."""

    deps: WorkerDeps
    # By name; they run as long as the process, across sessions.
    background_tasks: Mapping[str, BackgroundTask] = field(default_factory=dict[str, BackgroundTask])
    queues: Sequence[QueueConsumer] = ()
    alert_failures: Callable[[], int] = never_failed
    alert_measures: AlertMeasures = field(default_factory=AlertMeasures)


class Platform(Protocol):
    @property
    def group(self) -> str:
        """Return the group of workers that share the work."""
        ...

    @property
    def where(self) -> str:
        """Return the store's name, for people."""
        ...

    @property
    def tables(self) -> Tables:
        """Return the store, not started yet."""
        ...

    @property
    def guard(self) -> ClockGuard:
        """Return the check that this machine's clock agrees with the store's."""
        ...

    @property
    def witness(self) -> ProcessWitness | None:
        """Return the proof that another worker's process has ended; None if workers may be on other machines."""
        ...

    def beater_tables(self) -> Tables:
        """Return a second connection to the store, for the heartbeat's own thread."""
        ...

    async def open(self, stack: AsyncExitStack) -> Resources:
        """Open everything else on the started store; `stack` closes it.

        Raises `ConfigError` and `RetryLater`.
        """
        ...
