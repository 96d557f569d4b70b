"""Format expected runs and their changes: as rows for people, as records for programs."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from worker.cli.terminal.console import counted
from worker.core.model.rules import Json
from worker.core.schedule.agenda import Block, PlanEntry
from worker.core.schedule.agenda_record import agenda_record
from worker.core.schedule.plan_changes import DifferenceKind, RunDifference
from worker.operations.pipelines.plan_texts import change_facts, is_clocked, on_data, run_facts, zulu


def block_row(block: Block, waits: Sequence[str] = ()) -> list[str]:
    """Return local time, UTC, schedule, period or number of runs, and facts.

    `waits` is what the run of a block waits for, if it is one.
    """
    entry = block.first
    if len(block.entries) == 1:
        facts = _joined(run_facts(entry), [*waits, *block.notes])
        return [_local(entry), _utc(entry), entry.name, str(entry.run.period), facts]
    count = counted(len(block.entries), "run")
    return [*_times_of_day(block), entry.name, count, _joined(busy_facts(block), block.notes)]


def _times_of_day(block: Block) -> tuple[str, str]:
    first, last = block.first, block.last
    if not is_clocked(first):
        return _local(first), _utc(first)
    local = f"{_clock(first, first.moment)}-{_clock(last, last.moment)} {_abbreviation(last)}"
    return local, f"{zulu(first.moment)}-{zulu(last.moment)}"


def busy_facts(block: Block) -> Iterator[str]:
    """Yield what is true of every run of a busy day."""
    entry = block.first
    if entry.run.excluded is not None:
        yield f"excluded: {entry.run.excluded}"
        return
    if entry.schedule.sla is not None and entry.schedule.sla.deadline is not None:
        yield f"each due at {entry.schedule.sla.deadline}"
    if entry.schedule.after:
        yield f"each after {', '.join(map(str, entry.schedule.after))}"


def _local(entry: PlanEntry) -> str:
    return f"{_clock(entry, entry.moment)} {_abbreviation(entry)}" if is_clocked(entry) else on_data(entry)


def _utc(entry: PlanEntry) -> str:
    return zulu(entry.moment) if is_clocked(entry) else ""


def _clock(entry: PlanEntry, at: datetime) -> str:
    return f"{at.astimezone(entry.schedule.zone):%H:%M}"


def _abbreviation(entry: PlanEntry) -> str:
    return f"{entry.moment.astimezone(entry.schedule.zone):%Z}"


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
        _joined(change_facts(change), []),
    ]


MARKS = {
    DifferenceKind.ADDED: "+",
    DifferenceKind.REMOVED: "-",
    DifferenceKind.MOVED: "~",
    DifferenceKind.DEADLINE: "~",
}


def change_record(change: RunDifference) -> dict[str, Json]:
    return {
        "change": change.kind.value,
        "pipeline": change.entry.pipeline,
        "schedule": change.entry.schedule.id,
        "period": str(change.entry.run.period),
        "old": agenda_record(change.old) if change.old else None,
        "new": agenda_record(change.new) if change.new else None,
    }
