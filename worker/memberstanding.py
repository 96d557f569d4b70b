"""What the engine asks about its own session and others', answered from the group this worker is a member of."""

from worker.core.keys import SessionId
from worker.fence import Fence
from worker.peers import Peers


class MemberStanding:
    """`Standing` by our own fence and by what we see of our peers."""

    def __init__(self, fence: Fence, peers: Peers) -> None:
        self._fence, self._peers = fence, peers

    @property
    def session(self) -> SessionId:
        return self._fence.session

    def may_act(self) -> bool:
        return not self._fence.is_down()

    async def is_over(self, session: SessionId) -> bool:
        await self._peers.look()
        return self._peers.is_over(session)
