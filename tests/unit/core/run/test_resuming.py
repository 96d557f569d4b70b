import pytest

from tests.support.builders.values import HANDLE, ME, a_run
from worker.core.model.keys import SessionId
from worker.core.run.effects import Act, EvaluateNow, FindJob, StartJob, StopJob
from worker.core.run.recovery import is_with_another, pending_actions
from worker.core.run.state import Run, StartStep, State

OTHER = SessionId("other")
TOKEN = a_run().token


@pytest.mark.parametrize(
    ("run", "acts"),
    [
        (a_run(State.EVALUATING), [EvaluateNow()]),
        (a_run(State.TRIGGERING), [StartJob(TOKEN, 0)]),
        (a_run(State.TRIGGERING, start_failures=2), [StartJob(TOKEN, 2)]),
        (a_run(State.TRIGGERING, starter=OTHER), []),
        (a_run(State.TRIGGERING, start_step=StartStep.REFUSED), []),
        (a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED), [FindJob(TOKEN, 0)]),
        (a_run(State.TRIGGERING, start_step=StartStep.ABANDONED, starter=OTHER), [FindJob(TOKEN, 0)]),
        (a_run(State.POLLING), []),
        (a_run(State.STOPPING), [StopJob(HANDLE)]),
        (a_run(State.STOPPING, job=None, start_step=StartStep.UNANSWERED), [FindJob(TOKEN, 0)]),
        (a_run(State.STOPPING, job=None, start_step=StartStep.SENT, starter=ME), []),
        (a_run(State.COMPLETED), []),
        (a_run(State.FAILED_FINAL), []),
    ],
)
def test_a_row_itself_says_what_is_open(run: Run, acts: list[Act]) -> None:
    assert pending_actions(run, ME) == acts


@pytest.mark.parametrize(
    ("run", "is_so"),
    [
        (a_run(State.TRIGGERING, starter=OTHER), True),
        (a_run(State.STOPPING, job=None, start_step=StartStep.SENT, starter=OTHER), True),
        (a_run(State.TRIGGERING, starter=ME), False),
        (a_run(State.TRIGGERING, starter=OTHER, start_step=StartStep.UNANSWERED), False),
        (a_run(State.STOPPING, start_step=StartStep.SENT, starter=OTHER), False),
        (a_run(State.POLLING), False),
    ],
)
def test_a_start_is_with_another_while_that_one_is_to_send_it(run: Run, is_so: bool) -> None:
    assert is_with_another(run, ME) is is_so
