"""Recovery: which actions a row calls for, after a crash or a commit whose reply was lost.

They are the same for every reader of the row.
"""

from worker.core.model.keys import SessionId
from worker.core.run.effects import Act, EvaluateNow, FindJob, StartJob, StopJob
from worker.core.run.state import Run, StartStep, State


def pending_actions(run: Run, session: SessionId) -> list[Act]:
    """Return the open actions. Each may be ordered twice; only the named starter gets a `StartJob`.

    A running job is polled at its own times, so no action is due for it at once.
    """
    if run.state is State.EVALUATING:
        return [EvaluateNow()]
    if run.state is State.STOPPING and run.job is not None:
        return [StopJob(run.job)]
    if run.start_step in {StartStep.UNANSWERED, StartStep.ABANDONED}:
        return [FindJob(run.token, run.start_failures)]
    if run.state is State.TRIGGERING and run.start_step is StartStep.SENT and run.starter == session:
        return [StartJob(run.token, run.start_failures)]
    return []


def is_with_another(run: Run, session: SessionId) -> bool:
    """Return whether another session holds the start: it answers, or is found to have ended."""
    return run.start_step is StartStep.SENT and run.job is None and run.starter not in {None, session}
