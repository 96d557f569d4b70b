"""The fence: how a worker knows by itself, without asking anyone, that it may not act any more."""

import threading
from typing import Final

from worker.core.errors import WorkerError
from worker.core.membership.liveness import Timing
from worker.core.model.keys import SessionId
from worker.runtime.clock import Clock

ENDED_BY_ANOTHER: Final = "another worker saw it stand still and ended it"


class SessionLost(WorkerError):
    """This session may be another's prey by now: stop at once, write nothing, start a new one."""

    def __init__(self, session: SessionId, reason: str) -> None:
        super().__init__(f"session {session} is over: {reason}; everything it held is treated as gone")
        self.session, self.reason = session, reason


class Fence:
    """Says whether a session may still act. Once it is down it stays down. Safe to use from two threads.

    Whoever acts asks `is_down` in the same step of the loop as the act.
    """

    def __init__(self, session: SessionId, clock: Clock, timing: Timing, *, registered_at: float) -> None:
        self.session, self._clock, self._fence_s = session, clock, timing.fence_s
        self._deadline = registered_at + timing.fence_s
        self._reason = ""
        self._lock = threading.Lock()

    def is_down(self) -> bool:
        return self.remaining_s() <= 0

    def remaining_s(self) -> float:
        """How long the session may act if no further beat is confirmed. Compare with the time an act takes."""
        with self._lock:
            return self._remaining_s()

    def confirm(self, sent_at: float) -> None:
        """Count from when the beat was *sent*: others may have seen it any time since.

        An answer that comes after the fence fell is too late: by then others were told that we had stopped.
        """
        with self._lock:
            if self._remaining_s() > 0:
                self._deadline = max(self._deadline, sent_at + self._fence_s)

    def drop(self, reason: str) -> None:
        """Take the fence down now. The first reason is kept."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """Raises `SessionLost` if the fence is down."""
        if self.is_down():
            raise SessionLost(self.session, self._reason)

    def _remaining_s(self) -> float:
        left_s = self._deadline - self._clock.monotonic()
        if left_s <= 0 and not self._reason:
            self._reason = f"no beat was confirmed for {self._fence_s:g} s"
        return 0.0 if self._reason else left_s
