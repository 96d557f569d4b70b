"""The kept versions of a pipeline's configuration, and how one differs from that in force."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from itertools import islice
from typing import Final

from worker.config.render import mapping_to_yaml, to_mapping
from worker.config.versions import PipelineVersions, Version
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.run.state import Run
from worker.core.schedule.agenda import Span
from worker.core.schedule.plan_changes import RunDifference, changes
from worker.operations.pipelines.plan_texts import change_facts, counts_text
from worker.operations.redaction import without_secrets
from worker.store.repos.pipelines import KeptVersion, Pipelines
from worker.store.table import Tables

VERSIONS_MAX: Final = 10
DIFF_LINES_MAX: Final = 400
EFFECT_DAYS: Final = 14
EFFECT_SHOWN_MAX: Final = 10
EFFECT_COUNTED_MAX: Final = 5_000  # a schedule of every minute has 20,000 runs in that time
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """VersionLine is one kept version. `first` and `last` are periods of shown runs that began under it."""

    hash: str
    kept_at: datetime | None
    is_current: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class DiffLine:
    """DiffLine is a line of a difference; `kind` is `added`, `removed`, `place` or `same`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """PlanEffect says what a change of version did to the expected runs; `lines` are the first of them."""

    summary: str
    lines: Sequence[tuple[RunDifference, str]]
    total: int
    is_cut: bool  # the total is that of the first ones only


@dataclass(frozen=True, slots=True)
class VersionChange:
    """VersionChange is the difference of the files of two versions, and what it does to the plan."""

    lines: Sequence[DiffLine]
    effect: PlanEffect


def config_text(pipeline: Pipeline) -> str:
    """Return a configuration as a file has it, without its secrets."""
    return mapping_to_yaml({name: without_secrets(value, name) for name, value in to_mapping(pipeline).items()})


async def version_lines(
    tables: Tables, pipeline: PipelineId, current: Version | None, runs: Sequence[Run]
) -> tuple[list[VersionLine], bool]:
    """Return the kept versions, that in force first, then the newest; and whether there are more."""
    found = await Pipelines(tables).versions(pipeline, VERSIONS_MAX)
    known = list(found[:VERSIONS_MAX])
    if current is not None and all(each.config_hash != current.config_hash for each in known):
        known.insert(0, KeptVersion(current.config_hash, None))
    lines = [_line(each, current, runs) for each in known]
    lines.sort(key=lambda line: (line.is_current, line.kept_at or LONG_AGO, line.last), reverse=True)
    return lines, len(found) > VERSIONS_MAX


def _line(kept: KeptVersion, current: Version | None, runs: Sequence[Run]) -> VersionLine:
    periods = sorted(str(run.key.period) for run in runs if run.config_hash == kept.config_hash)
    return VersionLine(
        hash=kept.config_hash,
        kept_at=kept.kept_at,
        is_current=current is not None and current.config_hash == kept.config_hash,
        first=periods[0] if periods else "",
        last=periods[-1] if periods else "",
    )


async def config_diff(
    versions: PipelineVersions, pipeline: PipelineId, config_hash: str, current: Version, now: datetime
) -> VersionChange | None:
    """Return what changed from an earlier version to that in force; None if there is no such version."""
    earlier = await versions.find(pipeline, config_hash)
    if earlier is None:
        return None
    before, after = (config_text(each.pipeline).splitlines() for each in (earlier, current))
    lines = list(unified_diff(before, after, lineterm="", n=2))[2:]
    kinds = {"+": "added", "-": "removed", "@": "place"}
    diff = [DiffLine(kinds.get(line[:1], "same"), line) for line in lines[: DIFF_LINES_MAX + 1]]
    # In a thread: a schedule of every minute expects 20,000 runs, and the event loop must not wait for them.
    effect = await asyncio.to_thread(plan_effect, earlier.pipeline, current.pipeline, now)
    return VersionChange(diff, effect)


def plan_effect(earlier: Pipeline, current: Pipeline, now: datetime) -> PlanEffect:
    """Return how the runs expected from today on differ from those that the earlier version expected."""
    found = list(
        islice(changes([earlier], [current], Span(first=now.date(), days=EFFECT_DAYS)), EFFECT_COUNTED_MAX + 1)
    )
    counted = found[:EFFECT_COUNTED_MAX]
    return PlanEffect(
        summary=counts_text(Counter(each.kind for each in counted)),
        lines=[(each, "; ".join(change_facts(each))) for each in counted[:EFFECT_SHOWN_MAX]],
        total=len(counted),
        is_cut=len(found) > EFFECT_COUNTED_MAX,
    )
