"""Submits requests about runs: forecasts the result, then writes a row for a worker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import RetryLater
from worker.core.model.effects import Ignore
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.decision import Decision
from worker.core.run.facts import CancelRequested, NewRun, Origin, RerunRequested, RunTriggered, TriggerRequested
from worker.core.run.forecast import Forecast, Prospect, forecast, forecast_dry_run
from worker.core.run.foreign import respect
from worker.core.run.reruns import REPLAY
from worker.core.run.state import DryRun, ForeignRun, Run
from worker.core.time.timestamps import format_rfc3339
from worker.engine.decisions import ForeignRuns
from worker.engine.intake.rerun_freshness import RerunFreshness
from worker.operations.explain.load import schedule_of
from worker.operations.explain.snapshot import AnyRun
from worker.operations.explain.start_gates import refused
from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.store.repos.deletions import Deletions
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.events import event_write
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import (
    CancelRequest,
    CascadeRequest,
    Requests,
    RerunRequest,
    TriggerRequest,
    rerun_write,
)
from worker.store.repos.runs import Runs
from worker.store.table import WRITES_MAX, Put, StaleWrite, Tables, Write

_ANSWERED_WELL = frozenset({Prospect.ACCEPTED, Prospect.WAITS})
REQUESTS_AT_ONCE: Final = WRITES_MAX // 2  # each with the event of its action
TRIES_MAX: Final = 3  # if other requests of the same runs are written at the same moment
_NOT_MADE = NewRun(run_id="", config_hash="")  # a forecast creates no row


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """Holds the result of a submitted request.

    `replaced` is an earlier request that was still unanswered. `is_first`: no run of that period has existed.
    """

    key: RunKey
    forecast: Forecast
    is_written: bool
    is_first: bool = False
    replaced: RerunRequest | CancelRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunSpec:
    """Describes a rerun as a person requests it."""

    reason: str
    supersede: bool = False
    note: str = ""
    is_followed: bool = False  # all downstreams follow, outside the budgets
    is_only_once: bool = False  # not if the same request of another command is still unanswered

    @property
    def action(self) -> str:
        """Return what people call it: a replay is a rerun outside the budgets."""
        return "replay" if self.reason == REPLAY else "rerun"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Holds a rerun request as it is about to be committed; without writes there is nothing to commit."""

    outcome: RequestOutcome
    writes: list[Write]


@dataclass(frozen=True, slots=True)
class TriggerSpec:
    """Describes a run that a person starts, and who that is."""

    reason: str
    by: str


class InterruptedReplay(RetryLater):
    """InterruptedReplay: only the first `done` periods were certainly requested."""

    def __init__(self, done: int, keys: Sequence[RunKey], problem: str) -> None:
        at = keys[done].period
        super().__init__(
            f"the first {done} of {len(keys)} periods were requested, those from {at} on are not confirmed: {problem}; "
            f"continue from {at}: earlier periods would run once more"
        )
        self.done = done


class RunRequests:
    """Submits requests. With `is_rehearsed` it returns the forecast and writes nothing.

    With `by`, each request names its author, and its commit holds the event of the action.

    Its methods raise `StaleWrite` if another request was written at the same moment, and `RetryLater`.
    """

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        *,
        is_rehearsed: bool = False,
        by: Requester | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._tables, self._clock, self._is_rehearsed, self._new_id = tables, clock, is_rehearsed, new_id
        self._by = by
        self._configs, self._runs, self._requests = PipelineVersions(tables), Runs(tables), Requests(tables)

    async def trigger(self, key: RunKey, version: Version, wish: TriggerSpec) -> RequestOutcome:
        """Request a run that does not exist. If it would be rejected, nothing is written.

        No alert is sent in that case.
        """
        now, run = self._clock.now(), await self._runs.load(key)
        waiting = await self._requests.trigger_of(key)
        forecast = await self._foresee_trigger(key, version, run, wish, waiting)
        is_written = forecast.prospect in _ANSWERED_WELL and not self._is_rehearsed
        if is_written:
            request = TriggerRequest(
                reason=wish.reason, requested_at=format_rfc3339(now), id=self._new_id(), by=wish.by
            )
            await self._requests.ask_trigger(key, request, now)
        return RequestOutcome(key=key, forecast=forecast, is_written=is_written, is_first=run is None)

    async def cascade(self, key: RunKey, version: Version, reason: str) -> RequestOutcome:
        """State that an upstream outside Interlock completed. If the run exists, nothing is written."""
        now, run = self._clock.now(), await self._runs.load(key)
        forecast = await self._foresee_cascade(key, version, run, now)
        is_written = forecast.prospect in _ANSWERED_WELL and not self._is_rehearsed
        if is_written:
            request = CascadeRequest(
                reason=reason,
                requested_at=format_rfc3339(now),
                id=self._new_id(),
                by=self._by.name if self._by else "",
            )
            action = OperatorAction.on_run("cascade", key, reason, forecast.sentence)
            await self._requests.ask_cascade(key, request, now, *self._recorded(action, now))
        return RequestOutcome(key=key, forecast=forecast, is_written=is_written, is_first=run is None)

    async def rerun(
        self, key: RunKey, version: Version, wish: RerunSpec, *along: Write, request_id: str = ""
    ) -> RequestOutcome:
        """Request a rerun. If it would be rejected, nothing is written and the forecast gives the reason.

        No alert is sent in that case. The writes in `along` are part of the request's commit.
        """
        prepared = await self._prepare_rerun(key, version, wish, request_id)
        if prepared.writes:
            await self._tables.commit(*prepared.writes, *along)
        return prepared.outcome

    async def replay(self, keys: Sequence[RunKey], version: Version, wish: RerunSpec) -> list[RequestOutcome]:
        """Request reruns of many runs, all of a day in one commit.

        So a run that needs the hours of a day finds all requests or none, and runs again once. If a commit fails, the
        earlier ones stay: raises `InterruptedReplay`.
        """
        outcomes: list[RequestOutcome] = []
        for some in by_days(keys, REQUESTS_AT_ONCE):
            try:
                outcomes += await self._replay(some, version, wish)
            except (RetryLater, StaleWrite) as error:
                if not any(each.is_written for each in outcomes):
                    raise
                raise InterruptedReplay(len(outcomes), keys, str(error)) from error
        return outcomes

    async def _replay(self, keys: Sequence[RunKey], version: Version, wish: RerunSpec) -> list[RequestOutcome]:
        for _ in range(TRIES_MAX - 1):
            with suppress(StaleWrite):
                return await self._replay_at_once(keys, version, wish)
        return await self._replay_at_once(keys, version, wish)

    async def _replay_at_once(self, keys: Sequence[RunKey], version: Version, wish: RerunSpec) -> list[RequestOutcome]:
        prepared = [await self._prepare_rerun(key, version, wish) for key in keys]
        if writes := [write for each in prepared for write in each.writes]:
            await self._tables.commit(*writes)
        return [each.outcome for each in prepared]

    async def _prepare_rerun(self, key: RunKey, version: Version, wish: RerunSpec, request_id: str = "") -> "_Prepared":
        now, run = self._clock.now(), await self._runs.load(key)
        seen = await self._requests.rerun_of(key)
        replaced = _unanswered(seen, run)
        forecast = await self._foresee_rerun(key, version, run, wish, now)
        if wish.is_only_once and replaced is not None and replaced.id != request_id and replaced.reason == wish.reason:
            sentence = f"the same rerun was requested at {replaced.requested_at}, and no worker has handled it yet"
            forecast = Forecast(Prospect.NOTHING, sentence)
        request = RerunRequest(
            reason=wish.reason,
            requested_at=format_rfc3339(now),
            id=request_id or self._new_id(),
            supersede=wish.supersede,
            note=wish.note,
            by=self._by.name if self._by else "",
            via=self._by.via if self._by else "",
            is_followed=wish.is_followed,
        )
        writes: list[Write] = []
        if forecast.prospect in _ANSWERED_WELL and not self._is_rehearsed:
            action = OperatorAction.on_run(wish.action, key, wish.note or wish.reason, forecast.sentence)
            writes = [rerun_write(key, request, seen), *self._recorded(action, now)]
        outcome = RequestOutcome(
            key=key, forecast=forecast, is_written=bool(writes), is_first=run is None, replaced=replaced
        )
        return _Prepared(outcome, writes)

    async def cancel(
        self, key: RunKey, version: Version, reason: str, *along: Write, waive_sla: bool, request_id: str = ""
    ) -> RequestOutcome:
        """Request a cancellation. If nothing can be cancelled, nothing is written.

        The request must not wait for a future run. The writes in `along` are part of the request's commit.
        """
        now, run = self._clock.now(), await self._runs.load(key)
        seen = await self._requests.cancel_of(key)
        forecast = await self._foresee_cancel(version, key, run, reason, waive_sla=waive_sla)
        is_written = forecast.prospect is Prospect.ACCEPTED and not self._is_rehearsed
        if is_written:
            request = CancelRequest(
                reason=reason,
                requested_at=format_rfc3339(now),
                id=request_id or self._new_id(),
                waive_sla=waive_sla,
                by=self._by.name if self._by else "",
                via=self._by.via if self._by else "",
            )
            action = OperatorAction.on_run("cancel", key, reason, forecast.sentence)
            await self._requests.ask_cancel(key, request, seen, *self._recorded(action, now), *along)
        replaced = _unanswered(seen, run)
        return RequestOutcome(
            key=key, forecast=forecast, is_written=is_written, is_first=run is None, replaced=replaced
        )

    def _recorded(self, action: OperatorAction, now: datetime) -> list[Put]:
        """Return the write of the action's event; none if the requester is not known."""
        if self._by is None:
            return []
        return [event_write(action_event(self._by, action, event_id=self._new_id(), at=now))]

    # --- forecasts ----------------------------------------------------------------------------------------------------

    async def _foresee_trigger(
        self,
        key: RunKey,
        version: Version,
        run: Run | ForeignRun | None,
        wish: TriggerSpec,
        waiting: TriggerRequest | None,
    ) -> Forecast:
        now, version = self._clock.now(), await self._judged_by(version, run)
        pipeline, schedule = version.pipeline, schedule_of(version.pipeline, key.schedule)
        if refusal := refused(key.period, schedule, now, exists=run is not None):
            return Forecast(Prospect.REFUSED, refusal.reason, refusal.hint)
        fact = TriggerRequested(key=key, birth=_NOT_MADE, identity=self._new_id(), reason=wish.reason, by=wish.by)
        if pipeline.dry_run and not _is_active(run):
            return forecast_dry_run(await self._rehearsal(key), pipeline, schedule, fact, now)
        if isinstance(run, ForeignRun):
            if taken := _respected(run, now):
                return taken
            run = await ForeignRuns(self._tables).stand_in(run, _NOT_MADE, pipeline, now)
        if run is None and waiting is not None:
            said = f'{waiting.by} requested it at {waiting.requested_at} ("{waiting.reason}")'
            return Forecast(Prospect.NOTHING, f"{said}; that request waits for a worker or for the end of a pause")
        return forecast(run, pipeline, schedule, fact, now, pause=await Pauses(self._tables).load(key.pipeline))

    async def _foresee_cascade(
        self, key: RunKey, version: Version, run: Run | ForeignRun | None, now: datetime
    ) -> Forecast:
        pipeline, schedule = version.pipeline, schedule_of(version.pipeline, key.schedule)
        if refusal := refused(key.period, schedule, now, exists=run is not None):
            return Forecast(Prospect.REFUSED, refusal.reason, refusal.hint)
        if run is not None:
            return Forecast(Prospect.NOTHING, f"there is a run of {key.period} already")
        fact = RunTriggered(key=key, birth=_NOT_MADE, origin=Origin.CASCADE)
        if pipeline.dry_run:
            return forecast_dry_run(await self._rehearsal(key), pipeline, schedule, fact, now)
        pause, deletion = await Pauses(self._tables).load(key.pipeline), await Deletions(self._tables).load(key)
        return forecast(None, pipeline, schedule, fact, now, pause=pause, deletion=deletion)

    async def _is_fresh(
        self, key: RunKey, run: Run | ForeignRun | None, pipeline: Pipeline, schedule: Schedule
    ) -> bool:
        return await RerunFreshness(self._tables, self._clock).of(key, run, pipeline, schedule)

    async def _foresee_rerun(
        self, key: RunKey, version: Version, run: Run | ForeignRun | None, wish: RerunSpec, now: datetime
    ) -> Forecast:
        version = await self._judged_by(version, run)
        pipeline, schedule = version.pipeline, schedule_of(version.pipeline, key.schedule)
        if refusal := refused(key.period, schedule, now, exists=run is not None):
            return Forecast(Prospect.REFUSED, f"{refusal.reason}; {refusal.hint}")
        fact = RerunRequested(
            key=key,
            birth=_NOT_MADE,
            identity=self._new_id(),
            reason=wish.reason,
            is_fresh=wish.reason == REPLAY or await self._is_fresh(key, run, pipeline, schedule),
            supersede=wish.supersede,
        )
        if pipeline.dry_run and not _is_active(run):
            return forecast_dry_run(await self._rehearsal(key), pipeline, schedule, fact, now)
        if isinstance(run, ForeignRun):
            if taken := _respected(run, now):
                return taken
            run = await ForeignRuns(self._tables).stand_in(run, _NOT_MADE, pipeline, now)
        pause = await Pauses(self._tables).load(key.pipeline)
        return forecast(run, pipeline, schedule, fact, now, pause=pause)

    async def _foresee_cancel(
        self, version: Version, key: RunKey, run: Run | ForeignRun | None, reason: str, *, waive_sla: bool
    ) -> Forecast:
        now = self._clock.now()
        if isinstance(run, ForeignRun):
            return _respected(run, now) or Forecast(Prospect.NOTHING, "another system ended it; nothing to cancel")
        version = await self._judged_by(version, run)
        schedule = schedule_of(version.pipeline, key.schedule)
        fact = CancelRequested(reason=reason, waive_sla=waive_sla, identity=self._new_id())
        return forecast(run, version.pipeline, schedule, fact, now)

    async def _judged_by(self, in_force: Version, run: AnyRun | None) -> Version:
        """Return the version that applies: for an active run the one it began under, else the one in force."""
        if isinstance(run, Run) and not run.is_ended:
            return await self._configs.get(run.key.pipeline, run.config_hash)
        return in_force

    async def _rehearsal(self, key: RunKey) -> DryRun | None:
        return await DryRuns(self._tables).load(key)


def by_days(keys: Sequence[RunKey], at_most: int) -> Iterator[list[RunKey]]:
    """Yield the runs in groups; a group ends between two days, unless one day alone is larger."""
    group: list[RunKey] = []
    for _, day in groupby(keys, key=lambda each: each.period.date):
        runs = [*day]
        if group and len(group) + len(runs) > at_most:
            yield group
            group = []
        while len(runs) > at_most:
            yield runs[:at_most]
            runs = runs[at_most:]
        group += runs
    if group:
        yield group


def _is_active(run: AnyRun | None) -> bool:
    return isinstance(run, Run) and not run.is_ended


def _respected(foreign: ForeignRun, now: datetime) -> Forecast | None:
    match respect(foreign, _NOT_MADE, now):
        case None:
            return None
        case Decision(main=Ignore(reason=reason)):
            return Forecast(Prospect.NOTHING, reason)
        case _:
            return Forecast(Prospect.REFUSED, "another system's run timed out and is closed first; then ask again")


def _unanswered(
    seen: RerunRequest | CancelRequest | None, run: Run | ForeignRun | None
) -> RerunRequest | CancelRequest | None:
    handled = run.handled if isinstance(run, Run) else ()
    return None if seen is None or seen.identity in handled else seen
