"""`interlock run --watch`: put changed pipeline files into force while the worker runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, Protocol

from worker.cli.commands.push import PushStatus, compared, refuse_oversized
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_session import StoreAccess
from worker.config.deploy import deploy
from worker.config.files import UnreadableFile
from worker.config.load import Directory, Problem, ProblemSeverity, load_directory
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Holds what the files hold now, by the file's name."""

    files: dict[str, tuple[Pipeline, str]]  # each pipeline that can be used, and its version
    present: frozenset[str]  # also those with errors
    problems: dict[str, tuple[Problem, ...]]  # of pipelines and calendars

    @classmethod
    def of(cls, found: Directory) -> "_Reading":
        problems = {**errors_by_file(found), **oversized(found)}
        usable = [(each.file, each.pipeline) for each in found.files if each.pipeline and each.file not in problems]
        return cls(
            files={file: (pipeline, config_hash(pipeline)) for file, pipeline in usable},
            present=frozenset(loaded.file for loaded in found.files),
            problems=problems,
        )


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
        for file, (pipeline, version) in _Reading.of(found).files.items():
            self._known.files[file], self._known.versions[pipeline.id] = pipeline.id, version

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
        # In a thread, because many files take long, and the engine must not wait.
        reading = await asyncio.to_thread(self._load, self._access.clock.now().date())
        if await asyncio.to_thread(self._stamps) != stamps:
            return  # somebody wrote while the files were read: the next look reads them again
        async with self._access.tables() as tables:
            await self._apply(tables, reading)
        self._files.note_read(stamps)

    def _stamps(self) -> Stamps:
        try:
            return stamps_of(self._sources.paths, self._sources.calendars)
        except UnreadableFile as error:
            raise RetryLater(f"the files cannot be listed: {error}") from error

    def _load(self, today: date) -> _Reading:
        return _Reading.of(load_directory(self._sources.paths, calendars_dir=self._sources.calendars, today=today))

    async def _apply(self, tables: Tables, reading: _Reading) -> None:
        self._report_problems(reading.problems)
        self._report_gone(reading)
        for file, (pipeline, version) in reading.files.items():
            is_news = self._known.versions.get(pipeline.id) != version
            if is_news and not self._is_disputed(file, pipeline.id):
                await self._put(tables, pipeline, version, file)
            self._known.files[file] = pipeline.id

    async def _put(self, tables: Tables, pipeline: Pipeline, version: str, file: str) -> None:
        stored = await Pipelines(tables).get(pipeline.id)
        status = compared(pipeline, stored, self._access.clock.now().date()).status
        if status is not PushStatus.UNCHANGED:
            await deploy(tables, pipeline, self._access.clock)
        self._known.versions[pipeline.id] = version  # last: if the store did not answer, it is tried again
        self._report.reloaded(pipeline.id, status, version, file)

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

    def _report_gone(self, reading: _Reading) -> None:
        """Report pipelines whose file is gone or holds another one now. They stay: only a person removes one."""
        held = {pipeline.id for pipeline, _ in reading.files.values()}
        for file, pipeline in sorted(self._known.files.items()):
            if file in reading.present and file not in reading.files:
                continue  # it has errors, so nobody knows what it will hold
            if file not in reading.files or reading.files[file][0].id != pipeline:
                del self._known.files[file]
                if pipeline not in held:  # else its file was renamed
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
