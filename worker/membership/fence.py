"""Fence: how a worker knows by itself, without a call to the store, that it must stop acting."""

import threading
from typing import Final

from worker.core.errors import WorkerError
from worker.core.membership.liveness import Timing
from worker.core.model.keys import SessionId
from worker.runtime.clock import Clock

ENDED_BY_ANOTHER: Final = "another worker saw it stand still and ended it"


class SessionLost(WorkerError):
    """SessionLost: another worker may have ended this session. Stop, write nothing, start a new one."""

    def __init__(self, session: SessionId, reason: str) -> None:
        super().__init__(f"session {session} is over: {reason}; everything it held is treated as gone")
        self.session, self.reason = session, reason


class Fence:
    """States whether a session may still act. Once down it stays down. Two threads may share it.

    A caller checks `is_down` in the same step of the event loop as its action.
    """

    def __init__(self, session: SessionId, clock: Clock, timing: Timing, *, registered_at: float) -> None:
        self.session, self._clock, self._fence_s = session, clock, timing.fence_s
        self._deadline = registered_at + timing.fence_s
        self._reason = ""
        self._lock = threading.Lock()

    def is_down(self) -> bool:
        return self.remaining_s() <= 0

    def remaining_s(self) -> float:
        """Return how long the session may act if no further heartbeat is confirmed.

        Compare it with the time that an action takes.
        """
        with self._lock:
            return self._remaining_s()

    def confirm(self, sent_at: float) -> None:
        """Extend the deadline from when the heartbeat was *sent*: others may have seen it since then.

        A confirmation that arrives after the fence fell is too late: by then other workers may rely on this session
        having stopped.
        """
        with self._lock:
            if self._remaining_s() > 0:
                self._deadline = max(self._deadline, sent_at + self._fence_s)

    def drop(self, reason: str) -> None:
        """Take the fence down now. The first reason is kept."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """Raise `SessionLost` if the fence is down."""
        if self.is_down():
            raise SessionLost(self.session, self._reason)

    def _remaining_s(self) -> float:
        left_s = self._deadline - self._clock.monotonic()
        if left_s <= 0 and not self._reason:
            self._reason = f"no beat was confirmed for {self._fence_s:g} s"
        return 0.0 if self._reason else left_s
