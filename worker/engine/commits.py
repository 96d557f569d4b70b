"""Commits: writes everything that one decision changes in one commit, the row it moves first.

If a row that the decision depends on has changed, the commit is stale: the caller loads and decides again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model import keys
from worker.core.model.effects import EmitEvent
from worker.core.model.events import Event
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.values import Json
from worker.core.run.decision import Decision
from worker.core.run.effects import (
    DryEffect,
    Effect,
    JudgeDeadline,
    JudgeEvaluation,
    KeepBaseline,
    KeepInputs,
    KeepOutputs,
    KeepReadiness,
    LogJob,
    PutRerunRequest,
    RecordRerun,
    WaiveDeadline,
    WatchDeadline,
)
from worker.core.run.state import Deletion, DryRun, ForeignRun, Run, altered, job_id
from worker.core.sla.effects import WatchEffect
from worker.core.sla.state import SlaWatch
from worker.core.sla.watch import MovedWatch
from worker.core.time.timestamps import format_rfc3339
from worker.engine.related_rows import RelatedRows
from worker.runtime.ids import NewId, random_id
from worker.store.repos import dry_runs, job_log, run_data, run_rollups, sla_watches
from worker.store.repos import readiness as readiness_rows
from worker.store.repos.deletions import not_deleted
from worker.store.repos.events import event_write
from worker.store.repos.marks import Mark, Marks, move_write, once_write
from worker.store.repos.pauses import not_paused
from worker.store.repos.requests import RerunRequest, rerun_write
from worker.store.repos.reruns import Rerun, record_write
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Put, StaleWrite, Tables, Write


@dataclass(slots=True)
class _Draft:
    """Collects the rows of one commit, apart from the row that the decision moves."""

    key: RunKey
    now: datetime
    version: int  # of the moved row after this commit; consumers order events by it
    after: Run | None = None
    about: Run | None = None  # the run whose attempt the job log records: as it was before, not the next attempt
    writes: list[Write] = field(default_factory=list[Write])
    line_ids: list[str] = field(default_factory=list[str])  # of lines in the job log
    events: int = 0


class Commits:
    """Turns the effects of each decision into one commit.

    Every method can raise `StaleWrite` and `RetryLater`.
    """

    def __init__(self, tables: Tables, session: SessionId, new_id: NewId = random_id) -> None:
        self._tables, self._session, self._new_id = tables, session, new_id
        self._runs, self._marks, self._watches = Runs(tables), Marks(tables), SlaWatches(tables)

    async def of_run(
        self,
        before: Run | None,
        after: Run | None,
        decision: Decision,
        related: RelatedRows,
        *,
        watch: MovedWatch | None = None,
        over: ForeignRun | None = None,
        deletion: Deletion | None = None,
        key: RunKey,
        now: datetime,
    ) -> tuple[Run | None, SlaWatch | None]:
        """Record a decision about a run; return the run as saved, and the SLA watch if it changed too.

        If `after` is `before`, the row is unchanged. With `over`, the row belongs to another system, and `before` is
        only a stand-in for it. A new run is created only if it was not deleted, or it lifts the `deletion`.
        """
        if deletion is not None and after is not None:
            after = altered(after, version=deletion.version)
        draft = _Draft(key, now, version=_next_version(before, after), after=after)
        draft.about = before or after
        for effect in decision.effects:
            await self._add(draft, effect, related, watch)
        saved_watch = sla_watches.saved(watch.watch) if watch else None
        if before is not None and after is not None and before.is_ended and not after.is_ended and over is None:
            # It leaves the list of the day it ended on, whose rollup counts it.
            stale = run_rollups.stale_write(key, before.since, f"{after.run_id}#{after.version}", now)
            draft.writes += [] if stale is None else [stale]
        if decision.begins_work:
            draft.writes.append(not_paused(key.pipeline, now))
        if after is None or after is before:
            await self._write_extras(draft)
            return after, saved_watch
        if over is not None:
            return await self._runs.take_over(over, after, *draft.writes), saved_watch
        if deletion is not None:
            return await self._runs.restore(after, deletion, *draft.writes), saved_watch
        if before is None:
            draft.writes.append(not_deleted(key, now))
        return await self._runs.save(after, *draft.writes), saved_watch

    async def of_dry_run(
        self, before: DryRun | None, after: DryRun | None, effects: Sequence[DryEffect], *, key: RunKey, now: datetime
    ) -> DryRun | None:
        draft = _Draft(key, now, version=after.version + 1 if after else 0)
        for effect in effects:
            if isinstance(effect, EmitEvent):
                await self._tell(draft, effect)
            elif isinstance(effect, KeepBaseline):
                seen = await self._marks.get(key.pipeline, keys.baseline_mark_sk(key))
                draft.writes.append(_baseline(draft, effect, seen))
        if after is None or after == before:
            await self._write_extras(draft)
            return after
        await self._tables.commit(dry_runs.save_write(after), *draft.writes)
        return dry_runs.saved(after)

    async def of_watch(
        self,
        before: SlaWatch | None,
        after: SlaWatch | None,
        effects: Sequence[WatchEffect],
        *guards: Write,
        run_version: int,
        key: RunKey,
        now: datetime,
    ) -> SlaWatch | None:
        """Record a decision about an SLA watch alone, if the conditions in `guards` still hold."""
        if after is None or after == before:
            return after
        draft = _Draft(key, now, version=run_version)
        for effect in _tells(effects):
            await self._tell(draft, effect)
        return await self._watches.save(after, *draft.writes, *guards)

    async def tell_once(self, key: RunKey, tell: EmitEvent, now: datetime, *, mark_sk: str | None = None) -> bool:
        """Emit an event that no run row remembers; return whether it was new. Raises only `RetryLater`.

        A mark remembers it: `mark_sk` if given, else a mark for this period and event type.
        """
        draft = _Draft(key, now, version=0)
        await self._tell(draft, tell, mark_sk)
        try:
            await self._write_extras(draft)
        except StaleWrite:  # its only condition is that there is no mark: another worker was first
            return False
        return bool(draft.writes)

    # --- the parts ----------------------------------------------------------------------------------------------------

    async def _add(self, draft: _Draft, effect: Effect, related: RelatedRows, watch: MovedWatch | None) -> None:
        match effect:
            case EmitEvent():
                await self._tell(draft, effect)
            case LogJob():
                draft.writes.append(self._line(draft, effect))
            case RecordRerun():
                draft.writes.append(self._rerun(draft, effect, related.rerun_number))
            case PutRerunRequest():
                draft.writes.append(_request(draft, effect, related.request))
            case KeepBaseline():
                draft.writes.append(_baseline(draft, effect, related.baseline))
            case KeepInputs(inputs=inputs):
                draft.writes.append(run_data.inputs_write(draft.key, inputs, draft.now))
            case KeepOutputs(outputs=outputs):
                draft.writes.append(run_data.outputs_write(draft.key, outputs, draft.now))
            case KeepReadiness(readiness=readiness):
                draft.writes.append(readiness_rows.save_write(readiness, draft.now))
            case WatchDeadline() | JudgeDeadline() | JudgeEvaluation() | WaiveDeadline() if watch is not None:
                draft.writes.append(sla_watches.save_write(watch.watch))
                for event in watch.events:
                    await self._tell(draft, event)
            case _:
                return  # an action, or an effect on the run's own row

    async def _tell(self, draft: _Draft, tell: EmitEvent, mark_sk: str | None = None) -> None:
        if tell.once:
            mark = mark_sk or keys.told_mark_sk(tell.type, draft.key, tell.about)
            if await self._marks.get(draft.key.pipeline, mark) is not None:
                return
            draft.writes.append(once_write(draft.key.pipeline, mark, {"at": format_rfc3339(draft.now)}, draft.now))
        draft.writes.append(event_write(self._event(draft, tell)))

    def _event(self, draft: _Draft, tell: EmitEvent) -> Event:
        detail: dict[str, Json] = {**tell.detail}
        if draft.version:
            detail["version"] = draft.version
        draft.events += 1
        return Event(
            id=self._new_id(),
            type=tell.type,
            at=draft.now,
            pipeline=draft.key.pipeline,
            schedule=draft.key.schedule,
            period=str(draft.key.period),
            message=tell.message,
            detail=detail,
            order=draft.events - 1,
        )

    def _line(self, draft: _Draft, log: LogJob) -> Write:
        # Lines of one commit have the same time, so their ids keep their order.
        first = draft.line_ids[0] if draft.line_ids else None
        draft.line_ids.append(self._new_id() if first is None else f"{first}-{len(draft.line_ids) + 1}")
        line = job_log.JobLine(
            id=draft.line_ids[-1],
            at=draft.now,
            attempt=draft.about.attempt if draft.about else 0,
            event=log.event,
            run_id=job_id(draft.about.job if draft.about else None),
            error=log.message,
            category=log.category or "",
        )
        return job_log.append_write(draft.key, line)

    def _rerun(self, draft: _Draft, record: RecordRerun, number: int) -> Write:
        rerun = Rerun(
            id=self._new_id(),
            reason=record.reason,
            at=draft.now,
            attempt=draft.after.attempt if draft.after else 0,
            source_event=record.source,
        )
        return record_write(draft.key, rerun, number)

    # --- the commit ---------------------------------------------------------------------------------------------------

    async def _write_extras(self, draft: _Draft) -> None:
        if any(isinstance(write, Put) for write in draft.writes):
            await self._tables.commit(*draft.writes)


def _request(draft: _Draft, effect: PutRerunRequest, seen: RerunRequest | None) -> Write:
    asked = RerunRequest(reason=effect.reason, requested_at=format_rfc3339(effect.requested_at), id=effect.id)
    return rerun_write(draft.key, asked, seen)


def _baseline(draft: _Draft, keep: KeepBaseline, seen: Mark | None) -> Write:
    kept: Mapping[str, Json] = {} if seen is None or keep.is_new else seen.data
    mark_sk = keys.baseline_mark_sk(draft.key)
    return move_write(draft.key.pipeline, mark_sk, seen, {**kept, **keep.data}, draft.now)


def _tells(effects: Iterable[WatchEffect]) -> list[EmitEvent]:
    return [effect for effect in effects if isinstance(effect, EmitEvent)]


def _next_version(before: Run | None, after: Run | None) -> int:
    if after is None:
        return 0
    return after.version if after is before else after.version + 1
