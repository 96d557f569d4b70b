"""The sections of the overview, from the mirror: what needs a person, what is due, what waits.

A run is listed once, in the first section that fits.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import nsmallest
from operator import itemgetter
from statistics import median
from typing import Final, TypeAlias

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

_Candidate: TypeAlias = tuple[float, NamedRun]
_Candidates: TypeAlias = Iterator[_Candidate]


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
        self._found: SharedResults[Attention] = SharedResults(KEPT_MAX)

    async def find(self, mirror: Mirror) -> Attention:
        now = self._clock.now().timestamp()
        return await self._found.of((mirror.revision, int(now)), partial(self._sort, mirror, now))

    async def _sort(self, mirror: Mirror, now: float) -> Attention:
        slices = Slices(self._clock)
        taken: dict[str, AttentionKind] = {}
        shown: dict[AttentionKind, list[NamedRun]] = {}
        totals: dict[AttentionKind, int] = {}
        stuck = await self._stuck(mirror, slices, now)
        candidates: dict[AttentionKind, _Candidates] = {
            AttentionKind.BREACHED: _breached(mirror, now),
            AttentionKind.FAILED: _failed(mirror, now),
            AttentionKind.MISSED: _missed(mirror, now),
            AttentionKind.STUCK: ((0.0, run) for key in stuck if (run := mirror.active.get(key))),
            AttentionKind.DUE: _due(mirror, now),
            AttentionKind.WAITING: _waiting(mirror),
        }
        for kind, names in candidates.items():
            left: list[_Candidate] = []
            async for portion in slices.portions(names):
                left += [each for each in portion if each[1].key not in taken]
                taken.update((each[1].key, kind) for each in portion if each[1].key not in taken)
            first = nsmallest(SHOWN_MAX, left, key=itemgetter(0))
            shown[kind], totals[kind] = [name for _, name in first], len(left)
            await slices.rest()
        urgent = {key: kind for key, kind in taken.items() if kind in URGENT}
        await slices.rest()
        return Attention(
            sections={
                kind: [_item(mirror, kind, name, stuck.get(name.key, ""), now) for name in names]
                for kind, names in shown.items()
            },
            totals=totals,
            urgent=urgent,
            urgent_pipelines=frozenset(key.partition("/")[0] for key in urgent),
        )

    async def _stuck(self, mirror: Mirror, slices: Slices, now: float) -> dict[str, str]:
        """Return why each run is stuck that is."""
        alive, found = {each.id for each in mirror.alive(now)}, dict[str, str]()
        async for runs in slices.portions(list(mirror.active.values())):
            for run in runs:
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


def _breached(mirror: Mirror, now: float) -> _Candidates:
    # A run that ended is known, unless the mirror does not hold them all, or not yet.
    holds_all = mirror.ended_is_whole and mirror.week_is_read
    for event in list(mirror.breached.values()):
        ended = mirror.ended.get(event.key)
        is_settled = ended is not None and ended.word in {"completed", "cancelled"}
        is_unknown = ended is None and event.key not in mirror.active and not holds_all
        if event.at >= now - BREACHED_FOR_S and not is_settled and not is_unknown:
            yield -event.at, event


def _failed(mirror: Mirror, now: float) -> _Candidates:
    for run in list(mirror.failed.values()):
        if run.at >= now - FAILED_FOR_S:
            yield -run.at, run


def _missed(mirror: Mirror, now: float) -> _Candidates:
    for event in list(mirror.missed.values()):
        active = mirror.active.get(event.key)
        has_begun = event.key in mirror.ended or (active is not None and active.state != State.EVALUATING.value)
        if event.at >= now - MISSED_FOR_S and not has_begun:
            yield -event.at, event


def _due(mirror: Mirror, now: float) -> _Candidates:
    until = now + DUE_WITHIN_S
    for watch in list(mirror.watches.values()):
        if watch.breach_at <= until:
            yield watch.breach_at, watch


def _waiting(mirror: Mirror) -> _Candidates:
    evaluating = State.EVALUATING.value
    for run in list(mirror.active.values()):
        if run.state == evaluating:
            yield run.since, run


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
    """Return whether a run will miss its deadline if its job takes as long as usual."""
    usual = usual_s(mirror, watch)
    if usual is None or isinstance(run, FinishedRun):
        return False
    is_running = run is not None and run.state in {State.POLLING.value, State.STOPPING.value}
    begun = run.since if run is not None and is_running else now
    return max(now, begun + usual) > watch.breach_at
