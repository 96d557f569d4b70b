"""`interlock pipelines push`: show each change from the store to the files, then write it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import unified_diff
from enum import StrEnum
from functools import partial

from worker.cli.commands.validate import show_problems, show_records, tally
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.files import Sources, read_files
from worker.cli.terminal.progress import progress_bar
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.deploy import deploy_many, upstreams_of
from worker.config.load import Directory, load_text
from worker.config.render import config_hash, to_json, to_yaml
from worker.config.versions import PipelineVersions
from worker.core.dependencies.graph import edges_of
from worker.core.errors import Rejected, WorkerError
from worker.core.model.ids import PipelineId
from worker.core.model.pipeline import Pipeline
from worker.core.model.values import Json
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.pipelines import Pipelines, StoredConfig
from worker.store.table import ROW_BYTES_MAX, Tables

NAMED_MAX = 20  # pipelines that a message names; with --json each has a record
ROW_OVERHEAD_BYTES = 4_000  # the rest of a row: keys, index attributes, commit id
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class PushStatus(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    sources: Sources
    consent: Consent
    dry_run: bool = False
    as_json: bool = False
    allow_missing: bool = False  # accept files that run after pipelines which do not exist yet


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChange:
    """PipelineChange compares one pipeline of the files with the store.

    `before` is the stored configuration as text for people; it is "" for a new pipeline.
    """

    pipeline: Pipeline
    status: PushStatus
    before: str = ""
    is_listed: bool = True

    @property
    def diff(self) -> list[str]:
        """Return how a stored configuration changes; for a new one it is empty, because the file shows it."""
        if self.status is not PushStatus.CHANGED:
            return []
        after = to_yaml(self.pipeline).splitlines()
        name = self.pipeline.id
        return list(unified_diff(self.before.splitlines(), after, f"stored/{name}", f"pushed/{name}", lineterm=""))


async def run_push(screen: Screen, access: StoreAccess, request: PushRequest) -> int:
    """Check the files, compare, show, ask, write. Write nothing if any file has an error."""
    found = read_sound_files(screen, request)
    return Exit.PROBLEMS if found is None else await push_files(screen, access, request, found)


def read_sound_files(screen: Screen, request: PushRequest) -> Directory | None:
    """Read the files; if any has an error, show it and return None. Raises `Rejected` if one is too big."""
    # What the files run after may be in the store: that is checked once it is open.
    found = read_files(screen, replace(request.sources, upstreams_required=False))
    if found.errors or not found.files:
        show_found(screen, found, as_json=request.as_json)
        screen.remark("nothing was written; fix the files and push again", style="red")
        return None
    if found.warnings:
        screen.remark(f"{counted(len(found.warnings), 'warning')}: `interlock validate` shows them", style="yellow")
    refuse_oversized(found.pipelines)
    return found


async def push_files(screen: Screen, access: StoreAccess, request: PushRequest, found: Directory) -> int:
    """Compare files without errors with the store, show the changes, ask, and write."""
    async with access.tables() as tables:
        if not await are_upstreams_sound(screen, tables, request, found):
            return Exit.PROBLEMS
        changes = await compare(tables, found, request.sources.today)
        show_changes(screen, changes, as_json=request.as_json)
        written = await write_agreed(screen, tables, access.clock, changes, request)
    if request.as_json:
        screen.record({"type": "summary", **counts_of(changes), "written": written})
    else:
        screen.line(summary(changes, written=written, dry_run=request.dry_run))
    return Exit.DONE


async def are_upstreams_sound(screen: Screen, tables: Tables, request: PushRequest, found: Directory) -> bool:
    """Check what the files run after against the store; show the problems."""
    if not any(edges_of(pipeline) for pipeline in found.pipelines):
        return True
    known = await upstreams_of(PipelineVersions(tables), found.pipelines)
    sources = replace(request.sources, known=known, upstreams_required=not request.allow_missing)
    checked = read_files(screen, sources)
    if not checked.errors:
        return True
    show_found(screen, checked, as_json=request.as_json)
    hint = "push them together with the pipelines that they run after, or with --allow-missing"
    screen.remark(f"nothing was written; fix the files, or {hint}", style="red")
    return False


def show_found(screen: Screen, found: Directory, *, as_json: bool) -> None:
    if as_json:
        show_records(screen, found.problems, tally(found))
    else:
        show_problems(screen, found.problems)


def refuse_oversized(pipelines: Iterable[Pipeline]) -> None:
    """Raise `Rejected` for a pipeline that is too large, before the first write instead of between two."""
    for pipeline in pipelines:
        size = len(to_json(pipeline).encode()) + ROW_OVERHEAD_BYTES
        if size > ROW_BYTES_MAX:
            raise Rejected(
                f"pipeline {pipeline.id} with its calendars is {size:,} bytes, and a row holds {ROW_BYTES_MAX:,}; "
                "nothing was written: shorten its calendars or split the pipeline"
            )


async def compare(tables: Tables, found: Directory, today: date) -> list[PipelineChange]:
    stored = await Pipelines(tables).get_many([pipeline.id for pipeline in found.pipelines])
    return [compared(pipeline, stored.get(pipeline.id), today) for pipeline in found.pipelines]


def compared(pipeline: Pipeline, stored: StoredConfig | None, today: date) -> PipelineChange:
    """Compare a pipeline with its stored configuration by meaning, not by text."""
    if stored is None:
        return PipelineChange(pipeline=pipeline, status=PushStatus.NEW)
    if stored.text == to_json(pipeline):  # as most are: not worth reading it again
        return PipelineChange(pipeline=pipeline, status=PushStatus.UNCHANGED, is_listed=stored.is_listed)
    known = load_text(stored.text or "", file=pipeline.id, lenient=True, today=today).pipeline
    if known is None:
        return PipelineChange(pipeline=pipeline, status=PushStatus.CHANGED, before=stored.text or "")
    status = PushStatus.UNCHANGED if config_hash(known) == config_hash(pipeline) else PushStatus.CHANGED
    return PipelineChange(pipeline=pipeline, status=status, before=to_yaml(known), is_listed=stored.is_listed)


async def write_agreed(
    screen: Screen, tables: Tables, clock: Clock, changes: Sequence[PipelineChange], request: PushRequest
) -> int:
    """Write the pipelines that differ, if the user agrees; return how many were written."""
    wanted = [change for change in changes if change.status is not PushStatus.UNCHANGED]
    if request.dry_run:
        return 0
    if wanted and not request.consent.obtain(screen, f"Write {counted(len(wanted), 'pipeline')}?"):
        return 0
    written = await write_all(screen, tables, clock, wanted, as_json=request.as_json)
    # A pipeline that another tool deployed may not be in the list yet; one that is listed needs no write.
    unlisted = [change for change in changes if change.status is PushStatus.UNCHANGED and not change.is_listed]
    await gather_bounded([partial(Pipelines(tables).list_deployed, change.pipeline.id) for change in unlisted])
    return written


async def write_all(
    screen: Screen, tables: Tables, clock: Clock, wanted: Sequence[PipelineChange], *, as_json: bool
) -> int:
    """Write pipelines, several at once. If the store fails, say which were written, and raise its error."""
    written: set[PipelineId] = set()
    with progress_bar(screen, "pushing", len(wanted)) as advance:

        def deployed(pipeline: PipelineId) -> None:
            written.add(pipeline)
            advance()

        try:
            await deploy_many(tables, [change.pipeline for change in wanted], clock, deployed)
        except WorkerError:
            show_stopped(screen, wanted, written, as_json=as_json)
            raise
    return len(written)


def show_stopped(
    screen: Screen, wanted: Sequence[PipelineChange], written: Collection[PipelineId], *, as_json: bool
) -> None:
    """Say what is in force and what is not, and that the same command continues."""
    left = [change.pipeline.id for change in wanted if change.pipeline.id not in written]
    if as_json:
        for change in wanted:
            is_written = change.pipeline.id in written
            screen.record({"type": "pushed", "id": change.pipeline.id, "written": is_written})
    named = ", ".join(left[:NAMED_MAX]) + (f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else "")
    # All may be written and the store fail afterwards: workers then find the changes in the feed.
    rest = f"not confirmed: {named}; push again to continue" if left else "the workers notice them by themselves"
    screen.remark(
        f"{len(written)} of {counted(len(wanted), 'pipeline')} written; {rest}",
        style="red",
    )


def show_changes(screen: Screen, changes: Sequence[PipelineChange], *, as_json: bool) -> None:
    for change in changes:
        if as_json:
            screen.record(change_record(change))
        elif change.status is not PushStatus.UNCHANGED:
            screen.line(f"{change.status}: {change.pipeline.id}", style="bold")
            for line in change.diff:
                screen.line(f"  {line}", style=DIFF_STYLES.get(line[:1], ""))


def change_record(change: PipelineChange) -> dict[str, Json]:
    return {
        "type": "pipeline",
        "id": change.pipeline.id,
        "status": change.status,
        "configHash": config_hash(change.pipeline),
        "diff": "\n".join(change.diff),
    }


def counts_of(changes: Iterable[PipelineChange]) -> dict[str, int]:
    statuses = [change.status for change in changes]
    return {status.value: statuses.count(status) for status in PushStatus}


def summary(changes: Sequence[PipelineChange], *, written: int, dry_run: bool) -> str:
    counts = ", ".join(f"{number} {status}" for status, number in counts_of(changes).items())
    ending = "nothing written: this was a dry run" if dry_run else f"{written} written"
    return f"{counted(len(changes), 'pipeline')}: {counts}; {ending}"
