"""Write alerts to the log, for a worker without a chat, so that it starts and no alert is lost."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from consumers.alerts.recent_ids import RecentIds
from consumers.alerts.retrying_writer import RetryingWriter
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

# Calls the function that logs, and returns once the line is written. Raises `OSError`.
ConfirmLogged: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]

_log = logger()


async def unconfirmed(log: Callable[[], None]) -> None:
    """Log without waiting for a confirmation of the write."""
    log()


class LoggedAlerts:
    """Writes alerts as log lines. They wait while the log is unwritable; `line` knows if they do."""

    def __init__(self, clock: Clock, confirm: ConfirmLogged = unconfirmed) -> None:
        self._confirm = confirm
        self.line = RetryingWriter("the log", clock)
        self._told = RecentIds()

    async def deliver(self, event: Event) -> None:
        """Write one line, at the log level of the event's severity."""
        if event.id in self._told:
            return
        await self.line.write(lambda: self._confirm(lambda: _log_alert(event)))
        self._told.add(event.id)


def _log_alert(event: Event) -> None:
    severity = severity_of(event.type, event.detail)
    write = {Severity.ALERT: _log.error, Severity.WARNING: _log.warning}.get(severity, _log.info)
    write(
        "alert.told",
        type=event.type,
        severity=severity,
        pipeline=event.pipeline,
        schedule=event.schedule,
        period=event.period,
        message=event.message,
        hint=event.detail.get("actionHint"),
        event_id=event.id,
    )
