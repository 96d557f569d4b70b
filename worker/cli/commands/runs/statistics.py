"""`interlock runs stats`: counts, success rates, durations and deadlines of ended runs."""

from collections.abc import Sequence

from worker.cli.commands.runs.filters import say_if_unknown
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.time.durations import shown_record_duration
from worker.core.time.timestamps import format_utc
from worker.operations.records import StatisticsRecord, as_json
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.statistics import RunStatistics, StatisticsPage, dimensions

BAR_WIDTH = 24
NUMBERS = ("runs", "completed", "failed", "cancelled", "success", "p50", "p90", "deadlines met", "")


async def run_statistics(
    screen: Screen, access: StoreAccess, wanted: RunFilter, by: Sequence[str], *, is_json: bool
) -> int:
    chosen = dimensions(by)
    async with access.tables() as tables:
        page = await RunStatistics(tables).of(wanted, access.clock.now(), chosen)
        if not page.total.runs and (code := await say_if_unknown(screen, tables, wanted)) is not None:
            return code
    if is_json:
        for record in (*page.records, page.total):
            screen.record(as_json(record))
        screen.record(as_json(page.end_record))
        return Exit.DONE
    show_statistics(screen, page, [dimension.value for dimension in chosen])
    return Exit.DONE


def show_statistics(screen: Screen, page: StatisticsPage, names: Sequence[str]) -> None:
    most = max((record.runs for record in page.records), default=0)
    has_bars = screen.out.is_terminal
    rows = [
        (*(record.group[name] for name in names), *numbers(record), bar(record.runs, most) if has_bars else "")
        for record in page.records
    ]
    total = ("total", *([""] * (len(names) - 1)), *numbers(page.total), "") if names else (*numbers(page.total), "")
    screen.table([(*names, *NUMBERS), *rows, total], styles=["bold", *([""] * len(rows)), "bold"], indent=0)
    span = f"{format_utc(page.start)} to {format_utc(page.end)}"
    screen.line(f"{counted(page.total.runs, 'run')} ended from {span}")
    if page.others:
        screen.remark(f"{counted(page.others, 'group')} with the fewest runs are summed up as *", style="yellow")
    if not page.is_counted:
        screen.remark("not all runs are counted: choose a later --since", style="yellow")


def numbers(record: StatisticsRecord) -> tuple[str, ...]:
    success = "" if record.success_rate is None else f"{record.success_rate:.1%}"
    met = f"{record.deadlines_met:,} of {record.deadlines:,}" if record.deadlines else ""
    counts = (record.runs, record.completed, record.failed, record.cancelled)
    took = map(shown_record_duration, (record.duration_p50, record.duration_p90))
    return (*(f"{count:,}" for count in counts), success, *took, met)


def bar(count: int, most: int) -> str:
    return "█" * max(1, round(BAR_WIDTH * count / most)) if count and most else ""
