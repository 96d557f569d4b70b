"""Take events for a target into its queue or a group, and remember them in the same commit.

So an outage of one target delays no other, a repeated event is taken once, and any worker can send what waits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from consumers.alerts import text
from consumers.alerts.pace import Admission
from consumers.alerts.routing import OwnerOf
from consumers.alerts.targets.decision import Taking, TargetRule, decide
from consumers.alerts.targets.target import SUBJECTS, Action
from consumers.alerts.threads import version_of
from consumers.outbox.incidents import incident_of
from consumers.outbox.routes import envelope
from consumers.outbox.severities import Severity, is_told_by_its_end, severity_of
from worker.core.errors import RetryLater
from worker.core.model.events import Event
from worker.core.model.keys import GROUPED_TARGET_ALERTS
from worker.runtime.clock import Clock
from worker.store.repos.delivery.grouped_alerts import waiting_write
from worker.store.repos.delivery.target_alerts import TargetAlerts, TargetThread, WaitingAlert, waiting_put
from worker.store.repos.delivery.threads import ThreadKey
from worker.store.repos.events import Events
from worker.store.row_codec import encode
from worker.store.table import StaleWrite, Write

TRIES_MAX: Final = 20  # each lost one is an event of the same run that another worker took
ACTIONS_MAX: Final = 3  # of one event
LATEST_MAX: Final = 100  # of a pipeline's events, among which to search for the run's success


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIntake:
    """TargetIntake takes events for one target.

    `lanes` maps an owner to the lane with its address; "" is for everyone else.
    """

    rule: TargetRule
    lanes: Mapping[str, str]
    owner_of: OwnerOf
    alerts: TargetAlerts
    events: Events
    admission: Admission
    clock: Clock
    wake: Callable[[str], None]  # tells the sender of a lane that something waits

    async def take(self, event: Event) -> None:
        """Take an event durably, if the target wants it. Raises `RetryLater`."""
        lane = await self._lane_of(event)
        if lane is None or is_told_by_its_end(event.type, event.detail):
            return
        is_opened = await self._take(event, lane)
        if is_opened and incident_of(event) is None:
            await self._take_later_success(event, lane)

    async def retake(self, lane: str, event: Event) -> None:
        """Put an event that became a dead letter into the queue again. Raises `RetryLater`."""
        thread = text.thread_of(event)
        seen = await self.alerts.look(lane, thread)
        is_end = severity_of(event.type, event.detail) in {Severity.SUCCESS, Severity.NOTE}
        action, now = Action.RESOLVE if is_end else Action.TRIGGER, self.clock.now()
        taking = Taking(actions=((action, seen.episode),), after=seen)
        for alert in self._waiting(event, thread, taking, order=seen.revision, at=now):
            await self.alerts.put(lane, alert, now)
        self.wake(lane)

    async def _lane_of(self, event: Event) -> str | None:
        owner = await self.owner_of(event.pipeline) if self.lanes.keys() - {""} else ""
        return self.lanes.get(owner) or self.lanes.get("")

    async def _take(self, event: Event, lane: str) -> bool:
        """Take an event; return whether it opened an alert of its own at the target."""
        thread = text.thread_of(event)
        for _ in range(TRIES_MAX):
            seen = await self.alerts.look(lane, thread)
            taking = None if event.id in seen.told else decide(event, seen, self.rule)
            if taking is None:
                return False
            is_apart = await self._is_told_apart(event, lane, seen, taking)
            now = self.clock.now()
            at = max(now, seen.last_at)
            waiting = self._waiting(event, thread, taking, order=seen.revision, at=at)
            apart = [waiting_put(lane, each, now) for each in waiting]
            try:
                await self.alerts.take(
                    lane,
                    thread,
                    seen,
                    # A run that a group reports has no alert of its own, and so nothing to resolve.
                    replace(taking.after, last_at=at) if is_apart else _grouped(seen, taking.after),
                    told=event.id,
                    now=now,
                    also=apart if is_apart else [self._in_group(event, lane)],
                )
            except StaleWrite:
                continue
            self.wake(lane)
            return is_apart and taking.after.is_open and not seen.is_open
        raise RetryLater(f"others keep changing what {lane} knows of {text.subject_name(event)}; it is tried again")

    async def _is_told_apart(self, event: Event, lane: str, seen: TargetThread, taking: Taking) -> bool:
        if not (self.rule.is_grouped and taking.is_groupable):
            return True
        return await self.admission.is_told_apart(f"target {lane}", event.type, is_answer=seen.is_open)

    def _in_group(self, event: Event, lane: str) -> Write:
        severity = severity_of(event.type, event.detail)
        return waiting_write(lane, event, severity, self.clock.now(), GROUPED_TARGET_ALERTS)

    def _waiting(
        self, event: Event, thread: ThreadKey, taking: Taking, *, order: int, at: datetime
    ) -> Iterator[WaitingAlert]:
        for number, (action, episode) in enumerate(taking.actions):
            yield WaitingAlert(
                id=f"{event.id}#{number}" if number else event.id,
                at=at,
                order=order * ACTIONS_MAX + number,
                action=action,
                subject=subject_of(thread, episode),
                body=encode(envelope(event)),
            )

    async def _take_later_success(self, first: Event, lane: str) -> None:
        """Take the success that arrived before the alert of its run: a queue keeps no order."""
        for stored in reversed(await self.events.latest(first.pipeline, LATEST_MAX)):
            event = stored.event
            is_of_run = (event.schedule, event.period) == (first.schedule, first.period)
            is_success = severity_of(event.type, event.detail) is Severity.SUCCESS
            if is_of_run and is_success and version_of(event) >= version_of(first):
                await self._take(event, lane)


def subject_of(thread: ThreadKey, episode: int = 0) -> str:
    """Return what identifies a run or an incident at a target."""
    about = thread.incident or f"{thread.schedule}/{thread.period}"
    subject = "/".join(part for part in (SUBJECTS, thread.pipeline, about) if part)
    return f"{subject}#{episode}" if episode else subject


def _grouped(seen: TargetThread, after: TargetThread) -> TargetThread:
    return replace(seen, version=after.version, standing=after.standing)
