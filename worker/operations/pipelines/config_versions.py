"""The kept versions of a pipeline's configuration, and how one differs from that in force."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from worker.config.render import mapping_to_yaml, to_mapping
from worker.config.versions import PipelineVersions, Version
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.run.state import Run
from worker.operations.redaction import without_secrets
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

VERSIONS_MAX: Final = 10
DIFF_LINES_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """VersionLine is one kept version. `first` and `last` are periods of shown runs that began under it."""

    hash: str
    is_current: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class DiffLine:
    """DiffLine is a line of a difference; `kind` is `added`, `removed`, `place` or `same`."""

    kind: str
    text: str


def config_text(pipeline: Pipeline) -> str:
    """Return a configuration as a file has it, without its secrets."""
    return mapping_to_yaml({name: without_secrets(value, name) for name, value in to_mapping(pipeline).items()})


async def version_lines(
    tables: Tables, pipeline: PipelineId, current: Version | None, runs: Sequence[Run]
) -> tuple[list[VersionLine], bool]:
    """Return the kept versions, that in force first, then by their newest run; and whether there are more."""
    found = await Pipelines(tables).versions(pipeline, VERSIONS_MAX)
    known = list(found[:VERSIONS_MAX])
    if current is not None and current.config_hash not in known:
        known.insert(0, current.config_hash)
    lines = [_line(each, current, runs) for each in known]
    lines.sort(key=lambda line: (line.is_current, line.last), reverse=True)
    return lines, len(found) > VERSIONS_MAX


def _line(config_hash: str, current: Version | None, runs: Sequence[Run]) -> VersionLine:
    periods = sorted(str(run.key.period) for run in runs if run.config_hash == config_hash)
    return VersionLine(
        hash=config_hash,
        is_current=current is not None and current.config_hash == config_hash,
        first=periods[0] if periods else "",
        last=periods[-1] if periods else "",
    )


async def config_diff(
    versions: PipelineVersions, pipeline: PipelineId, config_hash: str, current: Version
) -> list[DiffLine] | None:
    """Return what changed from an earlier version to that in force; None if there is no such version."""
    earlier = await versions.find(pipeline, config_hash)
    if earlier is None:
        return None
    before, after = (config_text(each.pipeline).splitlines() for each in (earlier, current))
    lines = list(unified_diff(before, after, lineterm="", n=2))[2:]
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [DiffLine(kinds.get(line[:1], "same"), line) for line in lines[: DIFF_LINES_MAX + 1]]
