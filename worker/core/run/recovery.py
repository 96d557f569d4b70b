"""What a row itself calls for, whoever reads it: how work goes on after a crash or a commit whose reply was lost."""

from worker.core.model.keys import SessionId
from worker.core.run.effects import Act, EvaluateNow, FindJob, StartJob, StopJob
from worker.core.run.state import Run, StartStep, State


def pending_actions(run: Run, session: SessionId) -> list[Act]:
    """The acts that are open. Any of them may be ordered twice; only who is named as starter is told to start.

    A job that runs is asked about in its own time, so nothing is due for it at once.
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
    """Say whether the start is with a starter other than this session: it lives and answers, or is found dead."""
    return run.start_step is StartStep.SENT and run.job is None and run.starter not in {None, session}
