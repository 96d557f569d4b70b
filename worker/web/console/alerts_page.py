"""Alerts: what was sent to people in the last week, by run, and whether the path of alerts works."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from consumers.alerts.text import thread_of
from consumers.outbox.severities import Severity, severity_of, types_with
from worker.core.model.events import Event, in_order, shown_type
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.delivery.alert_probe import AlertPath
from worker.store.repos.delivery.threads import Open, ThreadKey, Threads
from worker.store.repos.events import Events
from worker.web.console.console import Console
from worker.web.console.live_rows import run_element
from worker.web.console.wording import Badge

DAYS: Final = 7
EVENTS_MAX: Final = 100  # of each type
SHOWN_MAX: Final = 100

_STANDINGS: Final = {
    "running": Badge("▶", "running", "running"),
    "breached": Badge("◆", "breached", "breached"),
    "failed": Badge("✕", "failed", "failed"),
    "recovered": Badge("✓", "recovered", "completed"),
    "completed": Badge("✓", "completed", "completed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """AlertLine is a run or incident with its first and last alert; `channel` is empty without a thread."""

    element: str
    thread: ThreadKey
    badge: Badge
    first: Event
    last: Event
    count: int
    channel: str
    link: str

    @property
    def said(self) -> str:
        """Return what the last alert says, with its run unless that is the run of the line."""
        last = self.last
        # A line is about the root cause, and its last alert may be about a run that waits for it.
        run = (self.thread.pipeline, self.thread.schedule, self.thread.period)
        is_same = (last.pipeline, last.schedule, last.period) == run
        return last.sentence if is_same else last.named_sentence


async def alerts_page(console: Console, request: Request) -> Response:
    now, tables = console.context.clock.now(), console.context.tables
    await console.context.live.fresh()
    events, is_cut = await _alerts(console, now)
    by_thread: dict[ThreadKey, list[Event]] = {}
    for event in events:
        by_thread.setdefault(thread_of(event), []).append(event)
    newest = sorted(by_thread.items(), key=lambda each: each[1][-1].at, reverse=True)
    shown = newest[:SHOWN_MAX]
    threads = await Threads(tables).look_many([thread for thread, _ in shown])
    path = await AlertPath(tables).load()
    return await console.page(
        request,
        "alerts.html",
        now=now,
        lines=[_line(console, thread, threads.get(thread), found) for thread, found in shown],
        total=len(newest),
        is_cut=is_cut,
        days=DAYS,
        path_state=path,
        shown_type=shown_type,
    )


async def _alerts(console: Console, now: datetime) -> tuple[list[Event], bool]:
    """Return alerts and warnings of the last days, oldest first, and whether there are more."""
    wanted, since = {Severity.ALERT, Severity.WARNING}, now - timedelta(days=DAYS)
    store = Events(console.context.tables)
    reads = [partial(store.newest_of_type, each, since, EVENTS_MAX) for each in types_with(wanted)]
    parts = await gather_bounded(reads)
    found = [stored.event for part in parts for stored in part]
    kept = [event for event in found if severity_of(event.type, event.detail) in wanted]
    return in_order(kept), any(len(part) == EVENTS_MAX for part in parts)


def _line(console: Console, thread: ThreadKey, known: Open | None, events: Sequence[Event]) -> AlertLine:
    first, last = events[0], events[-1]
    key = f"{thread.pipeline}/{thread.schedule}/{thread.period}" if thread.period else ""
    is_open = known is not None and known.is_open
    link = ""
    if key:
        link = console.links.run_named(thread.pipeline, thread.schedule, thread.period)
    elif thread.pipeline:
        link = console.links.pipeline(thread.pipeline)
    return AlertLine(
        element=run_element(key) if key else f"a:{last.id}",
        thread=thread,
        badge=_badge(console, key, known, last),
        first=first,
        last=last,
        count=len(events),
        channel=(known.routed_to or known.channel) if known is not None and is_open else "",
        link=link,
    )


def _badge(console: Console, key: str, known: Open | None, last: Event) -> Badge:
    """Return how the run stands: as the mirror knows it, else as the chat's first message says."""
    mirror = console.context.live.mirror
    if (ended := mirror.ended.get(key)) is not None:
        if ended.word == "completed":
            return _STANDINGS["recovered" if ended.attempt > 1 or key in mirror.breached else "completed"]
        return _STANDINGS["failed"] if ended.word == "failed" else Badge("\u2013", ended.word, "waiting")
    if key in mirror.breached:
        return _STANDINGS["breached"]
    if key in mirror.active:
        return _STANDINGS["running"]
    word = known.face.standing if known is not None else ""
    if severity_of(last.type, last.detail) is Severity.ALERT:
        return _STANDINGS.get(word, Badge("!", word or "alert", "failed"))
    return _STANDINGS.get(word, Badge("!", word or "warning", "stuck"))
