"""Send signs of life that stop when Interlock can no longer alert.

There are three. The heartbeat event is for consumers of the bus. The heartbeat address is requested after each pass
while all vital checks work: an external service alerts when the requests stop. And a probe takes the whole path of an
alert, from the events table to its receiver. If no probe arrives in time, the path is broken, and Interlock reports it
in every other way: in the log, the events table and the heartbeat.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from scheduler.watchdog.check import Finding, Impaired
from worker.core.model.events import Event, EventType
from worker.core.time.durations import format_duration
from worker.core.time.skew import was_set_back
from worker.core.time.timestamps import format_rfc3339
from worker.engine.commits import random_id
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId
from worker.runtime.logs import logger
from worker.store.repos.delivery.alert_probe import AlertPath, AlertProbe, PathState, sent_write
from worker.store.repos.events import event_write
from worker.store.table import StaleWrite, Tables

ALERT_PATH: Final = "alert-path"
PROBE_EVERY: Final = timedelta(minutes=15)
ARRIVES_WITHIN: Final = timedelta(minutes=15)
CATCH_UP: Final = timedelta(minutes=3)  # after an outage of all workers, a probe was under way for all of it
HEARTBEAT_EVERY: Final = timedelta(minutes=15)

# Requests the heartbeat address once; returns the problem, or None.
Ping: TypeAlias = Callable[[], Awaitable[str | None]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log = logger()


class AlertPathCheck:
    """Sends probes and reports a broken path if none arrived for too long."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        *,
        every: timedelta = PROBE_EVERY,
        within: timedelta = ARRIVES_WITHIN,
        new_id: NewId = random_id,
    ) -> None:
        self._tables, self._path, self._clock = tables, AlertPath(tables), clock
        self._every, self._within, self._new_id = every, within, new_id
        self._began: datetime | None = None

    async def look(self, now: datetime) -> Sequence[Finding]:
        state = await self._path.load()
        probe, due = state.probe, list[Finding]()
        # A probe from a clock that was ahead would not be due for a long time, so it is replaced.
        if probe is None or now - probe.sent_at >= self._every or was_set_back(probe.sent_at, now):
            send = partial(self._send, state, now)
            due.append(Finding(about=ALERT_PATH, sentence="the next probe is due", act=send, is_routine=True))
        self._began = min(self._began or now, now)
        is_late = probe is not None and not state.is_answered and now - probe.waiting_since > self._within
        if probe is not None and is_late and now - self._began > CATCH_UP:
            raise Impaired({ALERT_PATH: _broken(probe, self._within)}, due)
        return due

    async def _send(self, state: PathState, now: datetime) -> None:
        """Send the next probe even while the last one is missing: only a new one can show a recovery."""
        is_waiting = state.probe is not None and not state.is_answered
        since = min(state.probe.waiting_since, now) if state.probe and is_waiting else now
        probe = AlertProbe(id=self._new_id(), sent_at=now, waiting_since=since)
        event = Event(
            id=probe.id,
            type=EventType.ALERT_PATH_CHECK,
            at=now,
            message="a probe of the alert path; no action is needed",
            detail={"source": "watchdog"},
        )
        try:
            await self._tables.commit(sent_write(state, probe), event_write(event))
        except StaleWrite:
            return  # another watchdog sent one


class Heartbeat:
    """Sends signs of life after a pass. If `ping` is None, there is no address to request."""

    def __init__(self, tables: Tables, ping: Ping | None = None, every: timedelta = HEARTBEAT_EVERY) -> None:
        self._tables, self._ping, self._every = tables, ping, every
        self._told: datetime | None = None

    async def beat(self, now: datetime, is_sound: bool) -> None:
        """Send the signs of life that are due. Request no address while alerts may not arrive."""
        await self._tell(now, is_sound)
        if not is_sound:
            _log.error("heartbeat.withheld")
        elif self._ping is not None and (problem := await self._ping()):
            _log.warning("heartbeat.failed", problem=problem)

    async def _tell(self, now: datetime, is_sound: bool) -> None:
        """Emit one event per interval, whichever worker runs the watchdog: its id names the interval."""
        at = now - (now - _EPOCH) % self._every
        if at == self._told:
            return
        event = Event(
            id=f"heartbeat-{format_rfc3339(at)}",
            type=EventType.WATCHDOG_HEARTBEAT,
            at=at,
            message="the watchdog is running",
            detail={"source": "watchdog", "sound": is_sound},
        )
        with suppress(StaleWrite):  # an earlier holder emitted it
            await self._tables.commit(event_write(event))
        self._told = at


def _broken(probe: AlertProbe, within: timedelta) -> str:
    return (
        f"no probe has arrived since {format_rfc3339(probe.waiting_since)}, though each has {format_duration(within)}: "
        "alerts would not arrive; check the relay, the bus, the queue and the chat, in this order"
    )
