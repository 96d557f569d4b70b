"""Clock shift: moves a row's times after the wall clock was set.

Windows and retry delays are durations, so they move with the clock. Deadlines and cron times are wall-clock times and
stay as they are.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from worker.core.model.effects import Ignore
from worker.core.run.effects import ShiftTimes
from worker.core.run.facts import ClockStepped
from worker.core.run.state import Run
from worker.core.time.skew import was_set_back


def decide_step(since: datetime, fact: ClockStepped) -> ShiftTimes | Ignore:
    """Decide on a step of the clock, once.

    A row that was shifted, or entered another state since, has another `since`.
    """
    if fact.since != since:
        return Ignore("its times are by the clock as it is now")
    return ShiftTimes(fact.by)


def realign(since: datetime, now: datetime, patience: timedelta | None = None) -> ShiftTimes | None:
    """Return the smallest shift for a row whose `since` lies in the future; None if it does not.

    Either the clock was set back while no worker watched it, or the row entered its state by a clock that was ahead for
    a while. In the second case the older times on the row are right.
    """
    return ShiftTimes(now - since, patience) if was_set_back(since, now) else None


def shifted(run: Run, by: timedelta, patience: timedelta | None = None) -> Run:
    """Move the times that bound durations.

    After a clock was set back, the start of the attempt moves too: it must lie before every later write about the
    attempt.
    """
    if patience is not None:
        now, moved = run.since + by, shifted(run, by)
        timeout_at = min(run.timeout_at, now + patience)
        return replace(moved, timeout_at=timeout_at, attempt_at=min(run.attempt_began_at, now))
    return replace(
        run,
        since=run.since + by,
        window_ends_at=_moved(run.window_ends_at, by),
        timeout_at=run.timeout_at + by,
        start_after=_moved(run.start_after, by),
        started_at=_moved(run.started_at, by),
        attempt_at=run.attempt_began_at + by if by < timedelta() else run.attempt_at,
    )


def _moved(at: datetime | None, by: timedelta) -> datetime | None:
    return None if at is None else at + by
