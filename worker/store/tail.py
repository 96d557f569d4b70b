"""Following a partition whose sort keys are times: nothing missed, nothing handed out twice.

A key's time is when its commit was decided, so a slow commit, or one by a worker whose clock is behind, appears
*before* rows a reader already has. The reader therefore looks back a little and remembers what it has handed out.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.keys import millis_text
from worker.store.table import Between, Row, TableName, Tables

# Commits are given up after seconds and clocks that are off by more than 5 s decide nothing: a minute covers both.
LOOK_BACK = timedelta(minutes=1)
AFTER_ALL_TIMES = ":"  # sorts right after every digit


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a reader stands: everything before `since` is behind it, and so are the keys in `seen`."""

    since: str
    seen: frozenset[str] = frozenset()

    @staticmethod
    def starting(at: datetime) -> "Tail":
        return Tail(millis_text(at))


async def follow(
    tables: Tables, table: TableName, pk: str, tail: Tail, *, now: datetime, limit: int
) -> tuple[list[Row], Tail]:
    """Read what is new, oldest first, at most `limit` rows, and where to go on from.

    `now` is read before the call, so that what is committed during it is still ahead.
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
    """Move on to a look-back before `now`, unless rows are left that are older than that."""
    since = millis_text(now - LOOK_BACK)
    if not is_through:
        since = min(since, str(news[-1]["SK"]))
    since = max(since, tail.since)
    seen = tail.seen | {str(row["SK"]) for row in news}
    return Tail(since, frozenset(key for key in seen if key >= since))
