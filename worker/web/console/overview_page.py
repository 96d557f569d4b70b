"""The overview: what needs a person now, and what comes next."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.config.store_setting import GROUP
from worker.operations.runs.attention import Attention, AttentionItem, AttentionKind, AttentionReader, BoundedCount
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.sessions import Session, Sessions
from worker.web.console.console import Console
from worker.web.console.links import Links
from worker.web.console.run_rows import RunRow, row_of
from worker.web.console.wording import Badge, span

REFRESH_S: Final = 10
KEPT_S: Final = 5.0
LETTERS_COUNTED_MAX: Final = 100

_HEADINGS: Final = {
    AttentionKind.BREACHED: Badge("◆", "Breached, not completed", "breached"),
    AttentionKind.FAILED: Badge("✕", "Failed in the last 24 hours", "failed"),
    AttentionKind.MISSED: Badge("∅", "Missed in the last 48 hours", "breached"),
    AttentionKind.STUCK: Badge("!", "Stuck", "stuck"),
    AttentionKind.DUE: Badge("◷", "Due in the next 12 hours", "waiting"),
    AttentionKind.WAITING: Badge("○", "Waiting longest", "waiting"),
}


@dataclass(frozen=True, slots=True)
class OverviewLine:
    item: AttentionItem
    row: RunRow | None
    link: str
    age: str


@dataclass(frozen=True, slots=True)
class OverviewSection:
    heading: Badge
    lines: Sequence[OverviewLine]
    count: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewData:
    attention: Attention
    workers: Sequence[Session]
    letters: Mapping[str, BoundedCount]


@dataclass(slots=True)
class OverviewCache:
    """Holds the last reading, so that any number of viewers cost one in five seconds."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at_s: float = 0.0
    data: OverviewData | None = None

    async def read(self, console: Console) -> OverviewData:
        async with self.lock:
            now_s = console.context.clock.monotonic()
            if self.data is None or now_s - self.at_s > KEPT_S:
                self.data, self.at_s = await _read(console), now_s
            return self.data


async def overview_page(console: Console, request: Request, *, cache: OverviewCache) -> Response:
    data = await cache.read(console)
    attention, now = data.attention, data.attention.at
    sections = [_section(console.links, attention, kind, now) for kind in AttentionKind]
    letters = [each for each in data.letters.values() if each.number]
    return console.page(
        request,
        "overview.html",
        now=now,
        refresh_s=REFRESH_S,
        attention=attention,
        sections=[each for each in sections if each.lines],
        is_calm=attention.needs_attention.number == 0,
        workers=[each for each in data.workers if each.is_alive and not each.silent_for(now)],
        letters=BoundedCount(
            number=sum(each.number for each in letters), is_exact=all(each.is_exact for each in letters)
        ),
        count=count_text,
    )


async def _read(console: Console) -> OverviewData:
    tables, now = console.context.tables, console.context.clock.now()
    attention = await AttentionReader(tables).read(now)
    letters: dict[str, BoundedCount] = {}
    for source in await DeadLetters(tables).sources():
        found = await DeadLetters(tables).list(source, LETTERS_COUNTED_MAX + 1)
        number = min(len(found), LETTERS_COUNTED_MAX)
        letters[source] = BoundedCount(number=number, is_exact=len(found) == number)
    return OverviewData(attention=attention, workers=await Sessions(tables, GROUP).list(), letters=letters)


def count_text(count: BoundedCount) -> str:
    """Return a number of runs; one that a bound cut says so: `at least 1,200`."""
    return f"{count.number:,}" if count.is_exact else f"at least {count.number:,}"


def _section(links: Links, attention: Attention, kind: AttentionKind, now: datetime) -> OverviewSection:
    found = attention.sections[kind]
    lines = [_line(links, item, now) for item in found.items]
    total = count_text(BoundedCount(number=found.total, is_exact=found.is_exact))
    is_all = found.is_exact and len(lines) == found.total
    return OverviewSection(_HEADINGS[kind], lines, total if is_all else f"{len(lines)} of {total}")


def _line(links: Links, item: AttentionItem, now: datetime) -> OverviewLine:
    row = None if item.record is None else row_of(item.record, links, now)
    since = None if item.record is None else item.record.since
    return OverviewLine(item, row, links.run(item.key), span(now - since) if since else "")
