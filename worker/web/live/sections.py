"""The sections of the overview, from the mirror: what needs a person, what is due, what waits.

A run is listed once, in the first section that fits.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import nsmallest
from operator import itemgetter
from statistics import median
from typing import Any, Final, TypeAlias

from worker.core.run.state import State
from worker.runtime.clock import Clock
from worker.web.live.facts import ActiveRun, ActiveWatch, FinishedRun, NamedRun, ToldEvent
from worker.web.live.mirror import BREACHED_FOR_S, MISSED_FOR_S, Mirror
from worker.web.live.shared_results import SharedResults
from worker.web.live.slices import Slices

SHOWN_MAX: Final = 10
KEPT_MAX: Final = 2  # results: the latest, and the one before while that is made
FAILED_FOR_S: Final = 24 * 3_600.0
DUE_WITHIN_S: Final = 12 * 3_600.0
OVERDUE_S: Final = 180.0  # the bound after which the watchdog acts
STARTS_WITHIN_S: Final = 300.0
OWNER_GONE_S: Final = 60.0

NOBODY_ACTED: Final = "no worker acted on it when it was due; is one running?"
OWNER_IS_GONE: Final = "the worker that held it is gone, and no other has taken it over yet"
NOT_CONFIRMED: Final = "the target has not confirmed the start"

PORTION: Final = 128  # between two looks at the clock: less than a tenth of a millisecond
_TRIGGERING: Final = State.TRIGGERING.value
_EVALUATING: Final = State.EVALUATING.value
_SETTLED: Final = frozenset({"completed", "cancelled"})

_Candidate: TypeAlias = tuple[float, NamedRun]


class AttentionKind(StrEnum):
    """Lists the sections, in order: a run is in the first that fits."""

    BREACHED = "breached"
    FAILED = "failed"
    MISSED = "missed"
    STUCK = "stuck"
    DUE = "due"
    WAITING = "waiting"


URGENT: Final = (AttentionKind.BREACHED, AttentionKind.FAILED, AttentionKind.MISSED, AttentionKind.STUCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionItem:
    """AttentionItem is a run of a section. `run` is None if it does not exist, as far as is known."""

    kind: AttentionKind
    name: NamedRun
    sentence: str
    run: ActiveRun | FinishedRun | None
    watch: ActiveWatch | None = None
    is_at_risk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention holds the first items of each section, how many each has, and which runs are in one."""

    sections: Mapping[AttentionKind, Sequence[AttentionItem]]
    totals: Mapping[AttentionKind, int]
    urgent: Mapping[str, AttentionKind]  # runs of the first four sections
    urgent_pipelines: frozenset[str]  # of those

    @property
    def needs_attention(self) -> int:
        return sum(self.totals[kind] for kind in URGENT)


class AttentionFinder:
    """Sorts the mirror's runs into sections, once for each revision of the mirror and second."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began = clock, clock.now().timestamp()
        self._found: SharedResults[Attention] = SharedResults(KEPT_MAX, "sections")

    async def find(self, mirror: Mirror) -> Attention:
        now = self._clock.now().timestamp()
        return await self._found.of((mirror.revision, int(now)), partial(self._sort, mirror, now))

    async def _sort(self, mirror: Mirror, now: float) -> Attention:
        slices = Slices(self._clock)
        taken: set[str] = set()
        urgent: dict[str, AttentionKind] = {}
        urgent_pipelines: set[str] = set()
        shown: dict[AttentionKind, list[NamedRun]] = {}
        totals: dict[AttentionKind, int] = {}
        stuck = await self._stuck(mirror, slices, now)
        for kind, (source, choose) in _candidates(mirror, stuck, now).items():
            first, total = list[_Candidate](), 0
            async for some in slices.portions(list(source), PORTION):
                left = [each for each in choose(some) if each[1].key not in taken]
                if left:
                    runs = [each[1].key for each in left]
                    taken.update(runs)
                    first, total = nsmallest(SHOWN_MAX, [*first, *left], key=itemgetter(0)), total + len(left)
                    if kind in URGENT:
                        urgent |= dict.fromkeys(runs, kind)
                        urgent_pipelines.update([each[1].pipeline for each in left])
            shown[kind], totals[kind] = [name for _, name in first], total
            await slices.rest()
        return Attention(
            sections={
                kind: [_item(mirror, kind, name, stuck.get(name.key, ""), now) for name in names]
                for kind, names in shown.items()
            },
            totals=totals,
            urgent=urgent,
            urgent_pipelines=frozenset(urgent_pipelines),
        )

    async def _stuck(self, mirror: Mirror, slices: Slices, now: float) -> dict[str, str]:
        """Return why each run is stuck that is."""
        alive, found, overdue = {each.id for each in mirror.alive(now)}, dict[str, str](), now - OVERDUE_S
        async for runs in slices.portions(list(mirror.active.values()), PORTION):
            # Nearly all are not: what is quick to tell comes first.
            suspects = [
                run
                for run in runs
                if (run.due_at is not None and run.due_at < overdue)
                or (run.owner and run.owner not in alive)
                or run.state == _TRIGGERING
            ]
            for run in suspects:
                if why := self._why_stuck(mirror, run, alive, now):
                    found[run.key] = why
        return found

    def _why_stuck(self, mirror: Mirror, run: ActiveRun, alive: Container[str], now: float) -> str:
        if run.due_at is not None and now - run.due_at > OVERDUE_S:
            return NOBODY_ACTED
        is_alone = bool(run.owner) and run.owner not in alive and now - run.since > OWNER_GONE_S
        if is_alone and mirror.gone_for(run.owner, self._began, now) > OWNER_GONE_S:
            return OWNER_IS_GONE
        if run.state == State.TRIGGERING.value and now - run.since > STARTS_WITHIN_S:
            return NOT_CONFIRMED
        return ""


def usual_s(mirror: Mirror, name: NamedRun, history: Sequence[FinishedRun] | None = None) -> float | None:
    """Return how long the schedule's job usually takes: the median of successes, else what is expected."""
    durations = [
        run.duration
        for run in (mirror.history(name.pipeline, name.schedule) if history is None else history)
        if run.word == "completed" and run.duration is not None
    ]
    if durations:
        return median(durations)
    entry = mirror.catalogue.get(name.pipeline)
    return None if entry is None else entry.expected_s


# --- candidates: each with a number, the least first ------------------------------------------------------------------


def _candidates(
    mirror: Mirror, stuck: Mapping[str, str], now: float
) -> dict[AttentionKind, tuple[Iterable[Any], Callable[[Sequence[Any]], list[_Candidate]]]]:
    """Return for each section what it is chosen from, and a function that chooses from some of that.

    Tens of thousands pass here for each view after a change, so each choice is one loop without calls.
    """
    holds_all = mirror.ended_is_whole and mirror.week_is_read
    active, ended = mirror.active, mirror.ended

    def breached(events: Sequence[ToldEvent]) -> list[_Candidate]:
        # A run that ended is known, unless the mirror does not hold them all, or not yet.
        return [
            (-event.at, event)
            for event in events
            if event.at >= now - BREACHED_FOR_S
            and (run.word not in _SETTLED if (run := ended.get(event.key)) else holds_all or event.key in active)
        ]

    def failed(runs: Sequence[FinishedRun]) -> list[_Candidate]:
        return [(-run.at, run) for run in runs if run.at >= now - FAILED_FOR_S]

    def missed(events: Sequence[ToldEvent]) -> list[_Candidate]:
        return [
            (-event.at, event)
            for event in events
            if event.at >= now - MISSED_FOR_S
            and event.key not in ended
            and ((run := active.get(event.key)) is None or run.state == _EVALUATING)
        ]

    def is_stuck(runs: Sequence[ActiveRun]) -> list[_Candidate]:
        return [(0.0, run) for run in runs if run.key in stuck]

    def due(watches: Sequence[ActiveWatch]) -> list[_Candidate]:
        until = now + DUE_WITHIN_S
        return [(watch.breach_at, watch) for watch in watches if watch.breach_at <= until]

    def waiting(runs: Sequence[ActiveRun]) -> list[_Candidate]:
        return [(run.since, run) for run in runs if run.state == _EVALUATING]

    return {
        AttentionKind.BREACHED: (mirror.breached.values(), breached),
        AttentionKind.FAILED: (mirror.failed.values(), failed),
        AttentionKind.MISSED: (mirror.missed.values(), missed),
        AttentionKind.STUCK: (active.values() if stuck else (), is_stuck),
        AttentionKind.DUE: (mirror.watches.values(), due),
        AttentionKind.WAITING: (active.values(), waiting),
    }


def _item(mirror: Mirror, kind: AttentionKind, name: NamedRun, why: str, now: float) -> AttentionItem:
    run = mirror.active.get(name.key) or mirror.ended.get(name.key)
    watch = mirror.watches.get(name.key)
    return AttentionItem(
        kind=kind,
        name=name,
        sentence=why or _sentence(name, run),
        run=run,
        watch=watch,
        is_at_risk=watch is not None and _is_at_risk(mirror, watch, run, now),
    )


def _sentence(name: NamedRun, run: ActiveRun | FinishedRun | None) -> str:
    if isinstance(run, FinishedRun) and run.reason:
        return run.reason
    return name.message if isinstance(name, ToldEvent) else ""


def _is_at_risk(mirror: Mirror, watch: ActiveWatch, run: ActiveRun | FinishedRun | None, now: float) -> bool:
    """Return whether a run will breach its deadline if its job takes as long as usual."""
    usual = usual_s(mirror, watch)
    if usual is None or isinstance(run, FinishedRun):
        return False
    is_running = run is not None and run.state in {State.POLLING.value, State.STOPPING.value}
    begun = run.since if run is not None and is_running else now
    return max(now, begun + usual) > watch.breach_at
