"""Session authority: which session this is, whether it may act, and which sessions have ended."""

from typing import Protocol

from worker.core.model.keys import SessionId


class SessionAuthority(Protocol):
    @property
    def session(self) -> SessionId:
        """Return the session that this worker writes on the rows it commits."""
        ...

    def may_act(self) -> bool:
        """Return False once others may consider this worker dead. Call it in the loop step of the action."""
        ...

    def may_judge_time(self) -> bool:
        """Return False while the wall clock is known to be wrong. Call it right before the decision.

        While it is False, make no decision that depends on the time.
        """
        ...

    async def is_over(self, session: SessionId) -> bool:
        """Return whether a session has ended for good, by a read made after the call.

        Raises `RetryLater`.
        """
        ...
