"""When a run is next due follows from its row, so a restart changes nothing."""

import itertools
from datetime import datetime, timedelta

import pytest

from tests.support.builders.run_steps import PLAIN
from tests.support.builders.values import HOUR, MINUTE, NOON, a_run
from worker.core.run.next_wakeup import (
    FIND_INTERVAL,
    POLL_SPREAD,
    SPARSE_MAX,
    SPARSE_PART,
    STOP_INTERVAL,
    next_due,
)
from worker.core.run.state import Run, StartStep, State
from worker.core.run.triggering import START_PAUSE_MAX

SECOND = timedelta(seconds=1)


def due(run: Run, now: datetime, jitter: float = 0, expected: timedelta | None = None) -> datetime | None:
    return next_due(run, PLAIN, PLAIN.schedules[0], now, jitter, expected=expected)


def polls(run: Run, until: datetime, expected: timedelta | None, jitter: float = 0) -> list[datetime]:
    """When a job is polled that does not end."""
    times = [run.since]
    while (at := due(run, times[-1], jitter, expected)) is not None and at <= until:
        times.append(at)
    return times[1:]


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


def test_a_job_is_polled_rarely_until_it_is_expected_to_end_and_then_at_its_interval() -> None:
    run = a_run(State.POLLING, window_ends_at=NOON + 2 * HOUR)

    times = polls(run, NOON + HOUR, expected=50 * MINUTE)

    minutes = [(at - NOON) / MINUTE for at in times]
    assert minutes == [5, 10, 15, 20, 25, 30, 35, 40, *range(45, 61)]


@pytest.mark.parametrize("expected", [None, timedelta(), 5 * MINUTE, 10 * MINUTE])
def test_a_job_that_is_expected_to_be_short_is_polled_at_its_interval(expected: timedelta | None) -> None:
    run = a_run(State.POLLING)

    assert polls(run, NOON + 20 * MINUTE, expected) == [NOON + n * MINUTE for n in range(1, 21)]


@pytest.mark.parametrize("expected", [30 * MINUTE, 2 * HOUR, 20 * HOUR])
@pytest.mark.parametrize("jitter", [0, 0.3, 0.999])
def test_no_end_is_seen_later_than_a_tenth_of_what_was_expected_nor_than_the_bound(
    expected: timedelta, jitter: float
) -> None:
    run = a_run(State.POLLING, window_ends_at=NOON + 30 * HOUR, timeout_at=NOON + 30 * HOUR)

    times = [NOON, *polls(run, NOON + 25 * HOUR, expected, jitter)]

    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= min(expected * SPARSE_PART, SPARSE_MAX)
    assert min(gaps) > timedelta()


def test_whoever_takes_over_in_between_polls_at_the_same_times() -> None:
    run = a_run(State.POLLING, window_ends_at=NOON + 2 * HOUR)
    times = polls(run, NOON + HOUR, 50 * MINUTE, jitter=0.4)

    for earlier, later in itertools.pairwise(times):
        assert due(run, earlier + (later - earlier) / 2, 0.4, 50 * MINUTE) == later


def test_a_rare_poll_is_never_later_than_the_end_of_the_window() -> None:
    run = a_run(State.POLLING, window_ends_at=NOON + 7 * MINUTE)

    assert polls(run, NOON + 7 * MINUTE, 50 * MINUTE) == [NOON + 5 * MINUTE, NOON + 7 * MINUTE]


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


@pytest.mark.parametrize("ahead", [SECOND, HOUR, timedelta(days=400)])
@pytest.mark.parametrize("jitter", [0, 0.999])
@pytest.mark.parametrize(
    ("run", "at_most"),
    [
        (a_run(State.EVALUATING), 5 * MINUTE),
        (a_run(State.POLLING), MINUTE),
        (a_run(State.STOPPING), STOP_INTERVAL),
        (a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED), FIND_INTERVAL),
        (a_run(State.TRIGGERING, start_step=StartStep.ABANDONED), FIND_INTERVAL),
        (a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_after=NOON + MINUTE), START_PAUSE_MAX),
    ],
    ids=lambda value: f"{value.state}" if isinstance(value, Run) else "",
)
def test_no_row_of_a_time_that_has_not_come_is_looked_at_later_than_one_of_now(
    run: Run, at_most: timedelta, ahead: timedelta, jitter: float
) -> None:
    now = NOON - ahead

    assert now < (due(run, now, jitter) or now) <= now + at_most


@pytest.mark.parametrize("expected", [MINUTE, HOUR, 20 * HOUR])
def test_a_job_that_is_expected_to_be_long_is_polled_within_its_bound_after_a_clock_was_set_back(
    expected: timedelta,
) -> None:
    now = NOON - timedelta(days=1)

    assert now < (due(a_run(State.POLLING), now, 0, expected) or now) <= now + SPARSE_MAX
