"""Describes in a few words what a run waits for."""

from datetime import datetime

from worker.core.run.state import Outcome, Run, StartStep, State
from worker.core.time.timestamps import format_rfc3339


def waits_for(run: Run) -> str:
    """Return what must happen next, by the row; for an ended run, why it ended."""
    match run.state, run.start_step:
        case State.FAILED_FINAL, _ if run.outcome is Outcome.CANCELLED:
            return run.reason
        case ((State.COMPLETED | State.FAILED_FINAL), _):
            return run.reason
        case State.EVALUATING, _:
            return "its upstreams" if run.is_at_gate else "its rules"
        case State.TRIGGERING, StartStep.REFUSED:
            at = f" at {format_rfc3339(run.start_after.replace(microsecond=0))}" if run.start_after else ""
            why = f": {run.reason}" if run.reason else ""
            return f"the next try to start the job{at}; {_failures(run)}{why}"
        case State.TRIGGERING, StartStep.UNANSWERED | StartStep.ABANDONED:
            why = f": {run.reason}" if run.reason else ""
            return f"the target to confirm whether the job started{why}"
        case State.TRIGGERING, _:
            return "the job to start"
        case State.STOPPING, _:
            return f"the job to stop: {run.reason}" if run.reason else "the job to stop"
        case State.POLLING, _:
            return "the job"


def monitoring(run: Run, now: datetime) -> str:
    """Return until when the results of a completed run are monitored; empty if they are not."""
    until = run.monitored_until
    return "" if until is None or now >= until else f"monitoring its results until {format_rfc3339(until)}"


def _failures(run: Run) -> str:
    if lost := run.starts_unanswered:
        return f"it may be running: {lost} of {run.start_failures} tries got no answer"
    return f"the target rejected it {times(run.start_failures)}"


def times(number: int) -> str:
    """Format a count: `once`, `3 times`."""
    return "once" if number == 1 else f"{number} times"
