"""Job ends: polls a job as soon as its target notices that it may have ended.

It is a hint and nothing more: the regular polls of the run continue, and a poll decides whether the job has ended.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType, Pipeline
from worker.core.run.state import Run, State
from worker.jobs.runner import EndNotifier, Handle, Runner

# Polls the job of a run that this worker holds and records the result; it is harmless if the job still runs.
PollHeld: TypeAlias = Callable[[RunKey], Awaitable[None]]
# Starts a task that ends with the session; its failure is only logged.
Spawn: TypeAlias = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], None]
_WITH_JOB: Final = frozenset({State.POLLING, State.STOPPING})


class JobEnds:
    """Waits for the ends of jobs in tasks of their own, one for each job."""

    def __init__(self, runners: Mapping[JobType, Runner], spawn: Spawn, poll_held: PollHeld) -> None:
        # Computed once, because `isinstance` with a protocol takes longer than the rest of a decision.
        self._notifiers = {kind: runner for kind, runner in runners.items() if isinstance(runner, EndNotifier)}
        self._spawn, self._poll_held = spawn, poll_held
        self._awaited: dict[RunKey, str] = {}  # the token of the job whose end is awaited

    def await_end(self, run: Run, pipeline: Pipeline) -> None:
        """Poll the run's job once it may have ended; does nothing if its target gives no notice of that."""
        notifier = self._notifiers.get(pipeline.job.type) if pipeline.job else None
        if notifier is None or run.job is None or run.state not in _WITH_JOB or self._awaited.get(run.key) == run.token:
            return
        self._awaited[run.key] = run.token
        self._spawn(f"end:{run.key}", partial(self._wait, notifier, run.job, run.key, run.token))

    def is_awaited(self, run: Run) -> bool:
        """Return whether the end of the run's current job will be noticed, so that no other poll is urgent."""
        return self._awaited.get(run.key) == run.token

    def forget(self, key: RunKey) -> None:
        """Ignore the end of the run's job: the run ended, or another worker holds it."""
        self._awaited.pop(key, None)

    async def _wait(self, notifier: EndNotifier, job: Handle, key: RunKey, token: str) -> None:
        # A target that cannot notice the end says so at once; then this is the poll right after the start.
        await notifier.wait_for_end(job)
        if self._awaited.get(key) == token:
            await self._poll_held(key)
