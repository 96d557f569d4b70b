"""The end of the way that alerts take: a probe that arrives here is answered instead of shown.

One that cannot be answered is let go and never becomes a dead letter: the next one asks the same, and that none is
answered is what the watchdog tells of.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from consumers.outbox.routes import Deliver
from worker.core.errors import RetryLater
from worker.core.model.events import Event, EventType
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.alert_probe import AlertPath

# For people to be reached. Shorter than a reader may be still before it is taken for stuck.
REACHED_WITHIN_S: Final = 30.0
REACHED_AGAIN_S: Final = 5.0

_log = logger()

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
        # An older one must not speak after the one that is waited for: that would no longer be the last to arrive.
        sent = (await path.load()).probe
        if (sent is None or sent.id == event.id) and await _is_reached(reach, clock):
            await path.acknowledge(event.id, clock.now())

    return delivered


async def _is_reached(reach: Reach, clock: Clock) -> bool:
    until = clock.monotonic() + REACHED_WITHIN_S
    while True:
        try:
            await reach()
        except RetryLater as error:
            if clock.monotonic() >= until:
                _log.warning("probe.unanswered", reason=str(error))
                return False
            await clock.sleep(REACHED_AGAIN_S)
        else:
            return True
