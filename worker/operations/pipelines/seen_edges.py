"""Edges between pipelines that no file declares, as the cascades of the last runs show them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from worker.core.run.state import Run

SEEN_FOR: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True, order=True)
class SeenEdge:
    """SeenEdge says that runs of `downstream` were started because runs of `upstream` completed."""

    downstream: str
    upstream: str
    runs: int
    last: str  # the newest of their periods


def seen_edges(runs: Iterable[Run], now: datetime) -> list[SeenEdge]:
    """Return the edges on the paths that led to the given runs of one pipeline, the nearest first.

    A run knows the pipelines above it, not those below: an edge is seen from its downstream end only.
    """
    periods: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for run in runs:
        if now - run.created_at <= SEEN_FOR:
            for steps, (downstream, upstream) in enumerate(pairwise([run.key.pipeline, *reversed(run.path)])):
                periods[steps, downstream, upstream].append(str(run.key.period))
    nearest = sorted(periods.items(), key=lambda each: each[0])
    return [SeenEdge(downstream, upstream, len(seen), max(seen)) for (_, downstream, upstream), seen in nearest]
