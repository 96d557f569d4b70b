"""`interlock run --watch`: put changed pipeline files into force while the worker runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, Protocol

from worker.cli.commands.push import PushStatus, compared, refuse_oversized
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_access import StoreAccess
from worker.config.deploy import deploy
from worker.config.files import UnreadableFile
from worker.config.load import Directory, Loaded, Problem, ProblemSeverity, load_directory
from worker.config.render import config_hash
from worker.config.watched_files import SettledFiles, Stamps, stamps_of
from worker.core.errors import Rejected, RetryLater, WorkerError
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.runtime.error_boundary import ErrorBoundary
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

LOOK_EVERY_S: Final = 1.0  # a file must stay the same for this long
TRY_AGAIN_S: Final = 10.0  # after the store did not answer


class WatchReport(Protocol):
    """WatchReport says what became of changed files."""

    def reloaded(self, pipeline: PipelineId, status: PushStatus, version: str, file: str) -> None: ...

    def rejected(self, file: str, problems: Sequence[Problem]) -> None:
        """Report a file that cannot be used, or one without problems that can be used again."""
        ...

    def gone(self, pipeline: PipelineId, file: str) -> None: ...

    def failed(self, reason: str) -> None:
        """Report that changes could not be put into force, and that this is tried again."""
        ...


@dataclass(slots=True)
class _LastRead:
    """Holds the files as they were last read: what has not changed there is left as it is in the store."""

    versions: dict[PipelineId, str] = field(default_factory=dict[PipelineId, str])
    files: dict[str, PipelineId] = field(default_factory=dict[str, PipelineId])
    problems: dict[str, tuple[Problem, ...]] = field(default_factory=dict[str, tuple[Problem, ...]])


class PipelineWatch:
    """Looks at the files every second. `sources` were pushed at the start, after `stamps` were taken."""

    def __init__(self, access: StoreAccess, sources: Sources, stamps: Stamps, report: WatchReport) -> None:
        self._access, self._sources, self._report = access, sources, report
        self._files = SettledFiles(stamps)
        self._known = _LastRead()
        self._boundary = ErrorBoundary()
        self._failure = ""

    def note_pushed(self, found: Directory) -> None:
        """Note what the files held when the worker pushed them."""
        for loaded in found.files:
            if loaded.pipeline is not None:
                self._known.files[loaded.file] = loaded.pipeline.id
                self._known.versions[loaded.pipeline.id] = config_hash(loaded.pipeline)

    async def run(self) -> None:
        """Watch until cancelled. Nothing that goes wrong here ends the worker."""
        while True:
            await self._access.clock.sleep(LOOK_EVERY_S)
            try:
                with self._boundary:
                    await self.look()
            except WorkerError as error:
                if str(error) != self._failure:
                    self._report.failed(str(error))
                self._failure = str(error)
                await self._access.clock.sleep(TRY_AGAIN_S)
            else:
                self._failure = ""

    async def look(self) -> None:
        """Put files that changed and have settled into force. Raises `RetryLater`."""
        stamps = await asyncio.to_thread(self._stamps)
        if not self._files.are_due(stamps):
            return
        found = await asyncio.to_thread(self._load, self._access.clock.now().date())
        if await asyncio.to_thread(self._stamps) != stamps:
            return  # somebody wrote while the files were read: the next look reads them again
        async with self._access.tables() as tables:
            await self._apply(tables, found)
        self._files.note_read(stamps)

    def _stamps(self) -> Stamps:
        try:
            return stamps_of(self._sources.paths, self._sources.calendars)
        except UnreadableFile as error:
            raise RetryLater(f"the files cannot be listed: {error}") from error

    def _load(self, today: date) -> Directory:
        return load_directory(self._sources.paths, calendars_dir=self._sources.calendars, today=today)

    async def _apply(self, tables: Tables, found: Directory) -> None:
        self._report_problems({**errors_by_file(found), **oversized(found)})
        for loaded in found.files:
            if loaded.pipeline is not None and loaded.file not in self._known.problems:
                await self._put(tables, loaded, loaded.pipeline)
        self._report_gone(found)

    async def _put(self, tables: Tables, loaded: Loaded, pipeline: Pipeline) -> None:
        version = config_hash(pipeline)
        if self._known.versions.get(pipeline.id) == version or self._is_disputed(loaded.file, pipeline.id):
            self._known.files[loaded.file] = pipeline.id
            return
        stored = await Pipelines(tables).get(pipeline.id)
        status = compared(pipeline, stored, self._access.clock.now().date()).status
        if status is not PushStatus.UNCHANGED:
            await deploy(tables, pipeline, self._access.clock)
        # Last: if the store did not answer, it is tried again.
        self._known.files[loaded.file], self._known.versions[pipeline.id] = pipeline.id, version
        self._report.reloaded(pipeline.id, status, version, loaded.file)

    def _is_disputed(self, file: str, pipeline: PipelineId) -> bool:
        """Return whether another file that now has errors held this pipeline: it may be the one to follow."""
        return any(self._known.files.get(other) == pipeline for other in self._known.problems if other != file)

    def _report_problems(self, by_file: dict[str, tuple[Problem, ...]]) -> None:
        for file, problems in by_file.items():
            if self._known.problems.get(file) != problems:
                self._report.rejected(file, problems)
        for file in sorted(self._known.problems.keys() - by_file.keys()):
            if Path(file).exists():
                self._report.rejected(file, ())
        self._known.problems = by_file

    def _report_gone(self, found: Directory) -> None:
        """Report files that are gone. Their pipelines stay, because only a person may remove a pipeline."""
        present = {loaded.file for loaded in found.files}
        elsewhere = {loaded.pipeline.id for loaded in found.files if loaded.pipeline is not None}
        for file in sorted(self._known.files.keys() - present):
            pipeline = self._known.files.pop(file)
            if pipeline not in elsewhere:  # a file may have been renamed
                self._known.versions.pop(pipeline, None)
                self._report.gone(pipeline, file)


def errors_by_file(found: Directory) -> dict[str, tuple[Problem, ...]]:
    """Return the errors of each file that has any, calendars included."""
    by_file: dict[str, tuple[Problem, ...]] = {}
    for problem in found.errors:
        by_file[problem.file] = (*by_file.get(problem.file, ()), problem)
    return by_file


def oversized(found: Directory) -> dict[str, tuple[Problem, ...]]:
    """Return the files whose pipeline no row can hold."""
    refused: dict[str, tuple[Problem, ...]] = {}
    for loaded in found.files:
        try:
            refuse_oversized([loaded.pipeline] if loaded.pipeline else [])
        except Rejected as error:
            problem = Problem(
                file=loaded.file, line=1, column=1, path="", severity=ProblemSeverity.ERROR, message=str(error)
            )
            refused[loaded.file] = (problem,)
    return refused


def stamps_before_push(sources: Sources) -> Stamps:
    """Return the files' stamps before they are read for the first time; empty if they cannot be listed."""
    try:
        return stamps_of(sources.paths, sources.calendars)
    except UnreadableFile:
        return {}
