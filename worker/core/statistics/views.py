"""Views: sums of a day that are stored ready-made, so that a question reads only what it needs."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from worker.core.statistics.rollup import NO_HOUR, Cell, RunTally, merged


class View(StrEnum):
    """Lists the views, from small to large. Each keeps status and outcome, and some of the other names."""

    TOTALS = "totals"
    HOURS = "hours"
    OWNERS = "owners"
    OWNER_HOURS = "owner-hours"
    PIPELINES = "pipelines"


HOUR, OWNER, PIPELINE = "hour", "owner", "pipeline"

_KEPT: Final[Mapping[View, frozenset[str]]] = {
    View.TOTALS: frozenset(),
    View.HOURS: frozenset({HOUR}),
    View.OWNERS: frozenset({OWNER}),
    View.OWNER_HOURS: frozenset({OWNER, HOUR}),
    View.PIPELINES: frozenset({PIPELINE, OWNER}),
}


def view_with(names: frozenset[str]) -> View | None:
    """Return the smallest view that keeps all these names; None if only the rollups themselves do."""
    return next((view for view in View if names <= _KEPT[view]), None)


def viewed(parts: Iterable[Mapping[Cell, RunTally]], view: View) -> dict[Cell, RunTally]:
    """Return the sum of the parts with only the names that the view keeps."""
    kept = _KEPT[view]
    dropped: dict[str, str | int] = {name: "" for name in (PIPELINE, OWNER) if name not in kept}
    if HOUR not in kept:
        dropped[HOUR] = NO_HOUR
    return merged((cell._replace(**dropped), tally) for cells in parts for cell, tally in cells.items())
