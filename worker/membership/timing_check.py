"""Keeps workers with different timings apart.

Each would take the other for dead while it may still act. A joining worker writes its own session first and then reads
the others. So of two workers that join at once, at least one sees the other, and they never both continue.
"""

from collections.abc import Sequence
from typing import Final

from worker.core.errors import ConfigError
from worker.core.membership.liveness import Timing, kill_s_of, name_of_pace
from worker.core.model.keys import SessionId
from worker.runtime.clock import Clock
from worker.store.repos.sessions import Session, Sessions

LOOK_EVERY_S: Final = 0.5
VARIABLE: Final = "INTERLOCK_TIMING"


class TimingConflict(ConfigError):
    """TimingConflict: a worker with another timing is active on the same store."""

    def __init__(self, own: str, other: Session) -> None:
        super().__init__(
            f"{VARIABLE} is {name_of_pace(own)} here and {name_of_pace(other.pace)} for worker {other.id}, which is at "
            "work on the same store: each would take the other for dead while it still acts; set the same everywhere; "
            "to change it, stop all workers, set it, and start them again"
        )
        self.own, self.other = own, other


class TimingCheck:
    """Checks the timing of a group before a worker joins it."""

    def __init__(self, sessions: Sessions, timing: Timing, clock: Clock) -> None:
        self._sessions, self._timing, self._clock = sessions, timing, clock

    async def is_agreed(self, own: SessionId) -> bool:
        """Return whether no other session is registered with another timing. Raises `RetryLater`."""
        return not [session for session in await self._strangers() if session.id != own]

    async def watch(self) -> None:
        """Wait until sessions with another timing are gone; end those without a heartbeat for long enough.

        Raises `TimingConflict` at their first heartbeat, and `RetryLater`.
        """
        seen = {session.id: session.beat for session in await self._strangers()}
        since = self._clock.monotonic()
        while seen:
            await self._clock.sleep(LOOK_EVERY_S)
            strangers = [session for session in await self._strangers() if session.id in seen]
            for session in strangers:
                if session.beat != seen[session.id]:
                    raise TimingConflict(self._timing.pace, session)
            if self._clock.monotonic() - since >= self._patience_s(strangers):
                for session in strangers:
                    await self._sessions.kill(session, self._clock.now())
                return
            seen = {session.id: session.beat for session in strangers}

    async def _strangers(self) -> list[Session]:
        listed = await self._sessions.list()
        return [each for each in listed if each.is_alive and each.pace not in {"", self._timing.pace}]

    def _patience_s(self, strangers: Sequence[Session]) -> float:
        """Return the longer kill time of theirs and ours: before it they may still act."""
        return max((self._timing.kill_s, *(kill_s_of(session.pace) for session in strangers)))
