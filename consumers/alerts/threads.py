"""Send alerts to a chat, one thread per run or incident, and keep its first message up to date.

An event is delivered once the chat has it and the thread's row says so. All workers share the row: one of them opens
the thread, the event's id identifies a repeat, and the first message never goes back to an older version. If the chat
is down or busy, delivery waits without limit; it raises only if the chat can never accept the message. An event that
arrives too fast to be posted separately waits in the store for a group message (`consumers.alerts.groups`) and counts
as delivered.
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

BUSY_S: Final = 2.0  # while another worker opens the thread
LATEST_MAX: Final = 100  # of a pipeline's events, among which to search for the run's success
SHOWS_MAX: Final = 5  # updates of the first message per event; the next event brings it up to date

_PER_MS: Final = 2  # versions of an incident per millisecond

_log = logger()


class ChatAlerts:
    """Delivers events to the chat, for a route and for the alerts queue."""

    def __init__(self, telling: AlertServices) -> None:
        self._with = telling
        self._told = RecentIds()

    async def deliver(self, event: Event) -> None:
        """Post an event or leave it to a group; return once that is stored.

        Raises `RetryLater`, and `ChatRefused`.
        """
        if event.id in self._told or is_told_by_its_end(event.type, event.detail):
            return
        thread = text.thread_of(event)
        seen = await self._with.threads.look(thread)
        if self._is_for_digest(event) and not (seen and seen.is_open):
            return  # no thread is open for it: the digest counts it
        while (is_settled := _is_settled(event, seen)) and not await self._is_noted(event, thread, seen):
            await self._with.clock.sleep(BUSY_S)  # another worker opens the thread: then the event belongs in it
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
        """Post in a newly opened thread that its run has succeeded since.

        Events arrive in any order, and a success that came before the alert found no thread. The search runs once the
        thread is open, so that it misses none.
        """
        if incident_of(first) is not None:
            return
        for stored in reversed(await self._with.events.latest(first.pipeline, LATEST_MAX)):
            event = stored.event
            is_of_run = (event.schedule, event.period) == (first.schedule, first.period)
            if is_of_run and self._is_for_digest(event) and version_of(event) >= version_of(first):
                await self.deliver(event)

    async def _owner(self, event: Event) -> str:
        return await self._with.owner_of(event.pipeline) if self._with.routing.owners else ""

    # --- In the thread ------------------------------------------------------------------------------------------------

    async def _tell(self, event: Event, thread: ThreadKey, channel: str, *, lane: str) -> tuple[Open, bool]:
        """Post the event in its thread or open the thread with it; return the thread and whether it is new."""
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

        # Each retry claims the thread again: the claim would expire during an outage, and another worker may have
        # opened the thread meanwhile.
        while (told := await self._with.line.say(lane or channel, once)) is None:
            await self._with.clock.sleep(BUSY_S)
        return told

    async def _open(self, event: Event, thread: ThreadKey, channel: str, claimant: str, claimed: Claimed) -> Open:
        face = _first_face(event, claimed.before)
        posted = await self._with.post(channel, text.first_message(thread, face, self._with.pages), [event])
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
        """Reply in the thread. An event more severe than all earlier ones shows in the channel as well."""
        if event.id not in seen.told:
            is_broadcast = is_graver(severity_of(event.type, event.detail), seen.worst)
            await self._with.post(
                seen.channel,
                text.alert(event, self._with.pages),
                [event],
                lane=seen.routed_to,
                thread=seen.timestamp,
                is_broadcast=is_broadcast,
            )
        return await self._noted(event, thread)

    async def _noted(self, event: Event, thread: ThreadKey, *, told_id: str = "") -> Open:
        """Record that the event was posted; retry until it is stored, or the event would be posted again."""
        told_id = told_id or event.id
        while True:
            seen = await self._with.tries.forever(lambda: self._with.threads.find(thread))
            if seen is None:  # the row has just expired
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
        """Record an event without a message in its thread, together with the given writes."""
        while not await self._is_noted(event, thread, await self._with.threads.look(thread), *also):
            await self._with.clock.sleep(BUSY_S)

    async def _is_noted(self, event: Event, thread: ThreadKey, seen: Open | None, *also: Write) -> bool:
        """Record the event. Return False while another worker opens or changes the thread."""
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

    # --- The first message --------------------------------------------------------------------------------------------

    async def _show(self, thread: ThreadKey, seen: Open) -> None:
        """Update the first message. If the row has changed meanwhile, update it again from the latest row."""
        for _ in range(SHOWS_MAX):
            await self._update(thread, seen)
            now = await self._with.tries.forever(lambda: self._with.threads.find(thread))
            if now is None or now.face == seen.face:
                return
            seen = now

    async def _update(self, thread: ThreadKey, seen: Open) -> None:
        message = Posted(seen.channel, seen.timestamp)
        saying = text.first_message(thread, seen.face, self._with.pages)
        try:
            await self._with.line.say(
                seen.routed_to, lambda: self._with.line.update(message, saying, lane=seen.routed_to)
            )
        except ChatRefused as refused:  # it was deleted, or is too old to be changed: the replies contain everything
            _log.warning("thread.not_shown", pipeline=thread.pipeline, period=thread.period, reason=str(refused))

    # --- In another channel -------------------------------------------------------------------------------------------

    async def _tell_elsewhere(self, event: Event, thread: ThreadKey, channel: str) -> None:
        """Post an alert in the channel of those who must act, although its thread is in another channel."""
        told_id = f"{event.id}@{channel}"

        async def once() -> None:
            seen = await self._with.threads.find(thread)
            if seen is not None and told_id not in seen.told:
                await self._with.post(channel, text.elsewhere(event, self._with.pages))
                await self._noted(event, thread, told_id=told_id)

        await self._with.line.say(channel, once)


def _is_settled(event: Event, seen: Open | None) -> bool:
    """Return whether there is nothing to post: the event was posted, or it ends an unreported incident.

    Such an end is recorded nevertheless: the alarm itself may arrive later, and the thread then shows it as over.
    """
    if seen is not None and (seen.is_open or event.id in seen.told):
        return not seen.is_open
    incident = incident_of(event)
    was_told = seen is not None and seen.face.standing == RunStatus.ONGOING
    return incident is not None and incident.is_silent_alone and not was_told


def _face(before: ThreadHeader, event: Event) -> ThreadHeader:
    """Return the first message's header after an event. The store ignores an older version."""
    return ThreadHeader(
        version=version_of(event),
        standing=standing_after(before.standing, event),
        first=before.first,
        latest=text.summary(event),
    )


def _first_face(event: Event, before: Open) -> ThreadHeader:
    """Return the header for a new thread. If the end arrived before the start, it shows the end."""
    face = _face(ThreadHeader(first=text.summary(event)), event)
    is_over = not before.is_open and before.face.version > face.version
    return replace(before.face, first=face.first) if is_over else face


def _is_past(seen: Open, event: Event) -> bool:
    """Return whether an event starts a new incident: the thread's incident is over or was quiet for long."""
    incident = incident_of(event)
    after_ms = (version_of(event) - seen.face.version) / _PER_MS
    if incident is None or incident.is_over or after_ms <= 0:
        return False
    return seen.face.standing == RunStatus.RECOVERED or after_ms > QUIET / timedelta(milliseconds=1)


def version_of(event: Event) -> int:
    """Return the run's version at the event's decision; for an incident, the time of the event.

    An event in the thread of its root cause is about another run, and does not change the first message.
    """
    if text.root_of(event) is not None:
        return 0
    if (incident := incident_of(event)) is not None:
        return millis(event.at) * _PER_MS + incident.is_over  # in the same millisecond, the end comes last
    version = event.detail.get("version")
    return version if isinstance(version, int) else 0
