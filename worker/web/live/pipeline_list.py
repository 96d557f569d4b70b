"""The list of pipelines, from the mirror: search, filters and order, without reading the store."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from re import compile as compile_pattern
from typing import Final

from worker.core.run.state import STATE_WORDS
from worker.runtime.clock import Clock
from worker.web.live.catalogue import CatalogueEntry
from worker.web.live.facts import ActiveRun, FinishedRun
from worker.web.live.mirror import Mirror
from worker.web.live.slices import Slices

SORTS: Final = ("", "owner", "now", "deadline", "ended")
KEPT_MAX: Final = 8
NEVER: Final = "no run yet"

_WORDS: Final = {state.value: word for state, word in STATE_WORDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFilter:
    """PipelineFilter says which pipelines are listed, and in which order; "" and False mean: any."""

    q: str = ""
    owner: str = ""
    state: str = ""
    job: str = ""
    attention: bool = False
    sort: str = ""

    @property
    def is_empty(self) -> bool:
        return self == PipelineFilter()


class PipelineLists:
    """Chooses pipelines. A choice is kept for as long as nothing has changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[int, int, PipelineFilter], Sequence[str]] = OrderedDict()

    async def choose(self, mirror: Mirror, wanted: PipelineFilter, urgent: frozenset[str]) -> Sequence[str]:
        """Return the ids of the pipelines that fit, in order. `urgent` are those that need attention."""
        if wanted.is_empty:
            return mirror.ids
        name = id(mirror), mirror.revision, wanted
        if name not in self._known:
            self._known[name] = await self._choose(mirror, wanted, urgent)
            if len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        return self._known[name]

    async def _choose(self, mirror: Mirror, wanted: PipelineFilter, urgent: frozenset[str]) -> Sequence[str]:
        slices, now = Slices(self._clock), self._clock.now().timestamp()
        fits = _text_test(wanted.q)
        found: list[tuple[tuple[object, ...], str]] = []
        for pipeline in list(mirror.ids):
            await slices.rest()
            entry = mirror.catalogue.get(pipeline)
            if entry is None or not fits(entry):
                continue
            if (wanted.owner and entry.owner != wanted.owner) or (wanted.job and entry.job != wanted.job):
                continue
            if wanted.attention and pipeline not in urgent:
                continue
            if wanted.state and word_of(mirror, pipeline, now) != wanted.state:
                continue
            found.append((_order(mirror, entry, wanted.sort, now), pipeline))
        if wanted.sort:
            found.sort()
        return [pipeline for _, pipeline in found]


def latest_run(mirror: Mirror, pipeline: str) -> ActiveRun | FinishedRun | None:
    """Return what a pipeline does now: the active run that moved last, else the one that ended last."""
    if active := mirror.active_of(pipeline):
        return max(active.values(), key=lambda run: run.since)
    ended = mirror.ended_of(pipeline)
    return max(ended.values(), key=lambda run: run.at) if ended else None


def word_of(mirror: Mirror, pipeline: str, now: float) -> str:
    """Return the status of a pipeline for people."""
    run = latest_run(mirror, pipeline)
    if isinstance(run, FinishedRun):
        return "paused" if mirror.is_paused(pipeline, now) else run.word
    if run is None:
        return "paused" if mirror.is_paused(pipeline, now) else NEVER
    return run_word(run, is_paused=mirror.is_paused(pipeline, now))


def run_word(run: ActiveRun | FinishedRun, *, is_paused: bool = False) -> str:
    if isinstance(run, FinishedRun):
        return run.word
    word = _WORDS.get(run.state, run.state.lower())
    return "paused" if is_paused and word == "waiting" else word


def _text_test(q: str) -> Callable[[CatalogueEntry], bool]:
    """Return a test for a search: a substring of any text, or a glob over the id if it has a `*`."""
    text = q.strip().lower()
    if "*" in text:
        pattern = compile_pattern(translate(text))
        return lambda entry: pattern.match(entry.id.lower()) is not None
    return lambda entry: text in entry.searched


def _order(mirror: Mirror, entry: CatalogueEntry, sort: str, now: float) -> tuple[object, ...]:
    match sort:
        case "owner":
            return (entry.owner, entry.id)
        case "now":
            return (word_of(mirror, entry.id, now), entry.id)
        case "deadline":
            keys = mirror.active_of(entry.id)
            times = [watch.breach_at for key in keys if (watch := mirror.watches.get(key))]
            return (min(times, default=float("inf")), entry.id)
        case "ended":
            times = [run.at for run in mirror.ended_of(entry.id).values()]
            return (-max(times, default=0.0), entry.id)
        case _:
            return ()
