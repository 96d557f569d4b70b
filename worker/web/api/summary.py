"""The state of the installation in one record, read at most once in five seconds for all callers."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Request, Response

from worker.config.store_setting import GROUP
from worker.core.model.keys import RowKind
from worker.core.model.values import Json
from worker.core.run.state import STATE_WORDS
from worker.core.time.timestamps import format_rfc3339
from worker.operations.runs.run_filter import RunFilter
from worker.store.repos.active_rows import ActiveRows
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.sessions import Sessions
from worker.web.api.context import ApiContext, Context
from worker.web.api.responses import record
from worker.web.api.schemas import SummaryDocument

KEPT_S: Final = 5.0
LETTERS_COUNTED_MAX: Final = 1_000

_WORDS: Final = {state.value: word for state, word in STATE_WORDS.items()}

summary_router = APIRouter(tags=["summary"])


@dataclass(slots=True)
class SummaryCache:
    """Holds the last summary, so that any number of callers cost one reading."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at_s: float | None = None
    content: dict[str, Json] = field(default_factory=dict[str, Json])


@summary_router.get("/summary", summary="Sum up the installation", response_model=SummaryDocument)
async def summary(request: Request, context: Context) -> Response:
    """Return active runs by status, today's ended runs, workers and dead letters, up to 5 s old."""
    cache: SummaryCache = request.app.state.summary
    async with cache.lock:
        now_s = context.clock.monotonic()
        if cache.at_s is None or now_s - cache.at_s > KEPT_S:
            cache.content, cache.at_s = await _read(context), now_s
        return record(cache.content)


async def _read(context: ApiContext) -> dict[str, Json]:
    tables, now = context.tables, context.clock.now()
    active = Counter(
        "dry run" if row.kind is RowKind.DRY_RUN else _WORDS.get(row.state, row.state.lower())
        for row in await ActiveRows(tables).everywhere({RowKind.TRIGGER, RowKind.DRY_RUN})
    )
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    ended = await context.statistics.of(RunFilter(since=format_rfc3339(midnight)), now)
    letters = await _dead_letters(context)
    sessions = await Sessions(tables, GROUP).list()
    alive = [each for each in sessions if each.is_alive and not each.silent_for(now)]
    today: dict[str, Json] = {
        "completed": ended.total.completed,
        "failed": ended.total.failed,
        "cancelled": ended.total.cancelled,
    }
    return {
        "type": "summary",
        "at": format_rfc3339(now),
        "version": version("interlock"),
        "active": dict(active),
        "activeTotal": active.total(),
        "endedToday": today,
        "endedTodayIsComplete": ended.is_complete,
        "workers": len(alive),
        "deadLetters": min(letters, LETTERS_COUNTED_MAX),
        "deadLettersIsExact": letters <= LETTERS_COUNTED_MAX,
    }


async def _dead_letters(context: ApiContext) -> int:
    letters, count = DeadLetters(context.tables), 0
    for source in await letters.sources():
        count += len(await letters.list(source, LETTERS_COUNTED_MAX + 1 - count))
        if count > LETTERS_COUNTED_MAX:
            break
    return count
