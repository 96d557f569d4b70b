"""Reads what a page about one run shows: its row, deadline, explanation and history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from worker.config.versions import PipelineVersions, Unusable, Version
from worker.core.errors import ConfigError, Rejected
from worker.core.model.events import Event
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Schedule
from worker.core.run.state import DryRun, ForeignRun, Pause, Run
from worker.core.sla.state import SlaWatch
from worker.operations.explain.explanation import Explanation
from worker.operations.explain.gates import explain, explain_unusable
from worker.operations.explain.load import SnapshotLoader
from worker.operations.explain.remedy_commands import remedy_commands
from worker.operations.runs.history import HistoryEntry, Records, tell
from worker.operations.runs.run_detail import RunDetails
from worker.store.repos.job_log import JobLog, JobRecord
from worker.store.repos.pauses import Pauses
from worker.store.repos.reruns import Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.rows import BadRow
from worker.store.table import Tables

LINES_MAX: Final = 500

ViewedRun: TypeAlias = Run | ForeignRun | DryRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Holds one run, or what is known of a run that does not exist yet.

    `problem` says why there is no explanation, or why the row cannot be read. `commands` make the changes that the
    explanation asks for. `history` is oldest first; without `is_whole`, its latest events were not read.
    """

    key: RunKey
    run: ViewedRun | None
    watch: SlaWatch | None
    pause: Pause | None
    schedule: Schedule | None
    version: Version | None
    explanation: Explanation | None
    commands: Sequence[str]
    history: Sequence[HistoryEntry]
    is_whole: bool
    problem: str = ""
    is_unreadable: bool = False


class RunViews:
    """Reads one run. Raises `RetryLater`."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._loader = tables, SnapshotLoader(tables)
        self._versions: PipelineVersions = self._loader.configs

    async def load(self, key: RunKey, now: datetime) -> RunView | None:
        """Return what is known of a run; None if neither it nor its pipeline and schedule exist."""
        version = await self._loader.version(key.pipeline)
        row, problem = await self._row(key)
        usable = version if isinstance(version, Version) else None
        schedule = usable.pipeline.schedule(key.schedule) if usable else None
        is_unreadable = bool(problem)
        if row is None and not is_unreadable and (version is None or (usable is not None and schedule is None)):
            return None
        explanation, commands = None, ()
        if isinstance(version, Unusable):
            explanation = explain_unusable(key, version.problems)
        elif usable is not None and not is_unreadable:
            try:
                sight = await self._loader.at(key, usable, now)
                row, explanation = sight.run, explain(sight)
                commands = remedy_commands(sight, explanation)
            except (ConfigError, Rejected) as error:  # its schedule or version was removed
                problem = str(error)
        elif version is None:
            problem = f"the pipeline {key.pipeline} is no longer in the store"
        watch = await self._watch(key)
        history, is_whole = await self._history(key, row, watch, now)
        return RunView(
            key=key,
            run=row,
            watch=watch,
            pause=await self._pause(key, now),
            schedule=schedule,
            version=usable,
            explanation=explanation,
            commands=commands,
            history=history,
            is_whole=is_whole,
            problem=problem,
            is_unreadable=is_unreadable,
        )

    async def _row(self, key: RunKey) -> tuple[ViewedRun | None, str]:
        try:
            return await Runs(self._tables).load(key), ""
        except BadRow as error:
            return None, str(error)

    async def _watch(self, key: RunKey) -> SlaWatch | None:
        try:
            return await SlaWatches(self._tables).load(key)
        except BadRow:
            return None  # the explanation and the worker's log report it

    async def _pause(self, key: RunKey, now: datetime) -> Pause | None:
        pause = await Pauses(self._tables).load(key.pipeline)
        return None if pause is None or pause.is_over(now) else pause

    async def _lines(self, key: RunKey) -> list[JobRecord]:
        found: list[JobRecord] = []
        async for record in JobLog(self._tables).list(key):
            found.append(record)
            if len(found) == LINES_MAX:
                break
        return found

    async def _history(
        self, key: RunKey, row: ViewedRun | None, watch: SlaWatch | None, now: datetime
    ) -> tuple[list[HistoryEntry], bool]:
        try:
            found = await RunDetails(self._tables).events(key, now)
            lines = await self._lines(key)
            reruns = await Reruns(self._tables).list(key)
        except BadRow:
            return [], False
        events = [
            Event(
                id=each.id,
                type=each.event_type,
                at=each.at,
                pipeline=each.pipeline,
                schedule=each.schedule,
                period=each.period,
                message=each.message,
                detail={name: value for name, value in each.detail.items() if name in {"attempt", "job"}},  # pyright: ignore[reportArgumentType]  JSON, of an event
            )
            for each in found.records
        ]
        own = None if isinstance(row, DryRun) else row
        return tell(Records(run=own, watch=watch, lines=lines, reruns=reruns, events=events)), (
            found.is_whole and len(lines) < LINES_MAX
        )
