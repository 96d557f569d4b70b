"""The overview: what needs a person now, what comes next, and the last day hour by hour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from worker.core.run.state import State
from worker.core.time.durations import span
from worker.web.console.console import Console
from worker.web.console.live_rows import badge_of, deadline_of, run_element, since_of, zone_of_pipeline
from worker.web.console.wording import Badge, took_of
from worker.web.live.facts import ActiveRun, FinishedRun, NamedRun, ToldEvent, moment
from worker.web.live.mirror import Mirror
from worker.web.live.sections import Attention, AttentionItem, AttentionKind, usual_s
from worker.web.live.statistics import day_counts

REFRESH_S: Final = 10

_HEADINGS: Final = {
    AttentionKind.BREACHED: Badge("◆", "Breached, not completed", "breached"),
    AttentionKind.FAILED: Badge("✕", "Failed in the last 24 hours", "failed"),
    AttentionKind.MISSED: Badge("∅", "Missed in the last 48 hours", "breached"),
    AttentionKind.STUCK: Badge("!", "Stuck", "stuck"),
    AttentionKind.DUE: Badge("◷", "Due in the next 12 hours", "waiting"),
    AttentionKind.WAITING: Badge("○", "Waiting longest", "waiting"),
}
# Where a section's link leads, if there is more than is shown.
_MORE: Final = {
    AttentionKind.BREACHED: {"attention": "1"},
    AttentionKind.MISSED: {"attention": "1"},
    AttentionKind.STUCK: {"attention": "1"},
    AttentionKind.DUE: {"sort": "deadline"},
}
# The same, where a filter of runs fits.
_MORE_RUNS: Final = {
    AttentionKind.FAILED: {"state": "failed", "since": "24h"},
    AttentionKind.WAITING: {"state": "waiting"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewLine:
    """OverviewLine is one run. `schedule` is empty if there is only one, `rerun` if it does not apply.

    The sentence is in times of `zone`, and follows `due` if that is given.
    """

    element: str
    name: NamedRun
    schedule: str
    link: str
    badge: Badge
    since: datetime | None
    age: str
    deadline: Badge | None
    due: datetime | None
    zone: tzinfo
    sentence: str
    rerun: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewSection:
    kind: AttentionKind
    heading: Badge
    lines: Sequence[OverviewLine]
    total: int
    more: str

    @property
    def count(self) -> str:
        shown = len(self.lines)
        return f"{self.total:,}" if shown == self.total else f"{shown} of {self.total:,}"


async def overview_page(console: Console, request: Request) -> Response:
    content, attention = await _content(console, may_act=console.may_act(request))
    needed = attention.needs_attention
    return await console.page(request, "overview.html", refresh_s=REFRESH_S, content=content, needed=needed)


async def overview_fragment(console: Console, request: Request) -> Response:
    content, _ = await _content(console, may_act=console.may_act(request))
    return await console.page(request, "part.html", content=content)


async def banners_fragment(console: Console, request: Request) -> Response:
    """Return the banners alone, for every page, with the time of what lists show."""
    await console.context.live.fresh()
    return await console.page(request, "banners_fragment.html")


async def _content(console: Console, *, may_act: bool) -> tuple[Markup, Attention]:
    """Return the sections, rendered once for all viewers of the same second, and what they show."""
    now = console.context.clock.now()
    mirror = await console.context.live.fresh()
    attention = await console.finder.find(mirror)
    key = mirror.revision, int(now.timestamp()), may_act, mirror.catalogue_is_whole
    values = partial(_values, console, mirror, attention, now, may_act=may_act)
    return await console.part(key, "overview_content.html", values), attention


async def _values(
    console: Console, mirror: Mirror, attention: Attention, now: datetime, *, may_act: bool
) -> dict[str, Any]:
    sentences = await console.sentences.of(_waiting(attention))
    lines = _Lines(console=console, mirror=mirror, sentences=sentences, now=now, may_act=may_act)
    sections = [lines.section(attention, kind) for kind in AttentionKind]
    seconds = now.timestamp()
    return {
        "now": now,
        "attention": attention,
        "sections": [each for each in sections if each.lines],
        "is_calm": attention.needs_attention == 0,
        "active": len(mirror.active),
        "day": day_counts(mirror, seconds),
        "workers": mirror.alive(seconds),
        "letters": mirror.letters,
        "pipelines": len(mirror.ids),
        "pipelines_are_whole": mirror.catalogue_is_whole,
        "paused": sum(mirror.is_paused(each, seconds) for each in mirror.paused if each in mirror.catalogue),
        "bad": len(mirror.bad),
        "moment_of": moment,
    }


def _waiting(attention: Attention) -> list[NamedRun]:
    """Return the shown runs that wait: their sentence says what for."""
    return [
        item.name
        for items in attention.sections.values()
        for item in items
        if isinstance(item.run, ActiveRun) and item.run.state == State.EVALUATING.value
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """Makes the lines of one view: what it reads from, for whom, and when."""

    console: Console
    mirror: Mirror
    sentences: Mapping[str, str]
    now: datetime
    may_act: bool

    def section(self, attention: Attention, kind: AttentionKind) -> OverviewSection:
        items, total = attention.sections[kind], attention.totals[kind]
        return OverviewSection(
            kind=kind,
            heading=_HEADINGS[kind],
            lines=[self._line(item) for item in items],
            total=total,
            more=self._more(kind) if total > len(items) else "",
        )

    def _more(self, kind: AttentionKind) -> str:
        if kind in _MORE_RUNS:
            return self.console.links.to("runs", **_MORE_RUNS[kind])
        return self.console.links.to("pipelines", **_MORE[kind])

    def _line(self, item: AttentionItem) -> OverviewLine:
        name, since, mirror = item.name, since_of(item.run), self.mirror
        entry = mirror.catalogue.get(name.pipeline)
        link = self.console.links.run_named(name.pipeline, name.schedule, name.period)
        is_failed = isinstance(item.run, FinishedRun) and item.run.word == "failed"
        return OverviewLine(
            element=run_element(name.key),
            name=name,
            schedule=name.schedule if entry is None or len(entry.schedules) > 1 else "",
            link=link,
            badge=badge_of(mirror, item.run, self.now),
            since=since,
            age=span(self.now - since) if since else "",
            deadline=deadline_of(mirror, name.key, self.now),
            due=_due(item),
            zone=zone_of_pipeline(mirror, name.pipeline),
            sentence=_sentence(mirror, item, self.sentences.get(name.key, "")),
            rerun=f"{link}/rerun" if self.may_act and is_failed else "",
        )


def _due(item: AttentionItem) -> datetime | None:
    is_due = item.kind is AttentionKind.DUE and item.watch is not None
    return moment(item.watch.breach_at) if is_due and item.watch else None


def _sentence(mirror: Mirror, item: AttentionItem, waiting: str) -> str:
    """Return why a run is listed; of one that is due, what follows its time."""
    if item.kind is AttentionKind.STUCK:
        return item.sentence
    if item.watch is not None and item.kind is AttentionKind.DUE:
        usual = usual_s(mirror, item.name)
        how = f", usually takes {took_of(usual)}" if usual is not None else ""
        risk = ": at risk" if item.is_at_risk else ": in time" if usual is not None and item.run else ""
        return f"{how}{risk}{f'; waits for {waiting}' if waiting else ''}"
    if isinstance(item.run, FinishedRun) and item.run.attempt > 1:
        return f"attempt {item.run.attempt}: {item.sentence}"
    if waiting:
        return waiting
    return item.name.message if isinstance(item.name, ToldEvent) else item.sentence
