"""Say what is expected of a run, and what changes between two plans, for the terminal and the console."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo

from worker.core.model.pipeline import Sla
from worker.core.schedule.agenda import PlanEntry
from worker.core.schedule.expected_runs import ExpectedBy
from worker.core.schedule.plan_changes import DifferenceKind, RunDifference
from worker.core.time.durations import format_duration


def run_facts(entry: PlanEntry) -> Iterator[str]:
    """Yield what a reader must know about one run; an excluded run has only its reason."""
    run, schedule = entry.run, entry.schedule
    if run.excluded is not None:
        yield f"excluded: {run.excluded}"
        return
    if run.by is ExpectedBy.INCLUDE and run.at is not None:
        yield f"missed if not started by {wall(run.at, schedule.zone, entry.day)}"
    elif run.by is ExpectedBy.CRON and not schedule.starts_by_cron:
        yield f"expected then, but started by its {'trigger' if schedule.trigger else 'upstreams'}"
    if run.trigger_deadline_at is not None:
        yield f"trigger by {wall(run.trigger_deadline_at, schedule.zone, entry.day)}"
    if schedule.sla is not None:
        yield from _sla_facts(entry, schedule.sla)


def _sla_facts(entry: PlanEntry, sla: Sla) -> Iterator[str]:
    if entry.run.evaluation_at is not None:
        yield f"rules hold by {wall(entry.run.evaluation_at, sla.zone, entry.day)}"
    if sla.max_evaluation is not None:
        yield f"rules hold within {format_duration(sla.max_evaluation)}"
    if entry.run.warning_at is not None:
        yield f"warning {wall(entry.run.warning_at, sla.zone, entry.day)}"
    if entry.run.breach_at is not None:
        yield f"due {wall(entry.run.breach_at, sla.zone, entry.day)}"
    if sla.max_duration is not None:
        yield f"due {format_duration(sla.max_duration)} after its first sensor"


def change_facts(change: RunDifference) -> Iterator[str]:
    old, new = change.old, change.new
    if change.kind is DifferenceKind.REMOVED:
        yield new.run.excluded if new is not None and new.run.excluded else "no longer expected"
    elif change.kind is DifferenceKind.ADDED:
        yield _start(change.entry)
        yield from run_facts(change.entry)
    elif old is not None and new is not None:
        if change.kind is DifferenceKind.MOVED:
            yield f"{_start(old)} -> {_start(new)}"
        was, will_be = "; ".join(run_facts(old)), "; ".join(run_facts(new))
        if was != will_be:
            yield f"{was or 'no deadline'} -> {will_be or 'no deadline'}"


def _start(entry: PlanEntry) -> str:
    """Return the local start with its date, because a change may move a run to another day."""
    if entry.run.at is None or not is_clocked(entry):
        return on_data(entry)
    return f"{entry.run.at.astimezone(entry.schedule.zone):%Y-%m-%d %H:%M %Z} ({zulu(entry.run.at)})"


def counts_text(counts: Counter[DifferenceKind]) -> str:
    if not counts:
        return "no expected run changes"
    words = {
        DifferenceKind.ADDED: "added",
        DifferenceKind.REMOVED: "removed",
        DifferenceKind.MOVED: "moved",
        DifferenceKind.DEADLINE: "with new deadlines",
    }
    return "runs " + ", ".join(f"{words[kind]}: {counts[kind]:,}" for kind in DifferenceKind if counts[kind])


def wall(at: datetime, zone: tzinfo, day: date) -> str:
    """Return a local time with its zone, and with its date if that differs from `day`."""
    local = at.astimezone(zone)
    text = f"{local:%H:%M %Z}"
    return text if local.date() == day else f"{local.date()} {text}"


def on_data(entry: PlanEntry) -> str:
    """Return what starts a run that has no fixed time."""
    return "on upstreams" if entry.schedule.starts_by_upstreams else "on trigger"


def is_clocked(entry: PlanEntry) -> bool:
    return entry.run.by is ExpectedBy.CRON


def zulu(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%MZ}"
