"""What the engine asks about its own session and others', answered from the group this worker is a member of."""

from typing import Final

from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.fence import Fence
from worker.membership.peers import Peers

OVER_MAX: Final = 1000  # sessions remembered to be over; forgetting one costs a look


class MemberStanding:
    """`Standing` by our own fence and by what we see of our peers."""

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
