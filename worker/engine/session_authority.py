"""What whoever acts must know about the workers: who it is itself, whether it may act, and who is gone."""

from typing import Protocol

from worker.core.model.keys import SessionId


class SessionAuthority(Protocol):
    @property
    def session(self) -> SessionId:
        """Whose name goes on the rows that this worker commits."""
        ...

    def may_act(self) -> bool:
        """False as soon as others may take this worker for dead. Ask in the same step of the loop as the act."""
        ...

    def may_judge_time(self) -> bool:
        """False while the wall clock is known to be wrong: decide nothing by it. Ask right before the decision."""
        ...

    async def is_over(self, session: SessionId) -> bool:
        """Say whether a session has ended for good, as of a look made after the question. May raise `RetryLater`."""
        ...
