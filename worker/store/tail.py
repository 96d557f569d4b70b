"""Tail: follows a partition whose sort keys are times; no row is missed or returned twice.

A key's time is when its commit was decided. A slow commit, or one by a worker whose clock is behind, therefore appears
*before* rows a reader already has. So the reader looks back a little and remembers which rows it has returned.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.keys import millis_text
from worker.store.table import Between, Row, TableName, Tables

# Commits are abandoned after seconds, and a clock that is off by more than 5 s decides nothing: a minute covers both.
LOOK_BACK = timedelta(minutes=1)
AFTER_ALL_TIMES = ":"  # sorts right after every digit


@dataclass(frozen=True, slots=True)
class Tail:
    """Holds a reader's position: it has read everything before `since`, and the keys in `seen`."""

    since: str
    seen: frozenset[str] = frozenset()

    @staticmethod
    def starting(at: datetime) -> "Tail":
        return Tail(millis_text(at))


async def follow(
    tables: Tables, table: TableName, pk: str, tail: Tail, *, now: datetime, limit: int
) -> tuple[list[Row], Tail]:
    """Return at most `limit` new rows, oldest first, and the tail to continue from.

    Read `now` before the call, so that rows committed during the call are still ahead.
    """
    news: list[Row] = []
    cursor: str | None = None
    span = Between(tail.since, AFTER_ALL_TIMES)
    while len(news) < limit:
        page = await tables.query(table, pk, sk=span, limit=limit, cursor=cursor)
        news.extend(row for row in page.rows if row["SK"] not in tail.seen)
        cursor = page.cursor
        if cursor is None:
            return news[:limit], _moved(tail, news[:limit], now, is_through=len(news) <= limit)
    return news[:limit], _moved(tail, news[:limit], now, is_through=False)


def _moved(tail: Tail, news: list[Row], now: datetime, *, is_through: bool) -> Tail:
    """Move to `LOOK_BACK` before `now`, unless there are older rows left to read."""
    since = millis_text(now - LOOK_BACK)
    if not is_through:
        since = min(since, str(news[-1]["SK"]))
    since = max(since, tail.since)
    seen = tail.seen | {str(row["SK"]) for row in news}
    return Tail(since, frozenset(key for key in seen if key >= since))
