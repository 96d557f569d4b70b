"""Renders a lineage as text, Mermaid or DOT."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from worker.core.model.ids import PipelineId
from worker.operations.pipelines.lineage import Lineage, LineageEdge, LineageNode


class LineageFormat(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


def as_text(lineage: Lineage) -> list[str]:
    """Return one line for each pipeline, upstreams first, indented by how many pipelines it runs after."""
    after: dict[PipelineId, list[str]] = {}
    for edge in lineage.edges:
        mapping = "" if edge.periods == "same" else f" ({edge.periods})"
        after.setdefault(edge.downstream, []).append(f"{edge.upstream}{mapping}")
    lines = [_line(node, after.get(node.pipeline, [])) for node in lineage.nodes]
    lines += [f"warning: there is no pipeline {name}" for name in lineage.unknown]
    if lineage.is_cut:
        lines.append(f"only the first {len(lineage.nodes)} pipelines are shown; name one, or use --up and --down")
    return lines


def as_mermaid(lineage: Lineage) -> list[str]:
    """Return a Mermaid flowchart."""
    ids = _ids(lineage)
    nodes = [f'  {ids[node.pipeline]}["{_label(node, "<br/>")}"]' for node in lineage.nodes]
    return ["flowchart LR", *nodes, *_edges(lineage, lambda edge: _mermaid_edge(edge, ids)), *_cut(lineage, "%%")]


def as_dot(lineage: Lineage) -> list[str]:
    """Return a graph for Graphviz."""
    ids = _ids(lineage)
    nodes = [f'  {ids[node.pipeline]} [label="{_label(node, chr(92) + "n")}"];' for node in lineage.nodes]
    edges = _edges(lineage, lambda edge: f'  {ids[edge.upstream]} -> {ids[edge.downstream]} [label="{edge.periods}"];')
    return ["digraph lineage {", "  rankdir=LR;", *nodes, *edges, "}", *_cut(lineage, "//")]


def _line(node: LineageNode, after: list[str]) -> str:
    said = "  ".join([*([f"after {', '.join(after)}"] if after else []), *([node.summary] if node.summary else [])])
    return f"{'  ' * node.depth}{node.pipeline}{f'  {said}' if said else ''}"


def _label(node: LineageNode, line_break: str) -> str:
    return f"{node.pipeline}{line_break}{node.summary}" if node.summary else node.pipeline


def _mermaid_edge(edge: LineageEdge, ids: Mapping[PipelineId, str]) -> str:
    label = "" if edge.periods == "same" else f"|{edge.periods}|"
    return f"  {ids[edge.upstream]} -->{label} {ids[edge.downstream]}"


def _edges(lineage: Lineage, write: Callable[[LineageEdge], str]) -> list[str]:
    return [write(edge) for edge in lineage.edges]


def _ids(lineage: Lineage) -> dict[PipelineId, str]:
    return {node.pipeline: f"p{number}" for number, node in enumerate(lineage.nodes)}


def _cut(lineage: Lineage, comment: str) -> list[str]:
    return [f"{comment} only the first {len(lineage.nodes)} pipelines are shown"] if lineage.is_cut else []
