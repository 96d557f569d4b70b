"""Alerts: telling people what happened, in one thread for each run or incident, whose first message is kept up to date.

An event is told once the chat has it and the thread's row says so. The row is shared by all workers: one of them opens
the thread, a repeat is recognised by the event's id, and the first message never goes back to an older version. A chat
that is down or busy is waited for, however long; only what it can never take is refused. What comes too fast to be read
one by one waits in the store to be told together (`consumers.alerts.groups`), and is done with that.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from consumers.alerts import text
from consumers.alerts.chat import ChatRefused, Posted
from consumers.alerts.recent_ids import RecentIds
from consumers.alerts.run_status import RunStatus, standing_after
from consumers.alerts.services import AlertServices
from consumers.outbox.incidents import QUIET, incident_of
from consumers.outbox.severities import Severity, graver_of, is_graver, is_told_by_its_end, severity_of
from worker.core.model.events import Event
from worker.core.model.keys import millis
from worker.runtime.logs import logger
from worker.store.repos.delivery.grouped_alerts import waiting_write
from worker.store.repos.delivery.threads import Busy, Claimed, Open, ThreadHeader, ThreadKey
from worker.store.table import Write

BUSY_S: Final = 2.0  # while another opens the thread
LATEST_MAX: Final = 100  # of a pipeline's events, among which its run's success is looked for
SHOWS_MAX: Final = 5  # looks at what the first message should show, before the next event brings it up to date

_PER_MS: Final = 2  # versions of an incident

_log = logger()


class ChatAlerts:
    """Its `deliver` is a route's end, and what the alerts queue is handled with."""

    def __init__(self, telling: AlertServices) -> None:
        self._with = telling
        self._told = RecentIds()

    async def deliver(self, event: Event) -> None:
        """Tell people, or leave it to a group; return once it is done. Raises `RetryLater`, and `ChatRefused`."""
        if event.id in self._told or is_told_by_its_end(event.type, event.detail):
            return
        thread = text.thread_of(event)
        seen = await self._with.threads.look(thread)
        if self._is_for_digest(event) and not (seen and seen.is_open):
            return  # nobody waits to hear of it: the digest counts it
        while (is_settled := _is_settled(event, seen)) and not await self._is_noted(event, thread, seen):
            await self._with.clock.sleep(BUSY_S)  # another opens the thread: then there is somebody to tell
            seen = await self._with.threads.look(thread)
        if not is_settled:
            await self._deliver(event, thread, seen)
        self._told.add(event.id)

    async def _deliver(self, event: Event, thread: ThreadKey, seen: Open | None) -> None:
        severity = severity_of(event.type, event.detail)
        channel = self._with.routing.channel(severity, await self._owner(event))
        is_repeat = seen is not None and event.id in seen.told
        is_answer = seen is not None and seen.is_open and not _is_past(seen, event)
        if not is_repeat and not await self._is_told_apart(event, channel, is_answer=is_answer):
            await self._remember(event, thread, waiting_write(channel, event, severity, self._with.clock.now()))
            self._with.has_grouped.set()
            return
        told, is_first = await self._tell(event, thread, channel, lane=seen.routed_to if seen else channel)
        if is_first:
            await self._tell_what_the_digest_took(event)
        elif told.face.latest == text.summary(event):
            await self._show(thread, told)
        if severity is Severity.ALERT and told.routed_to != channel:
            await self._tell_elsewhere(event, thread, channel)

    def _is_for_digest(self, event: Event) -> bool:
        return self._with.routing.digest_every is not None and severity_of(event.type, event.detail) is Severity.SUCCESS

    async def _tell_what_the_digest_took(self, first: Event) -> None:
        """Tell in a thread just opened that its run has succeeded since.

        Events come in any order: a success that came before the alert found no thread. Looked for once the thread is
        open, so that none falls in between.
        """
        if incident_of(first) is not None:
            return
        for stored in reversed(await self._with.events.latest(first.pipeline, LATEST_MAX)):
            event = stored.event
            is_of_run = (event.schedule, event.period) == (first.schedule, first.period)
            if is_of_run and self._is_for_digest(event) and _version(event) >= _version(first):
                await self.deliver(event)

    async def _owner(self, event: Event) -> str:
        return await self._with.owner_of(event.pipeline) if self._with.routing.owners else ""

    # --- in its thread ------------------------------------------------------------------------------------------------

    async def _tell(self, event: Event, thread: ThreadKey, channel: str, *, lane: str) -> tuple[Open, bool]:
        """Tell the event in its thread, or open the thread with it; give the thread, and whether it was opened."""
        claimant = self._with.new_claimant()

        async def once() -> tuple[Open, bool] | None:
            claim = await self._with.threads.claim(
                thread,
                channel=channel,
                claimant=claimant,
                now=self._with.clock.now(),
                is_past=lambda seen: _is_past(seen, event),
            )
            match claim:
                case Busy():
                    return None
                case Claimed():
                    return await self._open(event, thread, channel, claimant, claim), True
                case Open() as seen:
                    return await self._answer(event, thread, seen), False

        # A try claims anew: the claim would not outlast an outage, and another may have opened the thread meanwhile.
        while (told := await self._with.line.say(lane or channel, once)) is None:
            await self._with.clock.sleep(BUSY_S)
        return told

    async def _open(self, event: Event, thread: ThreadKey, channel: str, claimant: str, claimed: Claimed) -> Open:
        face = _first_face(event, claimed.before)
        posted = await self._with.post(channel, text.first_message(thread, face))
        is_ours = await self._with.tries.forever(
            lambda: self._with.threads.opened(
                thread,
                claimed,
                claimant=claimant,
                channel=posted.channel,
                timestamp=posted.timestamp,
                face=face,
                told=event.id,
                worst=severity_of(event.type, event.detail),
            )
        )
        if not is_ours:
            _log.warning("thread.opened_twice", pipeline=thread.pipeline, period=thread.period)
        return await self._noted(event, thread)

    async def _answer(self, event: Event, thread: ThreadKey, seen: Open) -> Open:
        """Answer in the thread; what is graver than all that was told there is shown in the channel as well."""
        if event.id not in seen.told:
            is_broadcast = is_graver(severity_of(event.type, event.detail), seen.worst)
            await self._with.post(
                seen.channel,
                text.alert(event),
                lane=seen.routed_to,
                thread=seen.timestamp,
                is_broadcast=is_broadcast,
            )
        return await self._noted(event, thread)

    async def _noted(self, event: Event, thread: ThreadKey, *, told_id: str = "") -> Open:
        """Remember that the event was told. It was: so this is insisted on, or it would be told again."""
        told_id = told_id or event.id
        while True:
            seen = await self._with.tries.forever(lambda: self._with.threads.find(thread))
            if seen is None:  # past its time, to the second
                return Open(channel="", timestamp="")
            if told_id in seen.told:
                return seen
            face, noting = (_face(seen.face, event) if told_id == event.id else seen.face), seen
            worst = graver_of(severity_of(event.type, event.detail), seen.worst)
            noted = await self._with.tries.forever(
                lambda: self._with.threads.note(thread, noting, told=told_id, face=face, worst=worst)  # noqa: B023 - awaited here
            )
            if noted is not None:
                return noted

    async def _is_told_apart(self, event: Event, channel: str, *, is_answer: bool) -> bool:
        return await self._with.admission.is_told_apart(channel, event.type, is_answer=is_answer)

    async def _remember(self, event: Event, thread: ThreadKey, *also: Write) -> None:
        """Note an event for which no message is posted in its thread, and what else is to be done about it."""
        while not await self._is_noted(event, thread, await self._with.threads.look(thread), *also):
            await self._with.clock.sleep(BUSY_S)

    async def _is_noted(self, event: Event, thread: ThreadKey, seen: Open | None, *also: Write) -> bool:
        """Note it; False while another opens or changes the thread."""
        before = seen.face if seen is not None and seen.is_open else ThreadHeader(first=text.summary(event))
        return await self._with.threads.remember(
            thread,
            seen,
            told=event.id,
            face=_face(before, event),
            worst=graver_of(severity_of(event.type, event.detail), seen.worst if seen else ""),
            now=self._with.clock.now(),
            also=also,
        )

    # --- the first message --------------------------------------------------------------------------------------------

    async def _show(self, thread: ThreadKey, seen: Open) -> None:
        """Bring the first message up to date. Whoever is late finds the row moved on, and shows the latest again."""
        for _ in range(SHOWS_MAX):
            await self._update(thread, seen)
            now = await self._with.tries.forever(lambda: self._with.threads.find(thread))
            if now is None or now.face == seen.face:
                return
            seen = now

    async def _update(self, thread: ThreadKey, seen: Open) -> None:
        message = Posted(seen.channel, seen.timestamp)
        saying = text.first_message(thread, seen.face)
        try:
            await self._with.line.say(
                seen.routed_to, lambda: self._with.line.update(message, saying, lane=seen.routed_to)
            )
        except ChatRefused as refused:  # somebody deleted it, or it is too old to be changed: the answers tell
            _log.warning("thread.not_shown", pipeline=thread.pipeline, period=thread.period, reason=str(refused))

    # --- elsewhere ----------------------------------------------------------------------------------------------------

    async def _tell_elsewhere(self, event: Event, thread: ThreadKey, channel: str) -> None:
        """Tell an alert to those who must act on it, although its thread was opened in another channel."""
        told_id = f"{event.id}@{channel}"

        async def once() -> None:
            seen = await self._with.threads.find(thread)
            if seen is not None and told_id not in seen.told:
                await self._with.post(channel, text.elsewhere(event))
                await self._noted(event, thread, told_id=told_id)

        await self._with.line.say(channel, once)


def _is_settled(event: Event, seen: Open | None) -> bool:
    """Say whether there is nothing to tell: it was told, or it ends what nobody was told of.

    Such an end is noted all the same: the alarm itself may come later, and is then shown as over.
    """
    if seen is not None and (seen.is_open or event.id in seen.told):
        return not seen.is_open
    incident = incident_of(event)
    was_told = seen is not None and seen.face.standing == RunStatus.ONGOING
    return incident is not None and incident.is_silent_alone and not was_told


def _face(before: ThreadHeader, event: Event) -> ThreadHeader:
    """What the first message shows after an event. Of an older version nothing changes: that is the store's to see."""
    return ThreadHeader(
        version=_version(event),
        standing=standing_after(before.standing, event),
        first=before.first,
        latest=text.summary(event),
    )


def _first_face(event: Event, before: Open) -> ThreadHeader:
    """What the first message shows when it is posted: if the end came before the beginning, that it is over."""
    face = _face(ThreadHeader(first=text.summary(event)), event)
    is_over = not before.is_open and before.face.version > face.version
    return replace(before.face, first=face.first) if is_over else face


def _is_past(seen: Open, event: Event) -> bool:
    """Say whether an event begins a new incident: that of its thread is over, or nobody spoke of it for long."""
    incident = incident_of(event)
    after_ms = (_version(event) - seen.face.version) / _PER_MS
    if incident is None or incident.is_over or after_ms <= 0:
        return False
    return seen.face.standing == RunStatus.RECOVERED or after_ms > QUIET / timedelta(milliseconds=1)


def _version(event: Event) -> int:
    """Of the run when the event was decided; of an incident, when it was told."""
    if (incident := incident_of(event)) is not None:
        return millis(event.at) * _PER_MS + incident.is_over  # of what is told in one millisecond, the end comes last
    version = event.detail.get("version")
    return version if isinstance(version, int) else 0
