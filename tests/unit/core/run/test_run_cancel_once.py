"""A cancellation that is asked for by a row is answered once, however often the row is delivered."""

import pytest

from tests.support.builders.values import ME, MINUTE, NOON, a_pipeline, a_run
from worker.core.model.effects import Ignore
from worker.core.run.effects import NoteHandled
from worker.core.run.facts import CancelRequested
from worker.core.run.machine import decide, evolve
from worker.core.run.state import Run, State

CANCEL = CancelRequested(reason="not needed", identity="request-1")
PIPELINE = a_pipeline()
SCHEDULE = PIPELINE.schedules[0]


@pytest.mark.parametrize("state", State)
def test_a_cancellation_is_remembered_whatever_it_found(state: State) -> None:
    run = a_run(state)

    decision = decide(run, PIPELINE, SCHEDULE, CANCEL, NOON + MINUTE)
    after = evolve(run, decision, NOON + MINUTE, ME)

    assert isinstance(after, Run)
    assert NoteHandled("request-1") in decision.extras
    assert after.handled == ("request-1",)


@pytest.mark.parametrize("state", State)
def test_a_cancellation_delivered_again_does_not_touch_the_rerun_that_came_after_it(state: State) -> None:
    run = a_run(state, attempt=2, handled=("request-1",))

    decision = decide(run, PIPELINE, SCHEDULE, CANCEL, NOON + MINUTE)

    assert isinstance(decision.main, Ignore)
    assert decision.extras == ()


def test_the_effect_that_moves_the_run_stays_first() -> None:
    remembered = decide(a_run(State.POLLING), PIPELINE, SCHEDULE, CANCEL, NOON + MINUTE)
    plain = decide(a_run(State.POLLING), PIPELINE, SCHEDULE, CancelRequested(reason="not needed"), NOON + MINUTE)

    assert remembered == plain.noting(NoteHandled("request-1"))
    assert remembered.effects[0] == plain.main
