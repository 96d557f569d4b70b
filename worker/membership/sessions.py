"""Membership: runs one session after another, each until it is lost or ended in order.

All work runs inside a session and checks its fence first. When a session is lost, everything in it is cancelled at once
and nothing more is written. The next session starts from the rows.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import Any, Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.membership.liveness import DEFAULT_TIMING, Timing
from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.fence import ENDED_BY_ANOTHER, Fence, SessionLost
from worker.membership.heartbeat import Heart, Pulse
from worker.membership.heartbeat_threads import Beater
from worker.membership.lease_coordinator import LeaseKeeper
from worker.membership.notices import ClockWrong, Notify, SessionBegan, SessionOver, to_nobody
from worker.membership.peers import Peers
from worker.membership.timing_check import TimingCheck
from worker.runtime.clock import Clock
from worker.runtime.process_identity import ProcessWitness
from worker.store.availability import StoreAvailability
from worker.store.repos.leases import Leases
from worker.store.repos.sessions import Sessions
from worker.store.table import StaleWrite, Tables

TICKS_PER_BEAT: Final = 4
TICKS_PER_STALL: Final = 2  # at least: otherwise a working loop would count as stalled
JOIN_PAUSE_S: Final = 1.0  # between two attempts to begin a session
CLOCK_PAUSE_S: Final = 5.0  # between two checks whether a wrong clock was corrected
LEFT_IN_ORDER: Final = "left in order"
WORK_MAX_S: Final = 5.0  # for the work to end, once all leases are released; 25 s in total


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Holds the parts of the current session."""

    fence: Fence
    peers: Peers
    keeper: LeaseKeeper
    stopping: asyncio.Event  # set: finish the current work and return
    guard: ClockGuard
    pulse: Pulse

    @property
    def id(self) -> SessionId:
        return self.fence.session


Work: TypeAlias = Callable[[Member], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Holds the group to join, and how to join it."""

    name: str
    program: str  # the version of this worker, for people
    timing: Timing = DEFAULT_TIMING
    roles: frozenset[str] = frozenset()  # the roles of this worker; empty: all


class Membership:
    """Keeps this worker in its group until it is stopped."""

    def __init__(
        self,
        group: GroupSettings,
        *,
        tables: Tables,
        beater: Beater,
        clock: Clock,
        new_session_id: Callable[[], SessionId],
        guard: ClockGuard | None = None,
        notify: Notify = to_nobody,
        availability: StoreAvailability | None = None,
        witness: ProcessWitness | None = None,
        jitter: Callable[[], float] = random,
    ) -> None:
        self._group, self._tables, self._beater, self._clock = group, tables, beater, clock
        self._new_session_id, self._guard, self._notify = new_session_id, guard or ClockGuard(clock), notify
        self._availability, self._witness = availability, witness
        self._sessions, self._jitter = Sessions(tables, group.name), jitter
        self._timings = TimingCheck(self._sessions, group.timing, clock)
        self._stop_asked = asyncio.Event()
        self._keeper: LeaseKeeper | None = None

    def stop(self) -> None:
        """Leave in order: take nothing, finish, release all leases, end the session. Twice: do not finish."""
        if self._stop_asked.is_set() and self._keeper is not None:
            self._keeper.hurry()
        self._stop_asked.set()

    async def serve(self, work: Work) -> None:
        """Run `work` in one session after another until stopped. Raises errors of `work`, holders and beater.

        Raises `TimingConflict` if a worker with another timing is active in the group.
        """
        while not self._stop_asked.is_set():
            if not self._guard.is_trusted:
                await self._wait_for_clock()
            elif (fence := await self._register()) is not None:
                await self._live(fence, work)

    async def _register(self) -> Fence | None:
        """Begin a session; None if it was not confirmed. Others end a row that was written anyway as dead."""
        group, session, sent_at = self._group, self._new_session_id(), self._clock.monotonic()
        try:
            await self._sessions.register(
                session,
                group.program,
                group.roles,
                pace=group.timing.pace,
                at=self._clock.now(),
                process=str((self._witness and self._witness.own) or ""),
            )
            if not await self._timings.is_agreed(session):
                # Leave while we wait: then no worker shares work with this session, and none ends it by another timing.
                await self._sessions.leave(session)
                await self._timings.watch()
                # Another worker that joins now has seen this session too; the random wait prevents another collision.
                await self._clock.sleep(JOIN_PAUSE_S * self._jitter())
                return None
        except (RetryLater, StaleWrite):
            await self._clock.sleep(JOIN_PAUSE_S)
            return None
        self._notify(SessionBegan(session))
        return Fence(session, self._clock, group.timing, registered_at=sent_at)

    async def _live(self, fence: Fence, work: Work) -> None:
        reason = LEFT_IN_ORDER
        try:
            await self._run(fence, work)
        except* SessionLost as lost:
            reason = _reason(lost)
        self._notify(SessionOver(fence.session, reason))
        if (task := asyncio.current_task()) and task.cancelling():
            # A task group that fails while it is cancelled raises only the failure, so the cancellation is raised here.
            raise asyncio.CancelledError

    async def _run(self, fence: Fence, work: Work) -> None:
        group, pulse, stopping = self._group, Pulse(self._clock, self._group.timing), asyncio.Event()
        peers = Peers(self._sessions, fence, self._clock, group.timing, self._notify, witness=self._witness)
        leases = Leases(self._tables, group.name)
        keeper = LeaseKeeper(leases, peers=peers, fence=fence, pulse=pulse, clock=self._clock, notify=self._notify)
        self._keeper = keeper
        heart = Heart(group.name, fence, pulse, self._clock, group.timing, availability=self._availability)
        member = Member(fence=fence, peers=peers, keeper=keeper, stopping=stopping, guard=self._guard, pulse=pulse)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._beater.run(heart.beat), name="heartbeat"),
                tasks.create_task(self._tick(member, pulse), name="tick"),
                tasks.create_task(keeper.run(), name="leases"),
            ]
            working = tasks.create_task(work(member), name="work")
            await stopping.wait()
            await self._wind_up(member, working)
            for task in running:
                task.cancel()
        # Only now: a worker that finds the session gone may act at once, so none of its work may still run here.
        fence.drop(LEFT_IN_ORDER)
        with suppress(RetryLater):
            await self._sessions.leave(fence.session)

    async def _tick(self, member: Member, pulse: Pulse) -> None:
        """Show the heartbeat that the loop runs, and detect what ends a session. Raises `SessionLost`."""
        timing = self._group.timing
        every_s = min(timing.beat_s / TICKS_PER_BEAT, timing.stall_s / TICKS_PER_STALL)
        while True:
            member.fence.check()
            pulse.tick()
            if self._stop_asked.is_set() or not self._guard.is_trusted:
                member.stopping.set()
            await self._clock.sleep(min(every_s, member.fence.remaining_s()))

    async def _wind_up(self, member: Member, working: "asyncio.Task[None]") -> None:
        """Announce the departure, finish, and release all leases. Peers treat what fails like a crash."""
        with suppress(RetryLater):
            if not await self._sessions.drain(member.id):
                member.fence.drop(ENDED_BY_ANOTHER)
        await member.keeper.give_all_up()
        await asyncio.wait([working], timeout=WORK_MAX_S)
        working.cancel()

    async def _wait_for_clock(self) -> None:
        self._notify(ClockWrong(self._guard.skew.total_seconds()))
        while not self._guard.is_trusted and not self._stop_asked.is_set():
            await self._clock.sleep(CLOCK_PAUSE_S)
            with suppress(RetryLater):
                await self._tables.ping()  # its answer includes the time


def session_ids(task: str) -> Callable[[], SessionId]:
    """Return a function that creates session ids, which name the task and are never reused."""
    return lambda: SessionId(f"{task}-{secrets.token_hex(8)}")


def _reason(group: BaseExceptionGroup[SessionLost]) -> str:
    first = group.exceptions[0]
    return _reason(first) if isinstance(first, BaseExceptionGroup) else first.reason
