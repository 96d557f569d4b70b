"""Answer alert probes at the end of the alert path instead of showing them.

A probe that cannot be answered is dropped and never becomes a dead letter. The next probe asks the same, and the
watchdog alerts if none is answered.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from consumers.outbox.routes import Deliver
from worker.core.errors import RetryLater
from worker.core.model.events import Event, EventType
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.alert_probe import AlertPath

# Limit for proving that people can be reached. It is shorter than the time after which a silent reader counts as stuck.
REACHED_WITHIN_S: Final = 30.0
REACHED_AGAIN_S: Final = 5.0

_log = logger()

# Proves that people can be reached, without sending them anything. Raises `RetryLater`.
Reach: TypeAlias = Callable[[], Awaitable[None]]


async def always_reached() -> None:
    """Return at once: a console that can be written has a reader."""


def answering_probes(deliver: Deliver, path: AlertPath, clock: Clock, reach: Reach = always_reached) -> Deliver:
    """Deliver every event except probes; answer a probe once `reach` proves that an alert would arrive."""

    async def delivered(event: Event) -> None:
        if event.type != EventType.ALERT_PATH_CHECK:
            await deliver(event)
            return
        # An older probe must not be acknowledged after the current one, which would then no longer be the last to
        # arrive.
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
