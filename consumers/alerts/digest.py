"""Post one message per period that counts the successes.

The digest is counted from the events table after its period, so no success is kept in the memory of a worker and lost
with it. Every worker tries to post it; a claim on a thread row decides which one does.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from consumers.alerts import text
from consumers.alerts.chat import ChatRefused
from consumers.alerts.services import AlertServices
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event, EventType
from worker.runtime.logs import logger
from worker.store.repos.delivery.threads import Busy, Claimed, ThreadHeader, ThreadKey
from worker.store.rows import instant_text

SUCCESSES: Final = tuple(event_type for event_type in EventType if severity_of(event_type) is Severity.SUCCESS)
LATE: Final = timedelta(minutes=1)  # for the index, which lags behind
LOOK_BACK: Final = timedelta(hours=1)  # a worker that was down for longer does not start with old digests
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEDULE: Final = "digest"  # in the key of a digest's claim

_log = logger()


@dataclass(slots=True)
class _Counted:
    types: Counter[str] = field(default_factory=Counter[str])
    pipelines: Counter[str] = field(default_factory=Counter[str])

    def add(self, event: Event) -> None:
        self.types[event.type] += 1
        self.pipelines[event.pipeline] += 1


class Digests:
    def __init__(self, telling: AlertServices) -> None:
        self._with = telling
        self._posted_to: datetime | None = None

    async def run(self) -> None:
        """Post digests until cancelled. Return at once if each success is posted separately."""
        every = self._with.routing.digest_every
        while every is not None:
            await self._with.tries.forever(lambda: self._post_due(every))
            next_at = (self._posted_to or _BEGINNING) + every + LATE
            await self._with.clock.sleep(max((next_at - self._with.clock.now()).total_seconds(), 1.0))

    async def _post_due(self, every: timedelta) -> None:
        now = self._with.clock.now()
        until = _begin_of(now - LATE, every)
        since = self._posted_to or _begin_of(until - LOOK_BACK, every)
        while since < until:
            await self._post_window(since, since + every)
            since += every
            self._posted_to = since
        self._posted_to = max(since, until)

    async def _post_window(self, since: datetime, until: datetime) -> None:
        for channel, counted in sorted((await self._count(since, until)).items()):
            try:
                await self._post(since, until, channel, counted)
            except ChatRefused as refused:
                _log.error("digest.refused", channel=channel, reason=str(refused))

    async def _count(self, since: datetime, until: datetime) -> dict[str, _Counted]:
        """Count the successes by channel, because an owner may have a channel of its own."""
        found: dict[str, _Counted] = {}
        owners: dict[str, str] = {}
        for event_type in SUCCESSES:
            async for stored in self._with.events.of_type(event_type, since, until):
                event = stored.event
                if event.at >= until:
                    continue
                if self._with.routing.owners and event.pipeline not in owners:
                    owners[event.pipeline] = await self._with.owner_of(event.pipeline)
                channel = self._with.routing.channel(Severity.SUCCESS, owners.get(event.pipeline, ""))
                found.setdefault(channel, _Counted()).add(event)
        return found

    async def _post(self, since: datetime, until: datetime, channel: str, counted: _Counted) -> None:
        window = ThreadKey("", _SCHEDULE, f"{instant_text(since)}@{channel}")
        claimant = self._with.new_claimant()
        saying = text.digest(since, until, counted.types, counted.pipelines)

        async def once() -> bool:
            """Return whether the digest is posted, by this worker or by another one."""
            claim = await self._with.threads.claim(
                window, channel=channel, claimant=claimant, now=self._with.clock.now()
            )
            if isinstance(claim, Busy):
                return False
            if isinstance(claim, Claimed):
                posted = await self._with.line.post(channel, saying)
                await self._with.tries.forever(
                    lambda: self._with.threads.opened(
                        window,
                        claim,
                        claimant=claimant,
                        channel=posted.channel,
                        timestamp=posted.timestamp,
                        face=ThreadHeader(),
                        told=_SCHEDULE,
                    )
                )
            return True

        while not await self._with.line.say(channel, once):
            await self._with.clock.sleep(1.0)


def _begin_of(at: datetime, every: timedelta) -> datetime:
    """Return the start of the window that contains an instant. Windows are the same for all workers."""
    return at - (at - _BEGINNING) % every
