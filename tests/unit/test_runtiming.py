"""When a run is next due follows from its row, so a restart changes nothing."""

from datetime import datetime, timedelta

import pytest

from tests.builders import HOUR, MINUTE, NOON, a_run
from tests.runsteps import PLAIN
from worker.core.runstate import Run, StartStep, State
from worker.core.runtiming import POLL_SPREAD, next_due

SECOND = timedelta(seconds=1)


def due(run: Run, now: datetime, jitter: float = 0) -> datetime | None:
    return next_due(run, PLAIN, PLAIN.schedules[0], now, jitter)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (NOON, NOON + 5 * MINUTE),
        (NOON + 5 * MINUTE - SECOND, NOON + 5 * MINUTE),
        (NOON + 5 * MINUTE, NOON + 10 * MINUTE),
        (NOON + 58 * MINUTE, NOON + HOUR),
    ],
)
def test_evaluations_keep_the_beat_they_began_with(now: datetime, expected: datetime) -> None:
    assert due(a_run(), now) == expected


def test_the_last_evaluation_is_at_the_end_of_the_window_even_off_the_beat() -> None:
    run = a_run(window_ends_at=NOON + 7 * MINUTE)

    assert due(run, NOON + 6 * MINUTE) == NOON + 7 * MINUTE


def test_a_run_held_beyond_its_window_by_a_pause_is_looked_at_on_every_beat() -> None:
    assert due(a_run(), NOON + HOUR) == NOON + HOUR + 5 * MINUTE


def test_polls_of_runs_that_began_together_are_spread_and_each_keeps_its_place() -> None:
    run = a_run(State.POLLING)

    assert due(run, NOON) == NOON + MINUTE
    assert due(run, NOON, jitter=0.5) == NOON + MINUTE - 0.5 * POLL_SPREAD * MINUTE
    assert due(run, NOON + MINUTE, jitter=0.5) == NOON + 2 * MINUTE - 0.5 * POLL_SPREAD * MINUTE


def test_a_start_is_due_when_its_backoff_is_over_and_one_with_its_starter_is_not() -> None:
    refused = a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_after=NOON + 30 * SECOND)
    doubtful = a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED)
    sent = a_run(State.TRIGGERING)

    assert due(refused, NOON) == NOON + 30 * SECOND
    assert due(refused, NOON + 30 * SECOND) == NOON + 90 * SECOND  # held back by a pause, say
    assert due(doubtful, NOON) == NOON + 30 * SECOND
    assert due(sent, NOON) == sent.timeout_at


def test_a_stop_is_repeated_until_its_patience_is_over() -> None:
    run = a_run(State.STOPPING, timeout_at=NOON)

    assert due(run, NOON) == NOON + 15 * SECOND
    assert due(run, NOON + 10 * MINUTE - SECOND) == NOON + 10 * MINUTE


@pytest.mark.parametrize("state", [State.EVALUATING, State.TRIGGERING, State.POLLING])
def test_a_run_out_of_patience_is_due_at_once_and_never_later(state: State) -> None:
    run = a_run(state)

    assert due(run, run.timeout_at - SECOND) == run.timeout_at
    assert due(run, run.timeout_at) == run.timeout_at


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED_FINAL])
def test_an_ended_run_is_never_due(state: State) -> None:
    assert due(a_run(state), NOON) is None
