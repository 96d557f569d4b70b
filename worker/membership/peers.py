"""Peers: lists the live workers of the group, ends dead sessions, and answers the engine about both."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from worker.core.errors import RetryLater
from worker.core.membership.liveness import Sightings, Timing, next_look_s, observe, stood_still
from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.fence import ENDED_BY_ANOTHER, Fence
from worker.membership.notices import Notify, PeerEnded
from worker.runtime.clock import Clock
from worker.runtime.process_identity import ProcessWitness, parse_identity
from worker.store.repos.sessions import Session, Sessions, SessionState

_NOBODY: Final[dict[SessionId, Session]] = {}
# Every check of every worker reads all rows of the group, so a worker that crashes repeatedly must not add rows without
# bound. This many dead sessions are kept for people to see; each check deletes a few of the others.
DEAD_KEPT_MAX: Final = 20
FORGOTTEN_AT_ONCE: Final = 5


class Peers:
    """Holds what this worker saw of its group at its last check."""

    def __init__(
        self,
        sessions: Sessions,
        fence: Fence,
        clock: Clock,
        timing: Timing,
        notify: Notify,
        *,
        witness: ProcessWitness | None = None,
    ) -> None:
        self._sessions, self._fence, self._clock, self._timing = sessions, fence, clock, timing
        self._notify, self._witness = notify, witness
        self._seen: Sightings = {}
        self._listed = _NOBODY
        self.live = frozenset[SessionId]()
        # One check at a time: if an older answer came after a newer one, a new session would appear dead.
        self._looking = asyncio.Lock()
        # How many checks found that another session had begun, changed or ended. Who compares two counts also notices a
        # session that came and went in between.
        self.changes = 0
        self.departures = 0  # how often a session was found to leave, or to have ended

    async def look(self) -> None:
        """Read all sessions, and end those whose heartbeat has stopped or whose process has ended.

        Raises `RetryLater`; the previous result then stays valid. Raises `SessionLost` if another worker ended this
        session.
        """
        async with self._looking:
            await self._look()

    @property
    def look_s(self) -> float:
        return self._timing.look_s

    @property
    def next_look_s(self) -> float:
        return next_look_s(self._seen, self._timing, monotonic=self._clock.monotonic())

    def live_for(self, role: str) -> frozenset[SessionId]:
        """Return the live sessions that have a role."""
        return frozenset(id_ for id_ in self.live if self._listed[id_].does(role))

    @property
    def loads(self) -> Mapping[SessionId, int]:
        """Return the load in the last heartbeat of each session: the runs that it holds."""
        return {id_: session.load for id_, session in self._listed.items()}

    def is_live(self, session: SessionId) -> bool:
        found = self._listed.get(session)
        return found is not None and found.state is SessionState.LIVE

    def knows(self, session: SessionId) -> bool:
        """Return False for a session that began after the last check or is gone; check again to decide."""
        return session in self._listed

    def is_over(self, session: SessionId) -> bool:
        """Return whether a session is DEAD or deleted; ids are never reused.

        Valid only for a session whose row was read before the last check.
        """
        found = self._listed.get(session)
        return found is None or not found.is_alive

    async def _look(self) -> None:
        listed = {session.id: session for session in await self._sessions.list()}
        now = self._clock.monotonic()  # after the answer: a heartbeat seen now was sent before now
        self._check_own(listed)
        others = {id_: session.beat for id_, session in listed.items() if self._is_other(session)}
        self._seen = observe(self._seen, others, monotonic=now)
        ended = [id_ for id_ in others if self._has_ended(listed[id_])]
        for id_ in dict.fromkeys((*ended, *stood_still(self._seen, self._timing, monotonic=now))):
            if await self._end(listed[id_]):
                listed[id_] = replace(listed[id_], state=SessionState.DEAD)
        before, self._listed = self._listed, listed
        self.live = frozenset(id_ for id_ in listed if self.is_live(id_))
        self.changes += self._others(before) != self._others(listed)
        self.departures += any(self._has_departed(session) for session in before.values())
        await self._forget_some(listed)

    def _others(self, listed: Mapping[SessionId, Session]) -> list[tuple[SessionId, SessionState, int]]:
        """Return what other workers act on: the state of each other session, and how often its leases changed."""
        others = (session for session in listed.values() if session.id != self._fence.session)
        return sorted((session.id, session.state, session.changes) for session in others)

    def _has_departed(self, before: Session) -> bool:
        """Return whether a session leaves or has ended since an earlier check.

        One that leaves in order does both: until it ends, it may commit rows that were not there when it began to
        leave.
        """
        is_leaving = before.state is SessionState.LIVE and not self.is_live(before.id)
        return is_leaving or (before.is_alive and self.is_over(before.id))

    async def _forget_some(self, listed: dict[SessionId, Session]) -> None:
        """Delete the oldest surplus dead sessions. If the store is unavailable, a later check does it."""
        dead = sorted((session for session in listed.values() if not session.is_alive), key=lambda s: s.kept_until)
        surplus = dead[: max(0, len(dead) - DEAD_KEPT_MAX)]
        with suppress(RetryLater):
            for session in surplus[:FORGOTTEN_AT_ONCE]:
                await self._sessions.forget(session.id)

    def _has_ended(self, session: Session) -> bool:
        """Return whether the session's process has certainly ended; then there is nothing to wait for."""
        process = parse_identity(session.process) if self._witness else None
        return self._witness is not None and process is not None and self._witness.has_ended(process)

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


OVER_MAX: Final = 1000  # ended sessions remembered; forgetting one costs a check


class MemberStanding:
    """Implements `SessionAuthority` with this worker's fence and its view of the peers."""

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
        """Return whether a session has ended, and remember it.

        An ended session stays ended, so ten thousand runs of one dead session cost one check, not ten thousand.
        """
        if session in self._over:
            return True
        await self._peers.look()
        if not self._peers.is_over(session):
            return False
        if len(self._over) >= OVER_MAX:
            self._over.clear()
        self._over.add(session)
        return True
