"""From decisions to rows: everything that one decision says becomes one commit, the row it moves first.

What a commit needs to know about other rows is read while it is put together. If one of them changes meanwhile, the
commit is stale: the caller loads and decides again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model import keys
from worker.core.model.effects import EmitEvent
from worker.core.model.events import Event
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import Schedule, Sla
from worker.core.model.values import Json
from worker.core.run.decision import Decision
from worker.core.run.effects import (
    DryEffect,
    Effect,
    JudgeDeadline,
    KeepBaseline,
    LogJob,
    PutRerunRequest,
    RecordRerun,
    WaiveDeadline,
    WatchDeadline,
)
from worker.core.run.reruns import is_unanswered
from worker.core.run.state import DryRun, ForeignRun, Run, job_id
from worker.core.sla import watch as slawatch
from worker.core.sla.effects import WatchEffect
from worker.core.sla.state import SlaWatch
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.runtime.ids import NewId, random_id
from worker.store.repos import dry_runs, job_log, sla_watches
from worker.store.repos.events import event_write
from worker.store.repos.marks import Marks, move_write, once_write
from worker.store.repos.pauses import not_paused
from worker.store.repos.requests import Requests, RerunRequest, rerun_write
from worker.store.repos.reruns import Rerun, Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Put, Tables, Write

_NO_SLA = Sla()  # for a deadline that the configuration no longer has: nothing about it can be said any more


@dataclass(slots=True)
class _Draft:
    """The rows of one commit beside the one it moves."""

    key: RunKey
    now: datetime
    version: int  # of the row that is moved, once this is committed; readers of events order by it
    after: Run | None = None
    about: Run | None = None  # whose attempt the job log speaks of: the one that was, not the one that begins
    writes: list[Write] = field(default_factory=list[Write])
    line_ids: list[str] = field(default_factory=list[str])  # of the job log
    watch: SlaWatch | None = None  # as it will be, if it changes


class Commits:
    """Turns effects into one commit each. Every method may raise `StaleWrite` and `RetryLater`."""

    def __init__(self, tables: Tables, session: SessionId, new_id: NewId = random_id) -> None:
        self._tables, self._session, self._new_id = tables, session, new_id
        self._runs, self._reruns, self._marks = Runs(tables), Reruns(tables), Marks(tables)
        self._watches, self._requests = SlaWatches(tables), Requests(tables)

    async def of_run(
        self,
        before: Run | None,
        after: Run | None,
        decision: Decision,
        *,
        over: ForeignRun | None = None,
        key: RunKey,
        schedule: Schedule,
        now: datetime,
    ) -> tuple[Run | None, SlaWatch | None]:
        """Record a decision about a run; say what the run is now, and the watch if that changed too.

        `over`: the row is another system's, for which `before` only stands in.
        """
        draft = _Draft(key, now, version=_next_version(before, after), after=after)
        draft.about = before or after
        for effect in decision.effects:
            await self._add(draft, effect, schedule)
        if decision.begins_work:
            draft.writes.append(not_paused(key.pipeline, now))
        if after is None or after == before:
            await self._write_extras(draft)
            return after, draft.watch
        if over is not None:
            return await self._runs.take_over(over, after, *draft.writes), draft.watch
        return await self._runs.save(after, *draft.writes), draft.watch

    async def of_dry_run(
        self, before: DryRun | None, after: DryRun | None, effects: Sequence[DryEffect], *, key: RunKey, now: datetime
    ) -> DryRun | None:
        draft = _Draft(key, now, version=after.version + 1 if after else 0)
        for effect in effects:
            if isinstance(effect, EmitEvent):
                await self._tell(draft, effect)
            elif isinstance(effect, KeepBaseline):
                await self._keep_baseline(draft, effect)
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
        """Record a decision about a watch alone, if what `guards` check still holds."""
        if after is None or after == before:
            return after
        draft = _Draft(key, now, version=run_version)
        for effect in _tells(effects):
            await self._tell(draft, effect)
        return await self._watches.save(after, *draft.writes, *guards)

    async def tell_once(self, key: RunKey, tell: EmitEvent, now: datetime, *, mark_sk: str | None = None) -> bool:
        """Record something that no row of a run remembers; say whether it was new.

        `mark_sk` remembers it instead of a mark of this period and type.
        """
        draft = _Draft(key, now, version=0)
        await self._tell(draft, tell, mark_sk)
        await self._write_extras(draft)
        return bool(draft.writes)

    # --- the parts ----------------------------------------------------------------------------------------------------

    async def _add(self, draft: _Draft, effect: Effect, schedule: Schedule) -> None:
        match effect:
            case EmitEvent():
                await self._tell(draft, effect)
            case LogJob():
                draft.writes.append(self._line(draft, effect))
            case RecordRerun():
                draft.writes.append(await self._rerun(draft, effect))
            case PutRerunRequest():
                draft.writes += await self._request(draft, effect)
            case KeepBaseline():
                await self._keep_baseline(draft, effect)
            case WatchDeadline():
                began = slawatch.RunBegan(
                    times=effect.times, arrived_at=effect.arrived_at, config_hash=effect.config_hash
                )
                await self._move_watch(draft, began, schedule)
            case JudgeDeadline(succeeded_at=at):
                await self._move_watch(draft, slawatch.RunSucceeded(at), schedule)
            case WaiveDeadline(reason=reason):
                await self._move_watch(draft, slawatch.DeadlineWaived(reason), schedule)
            case _:
                return  # about the run's own row, or an act

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
        return Event(
            id=self._new_id(),
            type=tell.type,
            at=draft.now,
            pipeline=draft.key.pipeline,
            schedule=draft.key.schedule,
            period=str(draft.key.period),
            message=tell.message,
            detail=detail,
        )

    def _line(self, draft: _Draft, log: LogJob) -> Write:
        # Lines of one commit have the same time: they keep their order by their ids.
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

    async def _rerun(self, draft: _Draft, record: RecordRerun) -> Write:
        rerun = Rerun(
            id=self._new_id(),
            reason=record.reason,
            at=draft.now,
            attempt=draft.after.attempt if draft.after else 0,
            source_event=record.source,
        )
        return await self._reruns.next_write(draft.key, rerun)

    async def _request(self, draft: _Draft, effect: PutRerunRequest) -> list[Write]:
        """Ask for the rerun, unless a person's request still waits: that one will find the newest data too."""
        seen = await self._requests.rerun_of(draft.key)
        run = draft.about
        if seen and run and is_unanswered(run, seen.identity, seen.reason, parse_rfc3339(seen.requested_at)):
            return []
        asked = RerunRequest(reason=effect.reason, requested_at=format_rfc3339(effect.requested_at), id=effect.id)
        return [rerun_write(draft.key, asked, seen)]

    async def _keep_baseline(self, draft: _Draft, keep: KeepBaseline) -> None:
        mark_sk = keys.baseline_mark_sk(draft.key)
        seen = await self._marks.get(draft.key.pipeline, mark_sk)
        kept: Mapping[str, Json] = {} if seen is None or keep.is_new else seen.data
        data = {**kept, **keep.data}
        draft.writes.append(move_write(draft.key.pipeline, mark_sk, seen, data, draft.now))

    async def _move_watch(self, draft: _Draft, fact: slawatch.WatchFact, schedule: Schedule) -> None:
        before = await self._watches.load(draft.key)
        effects = slawatch.decide(before, schedule.sla or _NO_SLA, fact, draft.now)
        after = slawatch.evolve(before, draft.key, effects, draft.now, self._session)
        if after is None or after == before:
            return
        draft.writes.append(sla_watches.save_write(after))
        draft.watch = sla_watches.saved(after)
        for tell in _tells(effects):
            await self._tell(draft, tell)

    # --- the commit ---------------------------------------------------------------------------------------------------

    async def _write_extras(self, draft: _Draft) -> None:
        if any(isinstance(write, Put) for write in draft.writes):
            await self._tables.commit(*draft.writes)


def _tells(effects: Iterable[WatchEffect]) -> list[EmitEvent]:
    return [effect for effect in effects if isinstance(effect, EmitEvent)]


def _next_version(before: Run | None, after: Run | None) -> int:
    if after is None:
        return 0
    return after.version if after == before else after.version + 1
