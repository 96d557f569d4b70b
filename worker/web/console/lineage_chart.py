"""Draws a lineage: pipelines as boxes in columns, upstreams left, a curve for each dependency."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from worker.operations.pipelines.lineage import Lineage, LineageEdge, LineageNode

BOX_WIDTH: Final = 196
BOX_HEIGHT: Final = 48
COLUMN_GAP: Final = 52
ROW_GAP: Final = 14
NAME_MAX: Final = 25  # characters that fit into a box
TEXT_MAX: Final = 30
MARGIN: Final = 2  # for the strokes
# What one word for many runs is: the first of these that any of them has.
_FIRST: Final = ("failed", "cancelled", "running", "starting", "stopping", "waiting", "not started", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageBox:
    """LineageBox is a pipeline at its place. `word` is the status of its runs; "" if none is asked for."""

    node: LineageNode
    x: int
    y: int
    is_start: bool
    word: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LineageCurve:
    edge: LineageEdge
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageChart:
    boxes: Sequence[LineageBox]
    curves: Sequence[LineageCurve]
    width: int
    height: int


def lineage_chart(lineage: Lineage, start: str) -> LineageChart:
    """Place each pipeline in the column of its depth, near the pipelines that it runs after."""
    columns: dict[int, list[LineageNode]] = defaultdict(list)
    for node in lineage.nodes:
        columns[node.depth].append(node)
    upstreams: dict[str, list[str]] = defaultdict(list)
    for edge in lineage.edges:
        upstreams[edge.downstream].append(edge.upstream)
    most = max((len(nodes) for nodes in columns.values()), default=0)
    boxes: dict[str, LineageBox] = {}
    for number, depth in enumerate(sorted(columns)):
        ordered = sorted(columns[depth], key=lambda node: (_middle(boxes, upstreams[node.pipeline]), node.pipeline))
        top = MARGIN + (most - len(ordered)) * (BOX_HEIGHT + ROW_GAP) // 2
        for row, node in enumerate(ordered):
            boxes[node.pipeline] = LineageBox(
                node=node,
                x=MARGIN + number * (BOX_WIDTH + COLUMN_GAP),
                y=top + row * (BOX_HEIGHT + ROW_GAP),
                is_start=node.pipeline == start,
                word=status_of(node),
                name=_cut(node.pipeline, NAME_MAX),
                text=_cut(text_of(node), TEXT_MAX),
            )
    return LineageChart(
        boxes=[*boxes.values()],
        curves=[LineageCurve(edge, _path(boxes[edge.upstream], boxes[edge.downstream])) for edge in lineage.edges],
        width=2 * MARGIN + len(columns) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP if columns else 0,
        height=2 * MARGIN + most * (BOX_HEIGHT + ROW_GAP) - ROW_GAP if most else 0,
    )


def status_of(node: LineageNode) -> str:
    """Return one word for all runs of a node: the one that matters most; "" without runs."""
    words = [run.status for run in node.runs]
    return next((word for word in _FIRST if word in words), words[0] if words else "")


def text_of(node: LineageNode) -> str:
    """Return how far the runs of a node are, in a few words."""
    if not node.runs:
        return ""
    word = status_of(node)
    if len(node.runs) == 1:
        run = node.runs[0]
        return f"{word} in {run.took}" if run.duration and word == "completed" else word
    count = sum(run.status == word for run in node.runs)
    return f"{count} of {len(node.runs)} {word}"


def _middle(boxes: dict[str, LineageBox], names: Iterable[str]) -> float:
    """Return how far down the upstreams of a pipeline are, on average: curves then cross less."""
    places = [boxes[name].y for name in names if name in boxes]
    return sum(places) / len(places) if places else 0.0


def _path(upstream: LineageBox, downstream: LineageBox) -> str:
    begin, end = upstream.x + BOX_WIDTH, downstream.x
    first, last = upstream.y + BOX_HEIGHT // 2, downstream.y + BOX_HEIGHT // 2
    bend = max(COLUMN_GAP // 2, (end - begin) // 2)
    return f"M{begin} {first}C{begin + bend} {first} {end - bend} {last} {end} {last}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
