"""The dead man's switch: a sign of life that stops when nobody may count on being told anything.

Three signs, each for someone else. The heartbeat event is for whoever listens to the bus. The heartbeat address is
asked for after each pass, as long as all that is vital works: a service outside raises the alarm when it is not asked
for. And a probe goes along the whole way of an alert, from the events table to where people are told; if it does not
arrive in time, the way is broken, and that is said by every other means: the log, the events table, the heartbeat.
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
CATCH_UP: Final = timedelta(minutes=3)  # after all workers were away, a probe has been under way for as long
HEARTBEAT_EVERY: Final = timedelta(minutes=15)

# Asks for the heartbeat address once; says what went wrong, or None.
Ping: TypeAlias = Callable[[], Awaitable[str | None]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log = logger()


class AlertPathCheck:
    """Sends probes, and knows the way to be broken when none of them arrived for too long."""

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
        # One that was sent by a clock that was ahead says nothing for a long time: it is replaced.
        if probe is None or now - probe.sent_at >= self._every or was_set_back(probe.sent_at, now):
            send = partial(self._send, state, now)
            due.append(Finding(about=ALERT_PATH, sentence="the next probe is due", act=send, is_routine=True))
        self._began = min(self._began or now, now)
        is_late = probe is not None and not state.is_answered and now - probe.waiting_since > self._within
        if probe is not None and is_late and now - self._began > CATCH_UP:
            raise Impaired({ALERT_PATH: _broken(probe, self._within)}, due)
        return due

    async def _send(self, state: PathState, now: datetime) -> None:
        """The next probe goes on while the last is missing: only one that is under way can show that all is well."""
        is_waiting = state.probe is not None and not state.is_answered
        since = min(state.probe.waiting_since, now) if state.probe and is_waiting else now
        probe = AlertProbe(id=self._new_id(), sent_at=now, waiting_since=since)
        event = Event(
            id=probe.id,
            type=EventType.ALERT_PATH_CHECK,
            at=now,
            message="a probe of the way that alerts take; nobody needs to act",
            detail={"source": "watchdog"},
        )
        try:
            await self._tables.commit(sent_write(state, probe), event_write(event))
        except StaleWrite:
            return  # another watchdog sent one


class Heartbeat:
    """`ping` None: there is no address to ask for."""

    def __init__(self, tables: Tables, ping: Ping | None = None, every: timedelta = HEARTBEAT_EVERY) -> None:
        self._tables, self._ping, self._every = tables, ping, every
        self._told: datetime | None = None

    async def beat(self, now: datetime, is_sound: bool) -> None:
        """Give the signs of life that are due; the outside hears nothing while it could not rely on being told."""
        await self._tell(now, is_sound)
        if not is_sound:
            _log.error("heartbeat.withheld")
        elif self._ping is not None and (problem := await self._ping()):
            _log.warning("heartbeat.failed", problem=problem)

    async def _tell(self, now: datetime, is_sound: bool) -> None:
        """One event for each stretch of time, whoever holds the duty: its name is the stretch's."""
        at = now - (now - _EPOCH) % self._every
        if at == self._told:
            return
        event = Event(
            id=f"heartbeat-{format_rfc3339(at)}",
            type=EventType.WATCHDOG_HEARTBEAT,
            at=at,
            message="the watchdog makes its rounds",
            detail={"source": "watchdog", "sound": is_sound},
        )
        with suppress(StaleWrite):  # a predecessor told it
            await self._tables.commit(event_write(event))
        self._told = at


def _broken(probe: AlertProbe, within: timedelta) -> str:
    return (
        f"no probe has arrived since {format_rfc3339(probe.waiting_since)}, though each has {format_duration(within)}: "
        "an alert would not be seen; look at the relay, the bus, the queue and the chat, in this order"
    )
