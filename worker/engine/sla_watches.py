"""SLA watches: warns of deadlines, and judges them when they are due by what the run did."""

from collections.abc import Collection
from dataclasses import replace

from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected, RetryLater
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RowKind, RunKey, SessionId, place_of
from worker.core.model.pipeline import Schedule, Sla
from worker.core.run.state import ForeignRun, Run, State, Status
from worker.core.sla import watch as slawatch
from worker.core.sla.effects import WatchEffect
from worker.core.sla.state import SlaWatch
from worker.core.sla.watch import DeadlineMoved, TimerReached, WatchFact, next_due
from worker.engine.commits import Commits
from worker.engine.decisions import ForeignRuns
from worker.engine.missing_rules import MissingRules
from worker.engine.root_causes import BlockedRunReader, RootCauses, with_blocked, with_cause
from worker.engine.session_authority import SessionAuthority
from worker.engine.timer_keys import ADOPTED_WITHIN, TimerKey
from worker.runtime.clock import Clock
from worker.runtime.timers import Timers
from worker.store.repos.runs import Runs, run_key, still_at
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Absent, Check, Equals, StaleWrite, TableName, Tables, Write

TRIES_MAX = 8
_NO_SLA = Sla()
_CAUSED = frozenset(
    {
        EventType.SLA_WARNING,
        EventType.SLA_BREACH,
        EventType.RELATIVE_SLA_WARNING,
        EventType.RELATIVE_SLA_BREACH,
        EventType.EVALUATION_SLA_BREACH,
    }
)


class SlaMonitor:
    """Decides on facts about SLA watches, and sets timers for those it committed or adopted."""

    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        commits: Commits,
        *,
        session: SessionId,
        clock: Clock,
        timers: Timers[TimerKey],
        standing: SessionAuthority,
        causes: RootCauses,
        blocked: BlockedRunReader,
        missing: MissingRules,
    ) -> None:
        self._causes, self._blocked, self._missing = causes, blocked, missing
        self._runs, self._watches, self._foreign = Runs(tables), SlaWatches(tables), ForeignRuns(tables)
        self._configs, self._commits, self._session = configs, commits, session
        self._clock, self._timers, self._standing = clock, timers, standing

    def arm(self, watch: SlaWatch) -> None:
        """Set the timer for the watch's next warning or verdict; cancel it for a closed watch."""
        due = next_due(watch, self._clock.now())
        wake = TimerKey(RowKind.SLA, watch.key)
        if due is None:
            self._timers.cancel(wake)
        else:
            self._timers.set(wake, due)

    async def adopt(self, keys: Collection[RunKey]) -> None:
        """Set the timers of watches whose owner is gone. Raises `BadRow`."""
        for watch in await self._watches.load_many(keys):
            due = next_due(watch, self._clock.now())
            if due is not None:
                at = max(due, self._clock.now() + place_of(watch.key) * ADOPTED_WITHIN)
                self._timers.set(TimerKey(RowKind.SLA, watch.key), at)

    async def handle(self, key: RunKey, fact: WatchFact | None) -> None:
        """Decide and commit one fact about an SLA watch; None means the timer fired.

        Raises `StaleWrite` after 8 lost races.
        """
        for _ in range(TRIES_MAX - 1):
            try:
                return await self._decide_and_commit(key, fact)
            except StaleWrite:
                continue
        return await self._decide_and_commit(key, fact)

    async def _decide_and_commit(self, key: RunKey, fact: WatchFact | None) -> None:
        watch, run = await self._watches.load(key), await self._runs.load(key)
        version = await self._configs.find(key.pipeline, watch.config_hash) if watch else None
        settled = fact or await self._instant(watch, run)
        if isinstance(settled, TimerReached) and watch is not None and self._must_evaluate(watch):
            settled = replace(settled, missing=await self._missing.of(key, run, version))
        now = self._clock.now()
        if fact is None and not self._standing.may_judge_time():
            raise RetryLater(f"{key}: the wall clock is known to be wrong, so no deadline is judged by it")
        schedule = version.pipeline.schedule(key.schedule) if version else None
        effects = slawatch.decide(watch, (schedule and schedule.sla) or _NO_SLA, settled, now)
        effects = await self._with_neighbours(key, schedule, run, effects)
        after = slawatch.evolve(watch, key, effects, now, self._session)
        version = run.version if isinstance(run, Run) else 0
        saved = await self._commits.of_watch(
            watch, after, effects, _unchanged(key, run), run_version=version, key=key, now=now
        )
        if saved is not None:
            self.arm(saved)

    async def _instant(self, watch: SlaWatch | None, run: Run | ForeignRun | None) -> TimerReached | DeadlineMoved:
        match run:
            case None if watch is not None and not await self._is_expected(watch.key):
                return DeadlineMoved(times=None, config_hash=watch.config_hash, run_exists=False)
            case None:
                return TimerReached(None)
            case Run(state=State.COMPLETED):
                return TimerReached(run.status, run.since)
            case Run():
                return TimerReached(run.status)
            case ForeignRun(status=Status.COMPLETED):
                # Another system does not always record the time; then nothing shows that the run was late.
                succeeded_at = await self._foreign.succeeded_at(run.key)
                return TimerReached(Status.COMPLETED, succeeded_at or (watch.since if watch else None))
            case ForeignRun(status=Status.RUNNING):
                return TimerReached(Status.RUNNING)
            case ForeignRun():
                return TimerReached(Status.FAILED_FINAL)

    async def _is_expected(self, key: RunKey) -> bool:
        """Return whether the run may still be created; False if its pipeline or schedule was removed.

        This is checked at the deadline, not at the removal: a pipeline that was deployed again meanwhile is expected to
        run.
        """
        try:
            version = await self._configs.current(key.pipeline)
        except Rejected:
            return True  # an unreadable configuration is no reason to stay silent
        pipeline = version.pipeline if version else None
        return pipeline is not None and not pipeline.dry_run and pipeline.schedule(key.schedule) is not None

    def _must_evaluate(self, watch: SlaWatch) -> bool:
        """Return whether the rules must hold now: only an evaluation after the deadline may declare a breach."""
        return watch.is_evaluation_open and watch.times.is_evaluation_due(self._clock.now())

    async def _with_neighbours(
        self, key: RunKey, schedule: Schedule | None, run: Run | ForeignRun | None, effects: list[WatchEffect]
    ) -> list[WatchEffect]:
        """Name the root cause in a warning or breach, or else the runs that wait below it."""
        if not any(isinstance(effect, EmitEvent) and effect.type in _CAUSED for effect in effects):
            return effects
        waits = schedule is not None and schedule.after and not (isinstance(run, Run) and run.started_after)
        if waits and (cause := await self._causes.of(key)) is not None:
            return [with_cause(each, cause) if isinstance(each, EmitEvent) else each for each in effects]
        if run is not None and run.status == Status.COMPLETED:
            return effects
        blocked = await self._blocked.of(key, is_ended=run is not None and run.status == Status.FAILED_FINAL)
        return [with_blocked(each, blocked) if isinstance(each, EmitEvent) else each for each in effects]


def _unchanged(key: RunKey, run: Run | ForeignRun | None) -> Write:
    """Return the condition that the run is still as it was read; the verdict depends on it."""
    match run:
        case None:
            return Check(TableName.CONTROL, run_key(key), Absent())
        case Run():
            return still_at(run)
        case ForeignRun(status=status):
            return Check(TableName.CONTROL, run_key(key), Equals("status", status))
