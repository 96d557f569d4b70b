"""Alerts of a worker that was given no chat."""

from dataclasses import replace

from structlog.testing import capture_logs

from consumers.alerts_log import LoggedAlerts
from tests.alertsworld import FAILED
from worker.core.eventtypes import EventType


async def test_without_a_chat_an_alert_is_a_line_of_the_log_once() -> None:
    alerts = LoggedAlerts()

    with capture_logs() as lines:
        for event in (FAILED, FAILED, replace(FAILED, id="e2", type=EventType.SLA_WARNING)):
            await alerts.deliver(event)

    first, second = lines
    assert first == {
        "event": "alert.told",
        "log_level": "error",
        "type": "JOB_FAILED",
        "severity": "ALERT",
        "pipeline": "orders",
        "schedule": "daily",
        "period": "2026-03-03",
        "message": "exit code 3",
        "hint": "look at the job's log",
        "event_id": "e1",
    }
    assert (second["type"], second["log_level"]) == ("SLA_WARNING", "warning")
