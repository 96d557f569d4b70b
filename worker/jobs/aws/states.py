"""Maps the states of AWS jobs. A test compares each target's table with AWS's own list of states."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime

from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.messages import tidy
from worker.jobs.runner import CannotStop, Failed, JobStatus, Running, StopAccepted, StopAnswer, Stopped, Succeeded

# States of jobs that were asked to stop and have not ended, at Glue, EMR and EMR Serverless.
STOPPING = frozenset({"STOPPING", "CANCEL_PENDING", "CANCELLING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Holds every state of one target, by meaning."""

    running: frozenset[str]
    succeeded: str
    failed: Mapping[str, FailureCategory]

    @property
    def known(self) -> frozenset[str]:
        return self.running | {self.succeeded} | self.failed.keys()

    def judge(self, state: object, message: str = "", ended_at: datetime | None = None) -> JobStatus:
        """Interpret a state; `message` is the target's own text. Raises `RetryLater` if there is no state."""
        if not isinstance(state, str) or not state:
            raise RetryLater("the target answered without the job's state; it is asked again")
        if state == self.succeeded:
            return Succeeded(ended_at)
        if category := self.failed.get(state):
            return Failed(category, tidy(f"{state}: {message}" if message else state), ended_at)
        # A state that AWS added is not a known end: the job counts as running, bounded by the poll window.
        return Running(state if state in self.running else tidy(f"{state}, a state that this version does not know"))


async def refused_stop(trouble: AwsTrouble, seen: Awaitable[JobStatus]) -> StopAnswer:
    """Return the result of a stop that AWS refused: fine if the job ended or is already stopping.

    Raises `RetryLater` if the stop may have been executed, or may succeed next time.
    """
    status = await seen
    if not isinstance(status, Running):
        return Stopped()
    if status.message in STOPPING:
        return StopAccepted()
    if trouble.category is FailureCategory.PERMANENT:
        return CannotStop(str(trouble))
    raise trouble
