"""The list of pipelines, from the mirror: search, filters and order, without reading the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from re import compile as compile_pattern
from typing import Final, TypeAlias

from worker.core.run.state import STATE_WORDS
from worker.runtime.clock import Clock
from worker.web.live.catalogue import CatalogueEntry
from worker.web.live.facts import ActiveRun, FinishedRun
from worker.web.live.mirror import Mirror
from worker.web.live.shared_results import SharedResults
from worker.web.live.slices import Slices

SORTS: Final = ("", "owner", "now", "deadline", "ended")
KEPT_MAX: Final = 8
NEVER: Final = "no run yet"

_Order: TypeAlias = str | float  # of one kind in one list

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
        self._found: SharedResults[Sequence[str]] = SharedResults(KEPT_MAX, "pipelines")

    async def choose(self, mirror: Mirror, wanted: PipelineFilter, urgent: frozenset[str]) -> Sequence[str]:
        """Return the ids of the pipelines that fit, in order. `urgent` are those that need attention."""
        if wanted.is_empty:
            return mirror.ids
        return await self._found.of((mirror.revision, wanted), partial(self._choose, mirror, wanted, urgent))

    async def _choose(self, mirror: Mirror, wanted: PipelineFilter, urgent: frozenset[str]) -> Sequence[str]:
        slices, now = Slices(self._clock), self._clock.now().timestamp()
        fits, order = _test(mirror, wanted, urgent, now), _ORDERS.get(wanted.sort)
        found: list[tuple[_Order, str]] = []
        async for portion in slices.portions(list(mirror.ids)):
            entries = [entry for pipeline in portion if (entry := mirror.catalogue.get(pipeline)) and fits(entry)]
            found += [("" if order is None else order(mirror, entry, now), entry.id) for entry in entries]
        if order is not None:
            await slices.rest()
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


def _test(
    mirror: Mirror, wanted: PipelineFilter, urgent: frozenset[str], now: float
) -> Callable[[CatalogueEntry], bool]:
    """Return whether an entry fits, what is quick to tell first."""
    fits_text = _text_test(wanted.q)

    def fits(entry: CatalogueEntry) -> bool:
        return (
            (not wanted.owner or entry.owner == wanted.owner)
            and (not wanted.job or entry.job == wanted.job)
            and (not wanted.attention or entry.id in urgent)
            and fits_text(entry)
            and (not wanted.state or word_of(mirror, entry.id, now) == wanted.state)
        )

    return fits


def _text_test(q: str) -> Callable[[CatalogueEntry], bool]:
    """Return a test for a search: a substring of any text, or a glob over the id if it has a `*`."""
    text = q.strip().lower()
    if "*" in text:
        pattern = compile_pattern(translate(text))
        return lambda entry: pattern.match(entry.id.lower()) is not None
    return lambda entry: text in entry.searched


def _by_deadline(mirror: Mirror, entry: CatalogueEntry, _: float) -> float:
    times = [watch.breach_at for key in mirror.active_of(entry.id) if (watch := mirror.watches.get(key))]
    return min(times, default=float("inf"))


def _by_end(mirror: Mirror, entry: CatalogueEntry, _: float) -> float:
    return -max((run.at for run in mirror.ended_of(entry.id).values()), default=0.0)


_ORDERS: Final[Mapping[str, Callable[[Mirror, CatalogueEntry, float], _Order]]] = {
    "owner": lambda mirror, entry, now: entry.owner,  # noqa: ARG005
    "now": lambda mirror, entry, now: word_of(mirror, entry.id, now),
    "deadline": _by_deadline,
    "ended": _by_end,
}
