"""`interlock runs list` and `interlock runs inputs`: find runs by filters, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.cli.commands.runs.filters import say_if_unknown
from worker.cli.terminal.console import Screen, counted, passed
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.model.run_names import short_name
from worker.core.time.durations import shown_record_duration
from worker.operations.records import EndRecord, RunRecord, as_json
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import LIMIT_MAX, RunQueries

PAGES_MAX = 50  # of one command; the rest is one `--after` away
STYLES = {"failed": "red", "unreadable": "red", "completed": "green", "cancelled": "dim"}
HEADINGS = ("run", "status", "since", "took", "attempt", "deadline", "reason, or what it waits for")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """ListRequest says which runs to show, how many at most, and after which cursor."""

    wanted: RunFilter
    limit: int
    cursor: str | None
    with_inputs: bool
    as_json: bool


async def run_list(screen: Screen, access: StoreAccess, request: ListRequest) -> int:
    now = access.clock.now()
    async with access.tables() as tables:
        queries = RunQueries(tables)
        shown, cursor = list[RunRecord](), request.cursor
        for _ in range(PAGES_MAX):
            page = await queries.page(
                request.wanted,
                now,
                limit=min(request.limit - len(shown), LIMIT_MAX),
                cursor=cursor,
                with_inputs=request.with_inputs,
            )
            shown += page.records
            cursor = page.next
            if cursor is None or len(shown) >= request.limit:
                break
        if not shown and (code := await say_if_unknown(screen, tables, request.wanted)) is not None:
            return code
    end = EndRecord(count=len(shown), complete=cursor is None, next=cursor)
    if request.as_json:
        for record in shown:
            screen.record(as_json(record))
        screen.record(as_json(end))
    else:
        show_runs(screen, shown, now)
        show_end(screen, end)
    return Exit.DONE


async def run_inputs(screen: Screen, access: StoreAccess, request: ListRequest) -> int:
    """Write the inputs of each run as one line of JSON, and an end record."""
    now = access.clock.now()
    count, cursor = 0, request.cursor
    async with access.tables() as tables:
        queries = RunQueries(tables)
        for _ in range(PAGES_MAX):
            page = await queries.inputs(request.wanted, now, limit=min(request.limit - count, LIMIT_MAX), cursor=cursor)
            for record in page.records:
                screen.record(as_json(record))
            count += len(page.records)
            cursor = page.next
            if cursor is None or count >= request.limit:
                break
        if not count and (code := await say_if_unknown(screen, tables, request.wanted)) is not None:
            return code
    screen.record(as_json(EndRecord(count=count, complete=cursor is None, next=cursor)))
    return Exit.DONE


def show_runs(screen: Screen, records: Sequence[RunRecord], now: datetime) -> None:
    if records:
        rows = [HEADINGS, *(row_of(record, now) for record in records)]
        screen.table(rows, styles=["bold", *(STYLES.get(record.status, "") for record in records)], indent=0)


def row_of(record: RunRecord, now: datetime) -> tuple[str, ...]:
    name = short_name(record.pipeline, record.schedule, record.period)
    since = "" if record.since is None else f"{passed(now - record.since)} ago"
    attempt = "" if record.attempt is None else str(record.attempt)
    verdict = (record.deadline.verdict or "open") if record.deadline else ""
    took = shown_record_duration(record.duration)
    return name, record.status, since, took, attempt, verdict, record.waits_for or record.reason


def show_end(screen: Screen, end: EndRecord) -> None:
    screen.line(counted(end.count, "run"))
    if not end.complete:
        screen.remark(
            f"there may be more runs: raise --limit, or continue with the same filters and --after {end.next}",
            style="yellow",
        )
