"""Reads versions of pipelines: the one in force, and those that runs began under."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from worker.core.errors import Rejected
from worker.core.model.calendars import Calendar
from worker.core.model.content_hash import content_hash
from worker.core.model.keys import config_mark_sk
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.store.repos.marks import Mark, Marks
from worker.store.repos.pipelines import Pipelines, StoredConfig
from worker.store.table import Tables

VERSIONS_KEPT_MAX: Final = 10_000
LARGE_TEXT_CHARS: Final = 8 * 1024  # most files have a quarter of that; a larger one takes some hundredths of a second


@dataclass(frozen=True, slots=True)
class Version:
    pipeline: Pipeline
    config_hash: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """Holds a deployed text that cannot be used. `text_hash` identifies it, so that it is reported once."""

    pipeline: PipelineId
    text_hash: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """Holds the recorded state of a pipeline's configuration: the last usable version and a refused text."""

    mark: Mark | None
    good: str | None = None
    refused: str | None = None
    cycle: str | None = None  # why a text that can be read was refused


class PipelineVersions:
    """Reads configurations. A parsed version is cached in memory, because it never changes.

    With `dry_run` every pipeline is in dry run, whatever its text says.
    """

    def __init__(
        self, tables: Tables, calendars: Mapping[str, Calendar] | None = None, *, dry_run: bool = False
    ) -> None:
        self._store, self._marks = Pipelines(tables), Marks(tables)
        self._calendars, self._dry_run = calendars or {}, dry_run
        self._versions: OrderedDict[tuple[PipelineId, str], Version] = OrderedDict()
        self._texts: OrderedDict[tuple[PipelineId, str], Version | Unusable] = OrderedDict()
        self._kept: set[tuple[PipelineId, str]] = set()

    async def deployed(self, pipeline: PipelineId) -> Version | Unusable | None:
        """Read the CONFIG row itself; None if there is none."""
        stored = await self._store.get(pipeline)
        return None if stored is None else await self._understood(stored)

    async def judged(self, pipeline: PipelineId) -> Version | Unusable | None:
        """Read the CONFIG row, and whether it was refused although it can be read; None if there is none."""
        stored = await self._store.get(pipeline)
        return None if stored is None else await self.judged_of(stored)

    async def judged_of(self, stored: StoredConfig) -> Version | Unusable:
        """Return what `judged` does for a row that was already read."""
        deployed, text_hash = await self._understood(stored), content_hash(stored.text or "")
        if isinstance(deployed, Unusable) or not _runs_after_others(deployed):
            return deployed
        known = await self.remembered(stored.pipeline)
        if known.refused != text_hash:
            return deployed
        return Unusable(stored.pipeline, text_hash, (known.cycle or "it was rejected because of a cycle",))

    async def current(self, pipeline: PipelineId) -> Version | None:
        """Return the version that new runs begin under: the deployed one, else the last usable one."""
        stored = await self._store.get(pipeline)
        return None if stored is None else await self.in_force_of(stored)

    async def in_force_of(self, stored: StoredConfig) -> Version | None:
        """Return the version in force for a row that was already read."""
        pipeline, deployed = stored.pipeline, await self._understood(stored)
        if isinstance(deployed, Version) and not _runs_after_others(deployed):
            return deployed
        known = await self.remembered(pipeline)
        # A text that runs after itself through other pipelines can be read, and was refused nevertheless.
        if isinstance(deployed, Version) and known.refused != content_hash(stored.text or ""):
            return deployed
        return None if known.good is None else await self.find(pipeline, known.good)

    async def get(self, pipeline: PipelineId, version_hash: str) -> Version:
        """Return the version that a run began under.

        Raises `Rejected` if it does not exist, which only a manual deletion can cause.
        """
        version = await self.find(pipeline, version_hash)
        if version is None:
            raise Rejected(
                f"pipeline {pipeline} has no version {version_hash}, under which a run began; it was deleted or "
                f"damaged: restore the row CONFIGVER#{version_hash}, or cancel the run"
            )
        return version

    async def find(self, pipeline: PipelineId, version_hash: str) -> Version | None:
        known = self._versions.get((pipeline, version_hash))
        if known is not None:
            return known
        text = await self._store.version(pipeline, version_hash)
        read = None if text is None else await self._read_in_time(pipeline, text)
        if not isinstance(read, Version):
            return None
        # Use the hash it was found under: a later release may render, and so hash, the same pipeline differently.
        return self._remember(Version(read.pipeline, version_hash))

    async def persist(self, version: Version, at: datetime | None = None) -> None:
        """Store a version before the first run begins under it, with the time, so that it can be found again."""
        from worker.config.render import to_json  # noqa: PLC0415  as in `_read`

        name = (version.pipeline.id, version.config_hash)
        if name not in self._kept:
            await self._store.keep_version(*name, to_json(version.pipeline), at)
            _bounded(self._kept).add(name)

    async def remembered(self, pipeline: PipelineId) -> Remembered:
        mark = await self._marks.get(pipeline, config_mark_sk())
        if mark is None:
            return Remembered(None)
        good, refused, cycle = (mark.data.get(name) for name in ("good", "refused", "cycle"))
        return Remembered(
            mark,
            good if isinstance(good, str) else None,
            refused if isinstance(refused, str) else None,
            cycle if isinstance(cycle, str) else None,
        )

    async def _understood(self, stored: StoredConfig) -> Version | Unusable:
        text = stored.text or ""
        name = (stored.pipeline, content_hash(text))
        known = self._texts.get(name)
        if known is None:
            known = self._texts[name] = await self._read_in_time(stored.pipeline, text)
            if len(self._texts) > VERSIONS_KEPT_MAX:
                self._texts.popitem(last=False)
            if isinstance(known, Version):
                self._remember(known)
        return known

    async def _read_in_time(self, pipeline: PipelineId, text: str) -> Version | Unusable:
        """Parse a text; a large one in a thread, so that the event loop does not wait."""
        if len(text) > LARGE_TEXT_CHARS:
            return await asyncio.to_thread(self._read, pipeline, text)
        return self._read(pipeline, text)

    def _read(self, pipeline: PipelineId, text: str) -> Version | Unusable:
        # Imported with the first text: loading pydantic's models takes longer than most commands, which read no text.
        from worker.config.load import load_text  # noqa: PLC0415
        from worker.config.render import config_hash  # noqa: PLC0415

        loaded = load_text(text, file=f"{pipeline} CONFIG", calendars=self._calendars, lenient=True)
        if loaded.pipeline is None:
            return Unusable(pipeline, content_hash(text), tuple(str(problem) for problem in loaded.errors))
        if loaded.pipeline.id != pipeline:
            wrong = (
                f"the text is of pipeline {loaded.pipeline.id}, but stored as {pipeline}: deploy it under its own id"
            )
            return Unusable(pipeline, content_hash(text), (wrong,))
        understood = replace(loaded.pipeline, dry_run=loaded.pipeline.dry_run or self._dry_run)
        return Version(understood, config_hash(understood))

    def _remember(self, version: Version) -> Version:
        self._versions[version.pipeline.id, version.config_hash] = version
        if len(self._versions) > VERSIONS_KEPT_MAX:
            self._versions.popitem(last=False)
        return version


def _bounded(names: set[tuple[PipelineId, str]]) -> set[tuple[PipelineId, str]]:
    """Clear the set if it is full: that costs only needless writes."""
    if len(names) >= VERSIONS_KEPT_MAX:
        names.clear()
    return names


def _runs_after_others(version: Version) -> bool:
    return any(schedule.after for schedule in version.pipeline.schedules)
