"""The end of the way that alerts take: a probe that arrives here is answered instead of shown."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from consumers.routes import Deliver
from worker.clock import Clock
from worker.core.events import Event
from worker.core.eventtypes import EventType
from worker.store.alertpath import AlertPath

# Proves that people can be reached, without telling them anything. Raises `RetryLater`.
Reach: TypeAlias = Callable[[], Awaitable[None]]


async def always_reached() -> None:
    """For a console: whoever can be written to is there."""


def answering_probes(deliver: Deliver, path: AlertPath, clock: Clock, reach: Reach = always_reached) -> Deliver:
    """Hand every event on but the probes; those are answered once it is shown that an alert would be seen."""

    async def delivered(event: Event) -> None:
        if event.type != EventType.ALERT_PATH_CHECK:
            await deliver(event)
            return
        await reach()
        await path.acknowledge(event.id, clock.now())

    return delivered
