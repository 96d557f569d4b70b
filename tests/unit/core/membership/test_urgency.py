"""Which orphans are taken up first."""

from datetime import timedelta

from tests.support.clock.manual import NOON
from worker.core.membership.urgency import SOON, urgency
from worker.core.run.state import State

LATER = NOON + timedelta(hours=1)


def test_what_is_due_comes_first_then_pending_starts_then_waiting_runs_then_running_jobs() -> None:
    ordered = [
        urgency(State.POLLING, NOON - timedelta(hours=1), NOON),
        urgency(State.EVALUATING, NOON + SOON / 2, NOON),
        urgency(State.TRIGGERING, LATER, NOON),
        urgency(State.STOPPING, LATER, NOON),
        urgency(State.EVALUATING, LATER, NOON),
        urgency(State.EVALUATING, LATER + timedelta(hours=1), NOON),
        urgency(State.POLLING, LATER, NOON),
        urgency("", LATER, NOON),
        urgency("", None, NOON),
    ]

    assert ordered == sorted(ordered)
    assert len(set(ordered)) == len(ordered)


def test_every_active_state_has_a_rank_of_its_own() -> None:
    active = [State.EVALUATING, State.TRIGGERING, State.POLLING, State.STOPPING]

    assert len({urgency(state, LATER, NOON) for state in (*active, "")}) == len(active) + 1
