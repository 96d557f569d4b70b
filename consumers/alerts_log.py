"""Alerts as log lines, for a worker that was given no chat: nothing refuses to start, and nothing is silent."""

from consumers.repeats import Repeats
from consumers.severities import Severity, severity_of
from worker.core.events import Event
from worker.logs import logger

_log = logger()


class LoggedAlerts:
    def __init__(self) -> None:
        self._told = Repeats()

    async def deliver(self, event: Event) -> None:
        """Write one line, at a level that fits how bad it is."""
        if event.id in self._told:
            return
        severity = severity_of(event.type)
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
        self._told.add(event.id)
