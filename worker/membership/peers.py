"""Peers: which workers of the group are alive, ending dead sessions, and what the engine asks of both."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.membership.liveness import Sightings, Timing, next_look_s, observe, stood_still
from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.fence import ENDED_BY_ANOTHER, Fence
from worker.membership.notices import Notify, PeerEnded
from worker.runtime.clock import Clock
from worker.store.repos.sessions import Session, Sessions, SessionState

# All that a worker must see changed before it reads the leases again.
Situation: TypeAlias = frozenset[tuple[SessionId, SessionState, int]]

_NOBODY: Final[dict[SessionId, Session]] = {}
# Every look of every worker reads all rows of the group, so a worker that dies again and again must not leave ever more
# of them. So many of the dead are kept for people to see, and so many others cleared away at each look.
DEAD_KEPT_MAX: Final = 20
FORGOTTEN_AT_ONCE: Final = 5


class Peers:
    """What this worker saw of its group when it last looked."""

    def __init__(self, sessions: Sessions, fence: Fence, clock: Clock, timing: Timing, notify: Notify) -> None:
        self._sessions, self._fence, self._clock, self._timing = sessions, fence, clock, timing
        self._notify = notify
        self._seen: Sightings = {}
        self._listed = _NOBODY
        self.live = frozenset[SessionId]()
        # One look at a time: an older answer must not come after a newer one and make a newcomer look like a dead one.
        self._looking = asyncio.Lock()
        self.departures = 0  # how often someone who was LIVE was found to be so no more

    async def look(self) -> None:
        """Read who is there, and end whoever stood still.

        Raises `RetryLater`; what was seen before still counts then. Raises `SessionLost` if we were ended ourselves.
        """
        async with self._looking:
            await self._look()

    @property
    def look_s(self) -> float:
        return self._timing.look_s

    @property
    def next_look_s(self) -> float:
        return next_look_s(self._seen, self._timing, monotonic=self._clock.monotonic())

    def live_for(self, duty: str) -> frozenset[SessionId]:
        """Those who share the work of a duty."""
        return frozenset(id_ for id_ in self.live if self._listed[id_].does(duty))

    def is_live(self, session: SessionId) -> bool:
        found = self._listed.get(session)
        return found is not None and found.state is SessionState.LIVE

    def knows(self, session: SessionId) -> bool:
        """False for one that came after our last look, and for one that is gone: look again to tell which."""
        return session in self._listed

    def is_over(self, session: SessionId) -> bool:
        """DEAD, or gone for good: ids are not used twice. Meant for one whose row was read before our last look."""
        found = self._listed.get(session)
        return found is None or not found.is_alive

    @property
    def situation(self) -> Situation:
        others = (session for session in self._listed.values() if session.id != self._fence.session)
        return frozenset((session.id, session.state, session.changes) for session in others)

    async def _look(self) -> None:
        listed = {session.id: session for session in await self._sessions.list()}
        now = self._clock.monotonic()  # after the answer: a beat seen now was sent before now
        self._check_own(listed)
        others = {id_: session.beat for id_, session in listed.items() if self._is_other(session)}
        self._seen = observe(self._seen, others, monotonic=now)
        for id_ in stood_still(self._seen, self._timing, monotonic=now):
            if await self._end(listed[id_]):
                listed[id_] = replace(listed[id_], state=SessionState.DEAD)
        before, self._listed = self.live, listed
        self.live = frozenset(id_ for id_ in listed if self.is_live(id_))
        self.departures += not before <= self.live
        await self._forget_some(listed)

    async def _forget_some(self, listed: dict[SessionId, Session]) -> None:
        """Clear away the oldest of many dead. Another time will do, if the store is in trouble."""
        dead = sorted((session for session in listed.values() if not session.is_alive), key=lambda s: s.kept_until)
        surplus = dead[: max(0, len(dead) - DEAD_KEPT_MAX)]
        with suppress(RetryLater):
            for session in surplus[:FORGOTTEN_AT_ONCE]:
                await self._sessions.forget(session.id)

    def _is_other(self, session: Session) -> bool:
        return session.is_alive and session.id != self._fence.session

    def _check_own(self, listed: dict[SessionId, Session]) -> None:
        own = listed.get(self._fence.session)
        if own is None or not own.is_alive:
            self._fence.drop(ENDED_BY_ANOTHER)
        self._fence.check()

    async def _end(self, session: Session) -> bool:
        is_over = await self._sessions.kill(session, self._clock.now())
        if is_over:
            self._notify(PeerEnded(session.id))
        return is_over


OVER_MAX: Final = 1000  # sessions remembered to be over; forgetting one costs a look


class MemberStanding:
    """`SessionAuthority` by our own fence and by what we see of our peers."""

    def __init__(self, fence: Fence, peers: Peers, guard: ClockGuard) -> None:
        self._fence, self._peers, self._guard = fence, peers, guard
        self._over: set[SessionId] = set()

    @property
    def session(self) -> SessionId:
        return self._fence.session

    def may_act(self) -> bool:
        return not self._fence.is_down()

    def may_judge_time(self) -> bool:
        return self._guard.is_trusted

    async def is_over(self, session: SessionId) -> bool:
        """What is over stays so: the ten thousand runs of one dead session cost one look, not ten thousand."""
        if session in self._over:
            return True
        await self._peers.look()
        if not self._peers.is_over(session):
            return False
        if len(self._over) >= OVER_MAX:
            self._over.clear()
        self._over.add(session)
        return True
