"""Next wake-up: when a run is next due. It follows from the row, so timers need not be stored.

They survive a restart for that reason.
"""

from datetime import datetime, timedelta

from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.context import limits
from worker.core.run.state import Run, StartStep, State
from worker.core.run.triggering import START_PAUSE_MAX

FIND_INTERVAL = timedelta(seconds=30)
STOP_INTERVAL = timedelta(seconds=15)
RESEND_INTERVAL = timedelta(seconds=60)  # for a start that a pause holds back
POLL_SPREAD = 0.2  # polls of runs that began together are spread over this part of the interval
# While a job is not expected to end, it is polled each time this part of its expected duration has passed, but at least
# once per `SPARSE_MAX`: an early end is still noticed soon.
SPARSE_PART = 0.1
SPARSE_MAX = timedelta(minutes=5)
NEAR_PART = 0.9  # part of the expected duration after which the poll interval applies


def next_due(
    run: Run,
    pipeline: Pipeline,
    schedule: Schedule,
    now: datetime,
    jitter: float,
    *,
    expected: timedelta | None = None,
    poll_every: timedelta | None = None,
) -> datetime | None:
    """Return the next instant at which the run needs an action; None if it has ended.

    `jitter`, from 0 up to 1, is the run's own place within the spread; a constant value gives a steady interval.
    `expected` is the likely duration of the job: before it, polls are rare. Without it, polls are more frequent.
    `poll_every` is the interval that suffices if the end of the job is announced; a longer one of the pipeline wins.
    """
    if run.is_ended:
        return None
    if run.timeout_at <= now and run.state is not State.STOPPING:
        return now
    every = max(limits(pipeline).poll_interval, poll_every or timedelta())
    beat = _next_poll(run, every, now, jitter, expected) or _next_beat(run, schedule, now)
    ends = (run.window_ends_at, None if run.state is State.STOPPING else run.timeout_at)
    return min(at for at in (beat, *ends) if at is not None and at > now)


def _next_poll(run: Run, every: timedelta, now: datetime, jitter: float, expected: timedelta | None) -> datetime | None:
    if run.state is not State.POLLING:
        return None
    since = run.since - jitter * POLL_SPREAD * every
    next_one = next_beat(since, every, now)
    if expected is None:
        return next_one
    sparse = max(every, min(SPARSE_PART * expected, SPARSE_MAX))
    return min(next_beat(since, sparse, now), max(next_one, since + NEAR_PART * expected))


def _next_beat(run: Run, schedule: Schedule, now: datetime) -> datetime | None:
    match run.state:
        case State.EVALUATING:
            return next_beat(run.since, schedule.evaluation.interval, now)
        case State.STOPPING:
            return next_beat(run.since, STOP_INTERVAL, now)
        case _:
            return _next_start(run, now)


def _next_start(run: Run, now: datetime) -> datetime | None:
    match run.start_step:
        case StartStep.REFUSED if run.start_after is not None:
            if run.start_after > now:
                return min(run.start_after, now + START_PAUSE_MAX)
            return next_beat(run.start_after, RESEND_INTERVAL, now)
        case StartStep.UNANSWERED | StartStep.ABANDONED:
            return next_beat(run.since, FIND_INTERVAL, now)
        case _:
            return None  # its starter holds it: the next fact is the answer, or that the starter is lost


def next_beat(since: datetime, every: timedelta, now: datetime) -> datetime:
    """Return the first instant after now that is a whole number of intervals (at least 1) after `since`.

    It is never further away than one interval: the clock that wrote `since` may have been ahead of this one.
    """
    passed = max((now - since) // every, 0)
    return min(since + (passed + 1) * every, now + every)
