"""Place the nodes of a layered graph: few crossings, short edges, and one shared trunk for all edges to a node.

All numbers follow from the graph alone, so that the same graph always gives the same picture.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

SWEEPS: Final = 24
WAYPOINT_WIDTH: Final = 9.0

Edge: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a row: a node, or a waypoint that edges to `name` pass through (`is_waypoint`)."""

    name: str
    row: int
    is_waypoint: bool = False


Line: TypeAlias = tuple[Spot, Spot]


@dataclass(frozen=True, slots=True)
class Placement:
    """The centre of every spot on the x axis, and the lines between spots of neighbouring rows."""

    x: Mapping[Spot, float]
    lines: Sequence[Line]


def place(rows: Sequence[Sequence[str]], edges: Sequence[Edge], width: Callable[[str], float]) -> Placement:
    """Place rows from top to bottom. Every edge must point from a higher row to a lower one."""
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    lines = _lines(edges, row_of)
    order = _ordered(_start_order(rows, lines), lines)

    def room(spot: Spot) -> float:
        return WAYPOINT_WIDTH if spot.is_waypoint else width(spot.name)

    return Placement(_positions(order, lines, room), lines)


def _lines(edges: Sequence[Edge], row_of: Mapping[str, int]) -> list[Line]:
    lines: set[Line] = set()
    for source, target in edges:
        here, last = Spot(source, row_of[source]), row_of[target]
        for row in range(here.row + 1, last + 1):
            there = Spot(target, row, is_waypoint=row < last)
            lines.add((here, there))
            here = there
    return sorted(lines, key=_line_key)


def _line_key(line: Line) -> tuple[tuple[int, str, bool], ...]:
    return tuple((spot.row, spot.name, spot.is_waypoint) for spot in line)


def _start_order(rows: Sequence[Sequence[str]], lines: Sequence[Line]) -> list[list[Spot]]:
    order = [[Spot(name, number) for name in row] for number, row in enumerate(rows)]
    for spot in sorted({line[1] for line in lines if line[1].is_waypoint}, key=lambda spot: (spot.row, spot.name)):
        order[spot.row].append(spot)
    return order


# --- the order within rows --------------------------------------------------------------------------------------------


def _ordered(order: list[list[Spot]], lines: Sequence[Line]) -> list[list[Spot]]:
    """Sweep down and up, sorting each row by its neighbours; keep the order with the fewest crossings."""
    above, below = _neighbours(lines)
    best, fewest = [list(row) for row in order], _crossings(order, lines)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in range(len(order)) if downwards else reversed(range(len(order))):
            index = {spot: place for each in order for place, spot in enumerate(each)}
            near = above if downwards else below
            order[row].sort(key=lambda spot: _mean([index[other] for other in near[spot]], index[spot]))
        _swap_neighbours(order, lines)
        if (crossings := _crossings(order, lines)) < fewest:
            best, fewest = [list(row) for row in order], crossings
    return best


def _neighbours(lines: Sequence[Line]) -> tuple[defaultdict[Spot, list[Spot]], defaultdict[Spot, list[Spot]]]:
    above: defaultdict[Spot, list[Spot]] = defaultdict(list)
    below: defaultdict[Spot, list[Spot]] = defaultdict(list)
    for upper, lower in lines:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _swap_neighbours(order: list[list[Spot]], lines: Sequence[Line]) -> None:
    """Swap two spots that are side by side where that saves crossings."""
    above, below = _neighbours(lines)
    for row in range(len(order)):
        index = {spot: place for each in order for place, spot in enumerate(each)}
        spots = order[row]
        for place in range(len(spots) - 1):
            left, right = spots[place], spots[place + 1]
            now = then = 0
            for near in (above, below):
                lefts, rights = ([index[each] for each in near[spot]] for spot in (left, right))
                now += sum(a > b for a in lefts for b in rights)
                then += sum(a < b for a in lefts for b in rights)
            if then < now:
                spots[place], spots[place + 1] = right, left
                index[left], index[right] = place + 1, place


def _crossings(order: Sequence[Sequence[Spot]], lines: Sequence[Line]) -> int:
    index = {spot: place for row in order for place, spot in enumerate(row)}
    by_row: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for upper, lower in lines:
        by_row[upper.row].append((index[upper], index[lower]))
    return sum(
        (a[0] - b[0]) * (a[1] - b[1]) < 0
        for pairs in by_row.values()
        for number, a in enumerate(pairs)
        for b in pairs[number + 1 :]
    )


# --- the places within rows -------------------------------------------------------------------------------------------


def _positions(
    order: Sequence[Sequence[Spot]], lines: Sequence[Line], room: Callable[[Spot], float]
) -> dict[Spot, float]:
    above, below = _neighbours(lines)
    x: dict[Spot, float] = {}
    for row in order:
        x.update(zip(row, _apart([0.0] * len(row), row, room), strict=True))
    for sweep in range(2 * SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            wanted = [_mean([x[other] for other in (*above[spot], *below[spot])], x[spot]) for spot in row]
            x.update(zip(row, _apart(wanted, row, room), strict=True))
    left = min(x[spot] - room(spot) / 2 for spot in x)
    return {spot: round(value - left, 1) for spot, value in x.items()}


def _apart(wanted: Sequence[float], row: Sequence[Spot], room: Callable[[Spot], float]) -> list[float]:
    """Return the places nearest to those wanted at which nothing overlaps (least squares, by pooling neighbours)."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (room(left) + room(right)) / 2)
    blocks: list[list[float]] = []  # each: sum of wants, count
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append([want - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
