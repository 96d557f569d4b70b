"""Send what waits in the queue of a lane: one worker at a time, at a rate that all workers share.

An alert leaves the queue once its target has it, or once it is a dead letter. While a target is down or asks for a
pause, its alerts wait in the store without limit. A worker that dies after a request and before the delete leaves the
alert in the queue: the next worker sends it again, with the same id and subject.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from consumers.alerts.groups import COUNTED_MAX, EVERY
from consumers.alerts.measures import AlertMeasures
from consumers.alerts.pace import WAIT_MAX, Admission, ChannelPace
from consumers.alerts.targets.target import (
    SUBJECTS,
    Action,
    AlertTarget,
    AlertTargetBusy,
    AlertTargetDown,
    AlertTargetRefused,
    GroupNotice,
    TargetNotice,
)
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.routes import event_in
from consumers.outbox.severities import gravest, severity_of
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.runtime.timers import Wakeable
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.target_alerts import TargetAlerts, WaitingAlert
from worker.store.repos.delivery.threads import Claimed, ThreadKey, Threads
from worker.store.row_codec import decode_row
from worker.store.rows import to_json_map

LOOK_EVERY_S: Final = 60.0  # for alerts that a crashed worker has left
BUSY_S: Final = 2.0  # while another worker sends
GATHER_S: Final = 5.0  # after the first event of a group, the others get this long to arrive
RENEW_AFTER_S: Final = 20.0  # age of a claim; a wait for a turn and a call take less than the rest of its lifetime
QUEUED_MAX: Final = 500  # counted for the metric
WAIT_MAX_S: Final = 600.0  # limit for what a target asks for; then it is called again
WHILE_DOWN: Final = Backoff(attempts_max=7, first_s=2.0, longest_s=60.0)

_log = logger()


def letter_source(lane: str) -> str:
    return f"target.{lane}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetServices:
    """TargetServices bundles what the senders of all lanes share."""

    alerts: TargetAlerts
    grouped: GroupedAlerts
    claims: Threads
    letters: DeadLetters
    admission: Admission
    pace: ChannelPace
    tries: RetryPolicy
    clock: Clock
    while_down: Backoff = WHILE_DOWN
    measures: AlertMeasures = field(default_factory=AlertMeasures)
    new_claimant: Callable[[], str] = lambda: token_hex(8)

    async def bury(self, lane: str, alert: WaitingAlert, reason: str) -> None:
        """Keep an alert as a dead letter, then take it out of its queue."""
        letter = DeadLetter(id=alert.id, source=letter_source(lane), at=alert.at, reason=reason, history=(reason,))
        await self.tries.forever(lambda: self.letters.put(letter, alert.body, now=self.clock.now()))
        await self.tries.forever(lambda: self.alerts.drop(lane, [alert]))
        _log.error("alert.target_refused", lane=lane, event_id=alert.id, reason=reason)


class LaneSender:
    """Sends the alerts of one lane. Several workers may run one for the same lane."""

    def __init__(self, lane: str, target: AlertTarget, services: TargetServices) -> None:
        self.lane, self._target, self._with = lane, target, services
        self._alarm = Wakeable(services.clock)
        self._claim = ThreadKey("", incident=f"LANE#{lane}")
        self._failures = 0  # consecutive
        self.failed_tries = 0  # total; a rate limit does not count
        self._reason, self._down_since = "", 0.0
        self._singles = 0  # alerts to send one by one, because the target refused them together

    def wake(self) -> None:
        self._alarm.ring()

    async def reach(self) -> None:
        """Raise `RetryLater` if the last request failed."""
        if self._reason:
            raise RetryLater(self._reason)

    async def run(self) -> None:
        """Send what waits until cancelled."""
        while True:
            wait_s = await self._with.tries.forever(self.send_waiting)
            await self._alarm.sleep(wait_s)

    async def send_waiting(self) -> float:
        """Send what waits, and return in how many seconds to look again. Raises `RetryLater`."""
        if not await self._is_anything_waiting():
            self._with.measures.waiting(self.lane, 0)
            return LOOK_EVERY_S
        claimant = self._with.new_claimant()
        if not await self._is_claimed(claimant):
            self._with.measures.waiting(self.lane, None)
            return BUSY_S
        try:
            self._with.measures.waiting(self.lane, len(await self._with.alerts.first(self.lane, QUEUED_MAX)))
            wait_s = await self._send_all(claimant)
            self._with.measures.waiting(self.lane, 0)
            return wait_s
        except AlertTargetBusy as busy:
            return min(max(busy.wait_s, BUSY_S), WAIT_MAX_S)
        except AlertTargetDown as down:
            return await self._went_down(down)
        finally:
            with suppress(RetryLater):  # the claim expires by itself
                await self._with.claims.give_up(self._claim, claimant=claimant)

    async def _is_anything_waiting(self) -> bool:
        return bool(await self._with.alerts.first(self.lane, 1) or await self._with.grouped.groups(self.lane))

    async def _is_claimed(self, claimant: str) -> bool:
        claim = await self._with.claims.claim(
            self._claim, channel=self.lane, claimant=claimant, now=self._with.clock.now()
        )
        return isinstance(claim, Claimed)

    async def _send_all(self, claimant: str) -> float:
        claimed_at = self._with.clock.monotonic()

        async def is_still_ours() -> bool:
            nonlocal claimed_at
            now = self._with.clock.monotonic()
            if now - claimed_at < RENEW_AFTER_S:
                return True
            claimed_at = now
            return await self._is_claimed(claimant)

        while waiting := await self._with.alerts.first(self.lane, 1 if self._singles else self._target.batch_max):
            if not await is_still_ours():
                return BUSY_S
            await self._send(waiting)
        wait_s = LOOK_EVERY_S
        for _, event_type in await self._with.grouped.groups(self.lane):
            if not await is_still_ours():
                return BUSY_S
            wait_s = min(wait_s, await self._send_group(event_type))
        return wait_s

    # --- One by one ---------------------------------------------------------------------------------------------------

    async def _send(self, waiting: Sequence[WaitingAlert]) -> None:
        """Send alerts in one request. If the target refuses it: one by one, or as a dead letter."""
        self._singles = max(self._singles - 1, 0)
        try:
            notices = [_notice(each) for each in waiting]
            await self._in_turn(lambda: self._target.send(notices))
        except (Rejected, ConfigError) as refused:
            if len(waiting) > 1:
                self._singles = len(waiting)
                return
            self.failed_tries += 1
            await self._with.bury(self.lane, waiting[0], str(refused))
        else:
            # The target has them, so the rows must be dropped: otherwise they would be sent again.
            await self._with.tries.forever(lambda: self._with.alerts.drop(self.lane, waiting))
            self._with.measures.accepted(self.lane, [each.event for each in notices], self._with.clock.now())
            _log.info("alert.sent", lane=self.lane, count=len(waiting), event_id=waiting[0].id)

    # --- In groups ----------------------------------------------------------------------------------------------------

    async def _send_group(self, event_type: str) -> float:
        """Send a group if it may be sent now, and return in how many seconds to look again."""
        alerts = await self._with.grouped.of(self.lane, event_type, COUNTED_MAX)
        if not alerts:
            return LOOK_EVERY_S
        young_s = GATHER_S - (self._with.clock.now() - alerts[0].event.at).total_seconds()
        if 0 < young_s <= GATHER_S:
            return young_s
        if not await self._with.admission.may_tell_group(f"target {self.lane}", event_type, EVERY):
            return GATHER_S
        events = [each.event for each in alerts]
        group = GroupNotice(
            events=events,
            severity=gravest(each.severity for each in alerts),
            subject=f"{SUBJECTS}/group/{event_type}/{events[0].id}",
        )
        try:
            await self._in_turn(lambda: self._target.send_group(group))
        except AlertTargetRefused as refused:
            # The events stay in the store; they are sent once the target accepts them.
            self.failed_tries += 1
            _log.error("alert.group_refused", lane=self.lane, type=event_type, reason=str(refused))
            return EVERY.total_seconds()
        await self._with.tries.forever(lambda: self._with.grouped.drop(self.lane, alerts))
        self._with.measures.accepted(self.lane, events, self._with.clock.now())
        _log.info("alert.group_sent", lane=self.lane, type=event_type, count=len(alerts))
        return GATHER_S

    # --- The shared rate ----------------------------------------------------------------------------------------------

    async def _in_turn(self, call: Callable[[], Awaitable[None]]) -> None:
        pace, wait_s = self._with.pace, await self._with.pace.turn(self._turns)
        if 0 < wait_s <= WAIT_MAX.total_seconds():
            await self._with.clock.sleep(wait_s)
            wait_s = await pace.held_s(self._turns)  # a hold may have begun after the turn was reserved
        if wait_s > 0:
            raise AlertTargetBusy(f"{self.lane} is left alone for a while, as another worker was asked to", wait_s)
        try:
            await call()
        except AlertTargetBusy as busy:
            _log.warning("alert.target_busy", lane=self.lane, wait_s=busy.wait_s)
            with suppress(RetryLater):  # the target will ask the other workers to wait as well
                await pace.hold(self._turns, min(busy.wait_s, WAIT_MAX_S))
            raise
        except Rejected:
            self._came_back()
            raise
        self._came_back()

    @property
    def _turns(self) -> str:
        return f"target {self.lane}"

    async def _went_down(self, down: AlertTargetDown) -> float:
        self.failed_tries += 1
        if not self._failures:
            self._down_since = self._with.clock.monotonic()
            _log.error("alert.target_down", lane=self.lane, reason=str(down))
        self._reason = str(down)
        self._failures = min(self._failures + 1, self._with.while_down.attempts_max)
        wait_s = max(self._with.while_down.wait_s(self._failures), 1.0)
        with suppress(RetryLater):  # one try at a time over all workers, however many alerts wait
            await self._with.pace.hold(self._turns, wait_s)
        return wait_s

    def _came_back(self) -> None:
        if self._failures:
            self._failures, self._reason = 0, ""
            _log.info(
                "alert.target_back", lane=self.lane, after_s=round(self._with.clock.monotonic() - self._down_since)
            )


def _notice(alert: WaitingAlert) -> TargetNotice:
    """Parse a waiting alert. Raises `Rejected` and `ConfigError` if its row is damaged."""
    if alert.action not in set(Action):
        raise Rejected(f"the waiting alert {alert.id} has no known action; drop the dead letter")
    event = event_in(to_json_map(decode_row(alert.body)))
    return TargetNotice(
        event=event,
        severity=severity_of(event.type, event.detail),
        action=Action(alert.action),
        subject=alert.subject,
    )
