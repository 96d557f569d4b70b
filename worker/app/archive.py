"""Wires the archiver and the export of summaries: their targets, and their periodic tasks."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from scheduler.periodic import PeriodicTask
from worker.app.dependencies import WorkerDeps
from worker.config.settings import Settings
from worker.operations.archive.archiver import Archiver
from worker.operations.archive.history import History
from worker.operations.archive.summary_export import SummaryExport
from worker.operations.archive.target import ArchiveTarget, DirectoryTarget
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.archive_url import ArchiveUrl, FileArchive, S3Archive
from worker.store.repos.delivery.archive_progress import ArchiveProgresses
from worker.store.table import Tables

EVERY: Final = timedelta(minutes=1)
WINDOWS_MAX: Final = 500  # in one turn of the task
TURN_MAX_S: Final = 15.0  # so that a long backlog does not keep the lease from moving

_log = logger()


async def open_archiver(
    stack: AsyncExitStack, settings: Settings, place: ArchiveUrl, *, tables: Tables, clock: Clock
) -> Archiver:
    """Open the archive at `place`; `stack` closes it. It connects on first use."""
    target = await _open_target(stack, settings, place, "INTERLOCK_ARCHIVE")
    history = History(tables, settings.archive.types)
    return Archiver(history, target, ArchiveProgresses(tables, str(place)), clock, name=str(place))


async def open_summaries(
    stack: AsyncExitStack, settings: Settings, place: ArchiveUrl, *, tables: Tables, clock: Clock
) -> SummaryExport:
    """Open the place of the summaries; `stack` closes it. It connects on first use."""
    target = await _open_target(
        stack, settings, place, "INTERLOCK_SUMMARIES", content_type="application/json", encoding=""
    )
    return SummaryExport(tables, target, clock, name=str(place))


async def _open_target(
    stack: AsyncExitStack, settings: Settings, place: ArchiveUrl, setting: str, **form: str
) -> ArchiveTarget:
    match place:
        case FileArchive():
            return DirectoryTarget(place.directory)
        case S3Archive():
            # The AWS libraries, which only this kind of target needs.
            from worker.app.aws_endpoint import aws_endpoint  # noqa: PLC0415
            from worker.jobs.aws.client import Aws  # noqa: PLC0415
            from worker.operations.archive.s3_target import S3Target  # noqa: PLC0415

            aws = await stack.enter_async_context(Aws(aws_endpoint(settings)))
            return S3Target(aws, place, setting=setting, **form)


def with_summaries(deps: WorkerDeps, summaries: SummaryExport) -> WorkerDeps:
    """Return dependencies whose scheduler exports summaries, and whose watchdog checks that it does."""
    before = deps.sources.watchdog.archive

    async def problem(now: datetime) -> str | None:
        found = [await before(now)] if before else []
        return next((each for each in [*found, await summaries.problem(now)] if each), None)

    watchdog = replace(deps.sources.watchdog, archive=problem)
    return replace(deps, sources=replace(deps.sources, summaries=summaries, watchdog=watchdog))


def summaries_task(summaries: SummaryExport, clock: Clock, may_act: Callable[[], bool]) -> PeriodicTask:
    """Return the task that exports summaries. An error ends its turn; the next one writes what is missing."""

    async def export() -> None:
        began = clock.monotonic()
        while may_act() and clock.monotonic() - began < TURN_MAX_S:
            if await summaries.step(may_act) is None:
                return

    return PeriodicTask("summaries", EVERY, export)


def with_archiver(deps: WorkerDeps, archiver: Archiver) -> WorkerDeps:
    """Return dependencies whose scheduler archives, and whose watchdog checks that it does."""
    watchdog = replace(deps.sources.watchdog, archive=archiver.problem)
    return replace(deps, sources=replace(deps.sources, archiver=archiver, watchdog=watchdog))


def archive_task(archiver: Archiver, clock: Clock, may_act: Callable[[], bool]) -> PeriodicTask:
    """Return the task that archives what is due. An error ends its turn; the next one repeats the window."""

    async def archive() -> None:
        began = clock.monotonic()
        for _ in range(WINDOWS_MAX):
            if not may_act() or clock.monotonic() - began > TURN_MAX_S:
                return
            report = await archiver.step(may_act)
            if report is None:
                return
            if report.objects:
                _log.info(
                    "archive.written",
                    up_to=report.window.end.isoformat(),
                    events=report.events,
                    runs=report.runs,
                    objects=report.objects,
                )

    return PeriodicTask("archive", EVERY, archive)
