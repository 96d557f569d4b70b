"""Format expected runs and their changes: as rows for people, as records for programs."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo

from worker.cli.plan.diff import DifferenceKind, RunDifference
from worker.cli.terminal.console import counted
from worker.core.model.pipeline import Sla
from worker.core.model.rules import Json
from worker.core.schedule.agenda import Block, PlanEntry
from worker.core.schedule.agenda_record import agenda_record
from worker.core.schedule.expected_runs import ExpectedBy
from worker.core.time.durations import format_duration


def block_row(block: Block) -> list[str]:
    """Return local time, UTC, schedule, period or number of runs, and facts."""
    entry = block.first
    if len(block.entries) == 1:
        return [_local(entry), _utc(entry), entry.name, str(entry.run.period), _joined(run_facts(entry), block.notes)]
    count = counted(len(block.entries), "run")
    return [*_times_of_day(block), entry.name, count, _joined(busy_facts(block), block.notes)]


def _times_of_day(block: Block) -> tuple[str, str]:
    first, last = block.first, block.last
    if not _is_clocked(first):
        return _local(first), _utc(first)
    local = f"{_clock(first, first.moment)}-{_clock(last, last.moment)} {_abbreviation(last)}"
    return local, f"{_zulu(first.moment)}-{_zulu(last.moment)}"


def run_facts(entry: PlanEntry) -> Iterator[str]:
    """Yield what a reader must know about one run; an excluded run has only its reason."""
    run, schedule = entry.run, entry.schedule
    if run.excluded is not None:
        yield f"excluded: {run.excluded}"
        return
    if run.by is ExpectedBy.INCLUDE and run.at is not None:
        yield f"missed if not started by {wall(run.at, schedule.zone, entry.day)}"
    elif run.by is ExpectedBy.CRON and not schedule.starts_by_cron:
        yield "expected then, but started by its trigger"
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


def busy_facts(block: Block) -> Iterator[str]:
    """Yield what is true of every run of a busy day."""
    entry = block.first
    if entry.run.excluded is not None:
        yield f"excluded: {entry.run.excluded}"
    elif entry.schedule.sla is not None and entry.schedule.sla.deadline is not None:
        yield f"each due at {entry.schedule.sla.deadline}"


def wall(at: datetime, zone: tzinfo, day: date) -> str:
    """Return a local time with its zone, and with its date if that differs from `day`."""
    local = at.astimezone(zone)
    text = f"{local:%H:%M %Z}"
    return text if local.date() == day else f"{local.date()} {text}"


def _local(entry: PlanEntry) -> str:
    return f"{_clock(entry, entry.moment)} {_abbreviation(entry)}" if _is_clocked(entry) else "on trigger"


def _utc(entry: PlanEntry) -> str:
    return _zulu(entry.moment) if _is_clocked(entry) else ""


def _is_clocked(entry: PlanEntry) -> bool:
    return entry.run.by is ExpectedBy.CRON


def _clock(entry: PlanEntry, at: datetime) -> str:
    return f"{at.astimezone(entry.schedule.zone):%H:%M}"


def _abbreviation(entry: PlanEntry) -> str:
    return f"{entry.moment.astimezone(entry.schedule.zone):%Z}"


def _zulu(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%MZ}"


def _joined(facts: Iterator[str], notes: list[str]) -> str:
    return "; ".join([*facts, *notes])


def change_row(change: RunDifference) -> list[str]:
    """Return the mark and kind of a change, its schedule and period, and the old and new values."""
    entry = change.entry
    return [
        MARKS[change.kind],
        change.kind.value,
        entry.name,
        str(entry.run.period),
        _joined(_change_facts(change), []),
    ]


MARKS = {
    DifferenceKind.ADDED: "+",
    DifferenceKind.REMOVED: "-",
    DifferenceKind.MOVED: "~",
    DifferenceKind.DEADLINE: "~",
}


def _change_facts(change: RunDifference) -> Iterator[str]:
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
    if entry.run.at is None or not _is_clocked(entry):
        return "on trigger"
    return f"{entry.run.at.astimezone(entry.schedule.zone):%Y-%m-%d %H:%M %Z} ({_zulu(entry.run.at)})"


def change_record(change: RunDifference) -> dict[str, Json]:
    return {
        "change": change.kind.value,
        "pipeline": change.entry.pipeline,
        "schedule": change.entry.schedule.id,
        "period": str(change.entry.run.period),
        "old": agenda_record(change.old) if change.old else None,
        "new": agenda_record(change.new) if change.new else None,
    }
