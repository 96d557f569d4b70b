"""Alerts of a worker that was given no chat."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace

from structlog.testing import capture_logs

from consumers.alerts.log import LoggedAlerts
from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.alerts import FAILED
from worker.core.model.events import EventType


async def test_without_a_chat_an_alert_is_a_line_of_the_log_once() -> None:
    alerts = LoggedAlerts(ManualClock())

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


@on_virtual_time
async def test_an_alert_waits_for_a_log_that_cannot_be_written() -> None:
    clock, confirmed = VirtualClock(), list[float]()

    async def confirm(log: Callable[[], None]) -> None:
        log()
        if clock.monotonic() < began_at + 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        confirmed.append(clock.monotonic())

    began_at = clock.monotonic()
    alerts = LoggedAlerts(clock, confirm)

    with capture_logs() as lines:
        await alerts.deliver(FAILED)
        await alerts.deliver(FAILED)

    assert len(confirmed) == 1
    assert alerts.line.failed_tries == sum(line["event"] == "alert.told" for line in lines) - 1 > 1
