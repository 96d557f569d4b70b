"""Show the status of runs in a table that fits a terminal, for `interlock status`."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from worker.cli.terminal.console import Screen, passed
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_session import Exit, StoreAccess, work_until_interrupted
from worker.cli.terminal.truncation import RAISE_LIMIT, Truncation
from worker.cli.terminal.worker_presence import warn_if_no_live_worker
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.run_names import UNNAMED
from worker.core.model.values import Json
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.timestamps import format_rfc3339
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.status import Rank, RunLine, RunList, RunLists
from worker.runtime.clock import Clock
from worker.store.table import Tables

DAYS = 2
LIMIT = 50
REFRESH_S = 2.0
USE_SCHEDULE_MISSED = "use `interlock schedule missed`"
STYLES = {
    Rank.FAILED: "red",
    Rank.MISSED: "red",
    Rank.UNREADABLE: "red",
    Rank.ACTIVE: "",
    Rank.REHEARSED: "dim",
    Rank.CANCELLED: "dim",
    Rank.DONE: "green",
}
WORDS = {
    Rank.FAILED: "failed",
    Rank.MISSED: "missed",
    Rank.UNREADABLE: "unreadable",
    Rank.ACTIVE: "active",
    Rank.REHEARSED: "in dry run",
    Rank.CANCELLED: "cancelled",
    Rank.DONE: "completed",
}
HEADINGS = ("run", "status", "for", "attempt", "deadline", "waits for, or why it ended")
VERDICTS = {Verdict.MET: "met", Verdict.BREACHED: "breached", Verdict.WAIVED: "waived"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest:
    """StatusRequest says which runs to show; `pipeline` None means all pipelines."""

    pipeline: PipelineId | None
    days: int
    limit: int
    as_json: bool


def show_runs(clock: Clock, url: str | None, request: StatusRequest, *, watch: bool) -> int:
    """Show the runs once, or until Ctrl-C, and return the exit code."""
    show = watch_status if watch else run_status
    return work_until_interrupted(clock, url, lambda screen, access: show(screen, access, request))


async def run_status(screen: Screen, access: StoreAccess, request: StatusRequest) -> int:
    async with access.tables() as tables:
        code = await show_status(screen, tables, request, access.clock.now())
        if not request.as_json:
            await warn_if_no_live_worker(screen, tables, access.clock.now())
    await access.admin.require_writable()  # last: a store that rejects writes still shows its status
    return code


async def watch_status(screen: Screen, access: StoreAccess, request: StatusRequest) -> int:
    """Show the status again every 2 seconds, until the user presses Ctrl-C."""
    async with access.tables() as tables:
        while True:
            now = access.clock.now()
            board = await board_of(tables, request, now)
            if screen.out.is_terminal:
                screen.out.clear()
            if board is None:
                return await _say_unknown(screen, tables, request)
            show_board(screen, board, request, now)
            if not request.as_json:
                await warn_if_no_live_worker(screen, tables, now)
            await access.admin.require_writable()  # last, as above
            await access.clock.sleep(REFRESH_S)


async def show_status(screen: Screen, tables: Tables, request: StatusRequest, now: datetime) -> int:
    board = await board_of(tables, request, now)
    if board is None:
        return await _say_unknown(screen, tables, request)
    show_board(screen, board, request, now)
    return Exit.DONE


async def board_of(tables: Tables, request: StatusRequest, now: datetime) -> RunList | None:
    """Return the runs to show; None if there is no such pipeline.

    Raises `Rejected` if the pipeline's configuration cannot be used.
    """
    boards = RunLists(tables)
    if request.pipeline is None:
        return await boards.of_all(now, days=request.days, limit=request.limit)
    version = await version_of(tables, request.pipeline)
    return None if version is None else await boards.of_pipeline(version, now, days=request.days, limit=request.limit)


async def _say_unknown(screen: Screen, tables: Tables, request: StatusRequest) -> int:
    return await say_unknown(screen, tables, request.pipeline or PipelineId(""))


# --- output -----------------------------------------------------------------------------------------------------------


def show_board(screen: Screen, board: RunList, request: StatusRequest, now: datetime) -> None:
    if request.as_json:
        for line in board.lines:
            screen.record(record_of(line))
        for cut in left_out(board, request.limit):
            screen.record(cut.record)
        return
    if board.lines:
        names = shown_names(board)
        rows = [HEADINGS, *(row_of(line, names[line.name], now) for line in board.lines)]
        screen.table(rows, styles=["bold", *(STYLES[line.rank] for line in board.lines)], indent=0)
    screen.line(totals(board))
    for pipeline, pause in sorted(board.pauses.items()):
        until = f"until {format_rfc3339(pause.until)}" if pause.until else "until it is resumed"
        screen.line(f"{pipeline} is paused {until}: {pause.reason}", style="yellow")


def shown_names(board: RunList) -> dict[str, str]:
    """Return the displayed name of each line, with its schedule only if the pipeline has several.

    The list of all pipelines reads no configurations. There, a schedule with an id of its own counts as one of several.
    """
    ids = defaultdict[PipelineId, set[ScheduleId]](set)
    for line in board.lines:
        if line.key is not None:
            ids[line.key.pipeline].add(line.key.schedule)
    several = {
        pipeline: len(found) > 1 or not found <= UNNAMED if board.names_schedules is None else board.names_schedules
        for pipeline, found in ids.items()
    }
    return {line.name: _shown_name(line, several) for line in board.lines}


def _shown_name(line: RunLine, several: dict[PipelineId, bool]) -> str:
    if line.key is None:
        return line.name
    return str(line.key) if several[line.key.pipeline] else f"{line.key.pipeline}/{line.key.period}"


def totals(board: RunList) -> str:
    """Return how many runs there are of each kind, and which kinds are not shown completely."""
    counted = [_total(board, rank) for rank in Rank if board.totals.get(rank) or _is_cut(board, rank)]
    parts = ", ".join(counted) or "no runs"
    hints = dict.fromkeys(_hint(board, rank) for rank in Rank if _is_cut(board, rank))
    if board.is_cut:
        hints = {f"earlier periods are not shown: {RAISE_LIMIT}": None, **hints}
        hints.pop(RAISE_LIMIT, None)
    elif hints:
        return f"{parts}; {' or '.join(hints)} to see all"
    return "; ".join([parts, *hints])


def _total(board: RunList, rank: Rank) -> str:
    total, shown = board.totals.get(rank, 0), board.shown.get(rank, 0)
    count = f"{'at least ' if rank in board.uncounted else ''}{total:,} {WORDS[rank]}"
    return f"{count} ({shown:,} shown)" if shown < total else count


def _is_cut(board: RunList, rank: Rank) -> bool:
    total = board.totals.get(rank, 0)
    # The list of an end state has runs of several ranks, and usually none of most; that of missed runs has only these.
    return board.shown.get(rank, 0) < total or (rank in board.uncounted and (total > 0 or rank is Rank.MISSED))


def _hint(board: RunList, rank: Rank) -> str:
    # A higher limit shows all missed runs that were counted, but counts no more of them.
    return USE_SCHEDULE_MISSED if rank is Rank.MISSED and rank in board.uncounted else RAISE_LIMIT


def left_out(board: RunList, limit: int) -> Iterator[Truncation]:
    for rank in Rank:
        if _is_cut(board, rank):
            yield Truncation(
                what=WORDS[rank],
                shown=board.shown.get(rank, 0),
                total=board.totals.get(rank, 0),
                is_exact=rank not in board.uncounted,
                hint=_hint(board, rank),
            )
    if board.is_cut:
        yield Truncation(what="periods", shown=limit, hint=RAISE_LIMIT)


def row_of(line: RunLine, name: str, now: datetime) -> tuple[str, ...]:
    return (
        name,
        line.status,
        passed(now - line.since) if line.since else "",
        str(line.attempt) if line.attempt else "",
        deadline(line.watch, now) if line.watch else "",
        line.waits_for,
    )


def deadline(watch: SlaWatch, now: datetime) -> str:
    if watch.verdict is not None:
        return VERDICTS[watch.verdict]
    if watch.breach_at is None:
        return _evaluation(watch, now)
    if now >= watch.breach_at:
        return f"late {passed(now - watch.breach_at)}"
    left = f"in {passed(watch.breach_at - now)}"
    return f"{left}, warned" if watch.warned_at else left


def _evaluation(watch: SlaWatch, now: datetime) -> str:
    """Return the deadline of the evaluation, of a run that has no other."""
    if watch.evaluation_verdict is not None:
        return f"rules: {VERDICTS[watch.evaluation_verdict]}"
    left = (watch.evaluation_at or now) - now
    return f"rules in {passed(left)}" if left.total_seconds() > 0 else f"rules late {passed(-left)}"


def record_of(line: RunLine) -> dict[str, Json]:
    watch = line.watch
    return {
        "type": "run",
        "pipeline": line.key.pipeline if line.key else None,
        "schedule": line.key.schedule if line.key else None,
        "period": str(line.key.period) if line.key else None,
        "row": None if line.key else line.name,
        "kind": WORDS[line.rank],
        "state": line.state,
        "status": line.status,
        "since": format_rfc3339(line.since) if line.since else None,
        "attempt": line.attempt,
        "waitsFor": line.waits_for,
        "breachAt": format_rfc3339(watch.breach_at) if watch and watch.breach_at else None,
        "evaluationAt": format_rfc3339(watch.evaluation_at) if watch and watch.evaluation_at else None,
        "evaluationVerdict": watch.evaluation_verdict.value if watch and watch.evaluation_verdict else None,
        "warnedAt": format_rfc3339(watch.warned_at) if watch and watch.warned_at else None,
        "verdict": watch.verdict.value if watch and watch.verdict else None,
        "monitoredUntil": format_rfc3339(line.monitored_until) if line.monitored_until else None,
    }
