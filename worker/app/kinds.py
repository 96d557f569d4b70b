"""What differs between a worker on one machine and one on AWS, behind one port that the rest of the wiring knows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from consumers.queues.consumer import QueueConsumer
from worker.app.alerts import Beside, never_failed
from worker.app.workplace import Workplace
from worker.jobs.command.runner import CommandRunner
from worker.membership.clock_guard import ClockGuard
from worker.runtime.clock import Clock
from worker.store.table import Tables

SWEEP_JOBS_EVERY_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """All that a worker stands on, open and ready."""

    place: Workplace
    beside: Mapping[str, Beside] = field(default_factory=dict[str, Beside])  # by name; for as long as the process
    queues: Sequence[QueueConsumer] = ()
    alert_failures: Callable[[], int] = never_failed


class Kind(Protocol):
    @property
    def group(self) -> str:
        """Which workers share the work."""
        ...

    @property
    def where(self) -> str:
        """The store, for people."""
        ...

    @property
    def tables(self) -> Tables:
        """The store; not started yet."""
        ...

    @property
    def guard(self) -> ClockGuard:
        """What knows whether our clock agrees with the store's."""
        ...

    def beater_tables(self) -> Tables:
        """The same store once more, for the heart's own thread."""
        ...

    async def open(self, stack: AsyncExitStack) -> Premises:
        """Make everything else, on the started store; it is closed with `stack`. Raises `ConfigError`, `RetryLater`."""
        ...


def sweeping(command: CommandRunner, clock: Clock) -> Beside:
    """Clear away the books of command jobs that ended long ago, now and then."""

    async def sweep() -> None:
        while True:
            with suppress(OSError):  # what cannot be removed now is tried again
                await command.sweep()
            await clock.sleep(SWEEP_JOBS_EVERY_S)

    return sweep
