"""Foreign runs: rows that another system wrote, read as the runs they stand for.

A RUNNING row is respected until its lifetime is over, then closed. An ended row counts as done, and the usual rules
apply to it: every decision replaces the row by one of Interlock's.
"""

from datetime import datetime

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import Create, LogJob
from worker.core.run.facts import NewRun
from worker.core.run.state import ForeignRun, Outcome, Run, Spent, State, Status
from worker.core.time.timestamps import format_rfc3339, format_utc


def respect(foreign: ForeignRun, birth: NewRun, now: datetime) -> Decision | None:
    """Decide on a row that says RUNNING, whatever the fact; None for an ended row (see `as_run`)."""
    if foreign.status != Status.RUNNING:
        return None
    if foreign.expires_at is None or now <= foreign.expires_at:
        return ignore("another system is running it, and its lifetime is not over")
    return _close(foreign, birth, foreign.expires_at, now)


def as_run(foreign: ForeignRun, birth: NewRun, now: datetime, *, ended_at: datetime | None, spent: Spent) -> Run:
    """Return the run that an ended row stands for, with data from the job log and the rerun record.

    Without `ended_at` nothing can be shown to have come later, so the run counts as having ended now.
    """
    return Run(
        key=foreign.key,
        run_id=birth.run_id,
        state=State.COMPLETED if foreign.status == Status.COMPLETED else State.FAILED_FINAL,
        spent=spent,
        config_hash=birth.config_hash,
        created_at=ended_at or now,
        since=ended_at or now,
        timeout_at=ended_at or now,
    )


def _close(foreign: ForeignRun, birth: NewRun, expired_at: datetime, now: datetime) -> Decision:
    reason = f"another system's run was not done by {format_utc(expired_at)}"
    closed = Run(
        key=foreign.key,
        run_id=birth.run_id,
        state=State.FAILED_FINAL,
        config_hash=birth.config_hash,
        created_at=now,
        since=now,
        timeout_at=expired_at,
        outcome=Outcome.TIMED_OUT,
        reason=reason,
    )
    return Decision.of(
        Create(closed),
        LogJob(event=JobEvent.RUN_TIMEOUT, message=reason),
        EmitEvent(
            type=EventType.SFN_TIMEOUT,
            message=f"{foreign.key} timed out: {reason}",
            detail={
                "source": "watchdog",
                "ttlExpired": format_rfc3339(expired_at),
                "actionHint": "check whether its job still runs; then rerun it",
            },
        ),
    )
