"""Decisions: load, decide and commit one fact about a run, or find that it changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias, TypeGuard

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import RetryLater
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.context import limits
from worker.core.run.decision import Decision
from worker.core.run.effects import (
    Act,
    Create,
    End,
    PollNow,
    Reopen,
)
from worker.core.run.endings import final_summary
from worker.core.run.facts import (
    Fact,
    JobFound,
    JobReport,
    JobReported,
    JobStarted,
    JobSucceeded,
    NewRun,
    RerunRequested,
    RulesHeld,
    RunTriggered,
    SignalOverdue,
    TriggerRequested,
)
from worker.core.run.foreign import as_run, respect
from worker.core.run.machine import decide, evolve
from worker.core.run.recovery import pending_actions
from worker.core.run.reruns import OpenRequest, spent_by, yield_to_person
from worker.core.run.state import Deletion, ForeignRun, Outcome, Pause, Run, Spent, State
from worker.core.sla.state import SlaWatch
from worker.core.sla.watch import MovedWatch, move_with_run
from worker.core.time.timestamps import parse_rfc3339
from worker.engine.commits import Commits
from worker.engine.evaluations import SensorReader
from worker.engine.related_rows import RelatedRowsReader
from worker.engine.root_causes import BlockedRunReader
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId
from worker.store.repos.deletions import Deletions, is_about_deletion
from worker.store.repos.job_log import JobLog
from worker.store.repos.pauses import Pauses, is_about_pause
from worker.store.repos.requests import RerunRequest
from worker.store.repos.reruns import Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import StaleWrite, Tables


class ForeignRuns:
    def __init__(self, tables: Tables) -> None:
        self._log, self._reruns = JobLog(tables), Reruns(tables)

    async def stand_in(self, foreign: ForeignRun, birth: NewRun, pipeline: Pipeline, now: datetime) -> Run:
        """Return the run that an ended foreign row stands for; a retry of it has its full run timeout."""
        ended_at, spent = await self.succeeded_at(foreign.key), await self._spent(foreign.key)
        run = as_run(foreign, birth, now, ended_at=ended_at, spent=spent)
        return replace(run, timeout_at=now + limits(pipeline).run_timeout)

    async def succeeded_at(self, key: RunKey) -> datetime | None:
        """Return when the run last succeeded; None if its job log does not say."""
        successes = [record.at async for record in self._log.list(key) if record.event == "success"]
        return successes[-1] if successes else None

    async def _spent(self, key: RunKey) -> Spent:
        return spent_by(record.reason for record in await self._reruns.list(key))


TRIES_MAX: Final = 6  # a few seconds in all, which limits how long later facts of the run wait
# Facts that may create a run.
BEARING: Final = (RunTriggered, RerunRequested, TriggerRequested, SignalOverdue)
BACKOFF_S: Final = 0.2  # after a lost reply, doubled each time; a refused write is retried at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Holds the result of a fact. `run` is None if the run did not exist and was not created.

    `before` is the run that was decided on.
    """

    run: Run | None
    before: Run | None
    decision: Decision
    pipeline: Pipeline
    schedule: Schedule
    acts: Sequence[Act] = ()
    watch: SlaWatch | None = None


@dataclass(frozen=True, slots=True)
class DecidedDryRun:
    """States that the pipeline is in dry run, so the fact is about its dry run."""

    version: Version
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Outdated:
    """States that a sensor was judged by a version that is not in force."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotOurs:
    """States that there is no such pipeline or schedule."""

    reason: str


# Evaluates a run that is about to be created; None if its rules do not hold, or were not evaluated.
EvaluateFirst: TypeAlias = Callable[[Run, Pipeline, Schedule], Awaitable[RulesHeld | None]]
Answer: TypeAlias = Decided | DecidedDryRun | Outdated | NotOurs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Holds a fact with everything that its decision depends on, at one instant.

    With `over`, the row belongs to another system, and `run` is only a stand-in for it.
    """

    key: RunKey
    fact: Fact
    version: Version
    schedule: Schedule
    now: datetime
    run: Run | None
    over: ForeignRun | None
    deletion: Deletion | None = None
    may_be_paused: bool = True  # False: the commit of a decision that begins work finds out

    def decide(self, pause: Pause | None = None) -> Decision:
        return decide(
            self.run, self.version.pipeline, self.schedule, self.fact, self.now, pause=pause, deletion=self.deletion
        )


class Decisions:
    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        commits: Commits,
        *,
        session: SessionId,
        clock: Clock,
        new_id: NewId,
        blocked: BlockedRunReader,
        evaluate_first: EvaluateFirst,
    ) -> None:
        self._blocked, self._evaluate_first = blocked, evaluate_first
        self._runs, self._pauses, self._foreign = Runs(tables), Pauses(tables), ForeignRuns(tables)
        self._watches, self._configs, self._commits = SlaWatches(tables), configs, commits
        self._deletions = Deletions(tables)
        self._sensing, self._related = SensorReader(tables, clock), RelatedRowsReader(tables)
        self._session, self._clock, self._new_id = session, clock, new_id
        # Runs for which a commit may have been applied without this worker's knowledge. The set outlives one fact: an
        # abandoned commit may have stored an intent that only this session may act on.
        self._in_doubt: set[RunKey] = set()

    async def settle(
        self,
        key: RunKey,
        fact: Fact,
        held: Run | None = None,
        current: Version | None = None,
        *,
        may_be_new: bool = False,
    ) -> Answer:
        """Decide and commit one fact. `held` is the run as last committed here; only the first try uses it.

        `current` is the version in force if the caller has just read it, for the first try too. If the run may be new,
        its configuration is read together with its row. Raises `RetryLater` if other writers were first, or the store
        did not answer, in every try.
        """
        # Hardly any run that a sensor asks for was deleted, or belongs to a paused pipeline: the commit finds out, and
        # only then the row is read.
        may_be_deleted = may_be_paused = not isinstance(fact, RunTriggered)
        for tried in range(TRIES_MAX):
            try:
                known = None if key in self._in_doubt else held
                answer = await self._try(
                    key,
                    fact,
                    known,
                    current if tried == 0 else None,
                    may_be_new=may_be_new,
                    may_be_deleted=may_be_deleted,
                    may_be_paused=may_be_paused,
                )
                if isinstance(answer, Decided) and answer.decision.is_provisional:
                    held = answer.run
                    continue
            except StaleWrite as refused:
                held = None
                if isinstance(fact, RulesHeld):
                    fact = replace(fact, readiness_version=None)  # another writer may have replaced that row
                may_be_deleted = may_be_deleted or is_about_deletion(refused.write)
                may_be_paused = may_be_paused or is_about_pause(refused.write)
            except asyncio.CancelledError:
                self._in_doubt.add(key)  # the commit may still be applied
                raise
            except RetryLater:
                self._in_doubt.add(key)
                await self._clock.sleep(BACKOFF_S * 2**tried)
            else:
                self._in_doubt.discard(key)
                return answer
        raise RetryLater(f"{type(fact).__name__} of {key} was not settled in {TRIES_MAX} tries; try again later")

    async def _try(
        self,
        key: RunKey,
        fact: Fact,
        held: Run | None,
        current: Version | None,
        *,
        may_be_new: bool,
        may_be_deleted: bool,
        may_be_paused: bool,
    ) -> Answer:
        if held is None and current is None and may_be_new:
            loaded, current = await self._loaded_with_version(key)
        else:
            loaded = held or await self._runs.load(key)
        version = await self._version_for(key, loaded, current)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if version is None or schedule is None:
            return NotOurs(f"{key}: there is no such {'schedule' if version else 'pipeline'} in force")
        if _is_outdated(fact, version) and not _is_active(loaded):
            return Outdated(f"{key}: its sensor was judged by a version that is not in force; it is judged again")
        if version.pipeline.dry_run and not _is_active(loaded) and not _is_success_report(fact):
            return DecidedDryRun(version, schedule)
        if isinstance(fact, BEARING) and fact.birth.config_hash != version.config_hash:
            # The caller read the configuration some time ago: a run begins under the version that is in force now.
            fact = replace(fact, birth=replace(fact.birth, config_hash=version.config_hash))
        is_foreign = isinstance(loaded, ForeignRun)
        asked = _Question(
            key=key,
            fact=fact,
            version=version,
            schedule=schedule,
            now=self._clock.now(),
            run=None if is_foreign else loaded,
            over=loaded if is_foreign else None,
            deletion=await self._deletions.load(key) if loaded is None and may_be_deleted else None,
            may_be_paused=may_be_paused,
        )
        asked, decision = await self._decide(await self._with_inputs(asked))
        return await self._record(asked, await self._with_start(asked, decision))

    async def _with_inputs(self, asked: _Question) -> _Question:
        """Give a success the current sensors, read after the run row; each try reads them again."""
        if asked.run is None or asked.run.is_ended or not _is_success(asked.fact):
            return asked
        summary = final_summary(asked.run, asked.fact.outputs)
        inputs = await self._sensing.inputs(asked.run, asked.version.pipeline, asked.schedule, asked.now, summary)
        return replace(asked, fact=replace(asked.fact, inputs=inputs))

    async def _loaded_with_version(self, key: RunKey) -> tuple[Run | ForeignRun | None, Version | None]:
        """Return the run, and the version in force unless the run goes on under its own."""
        loaded, stored = await self._runs.load_with_config(key)
        if stored is None or _is_active(loaded):
            return loaded, None
        return loaded, await self._configs.in_force_of(stored)

    async def _version_for(
        self, key: RunKey, loaded: Run | ForeignRun | None, current: Version | None
    ) -> Version | None:
        if isinstance(loaded, Run) and not loaded.is_ended:
            return await self._configs.get(key.pipeline, loaded.config_hash)
        return current or await self._configs.current(key.pipeline)

    async def _decide(self, asked: _Question) -> tuple[_Question, Decision]:
        if asked.over is not None:
            birth = NewRun(self._new_id(), asked.version.config_hash)
            respected = respect(asked.over, birth, asked.now)
            if respected is not None:
                return asked, respected
            asked = replace(
                asked, run=await self._foreign.stand_in(asked.over, birth, asked.version.pipeline, asked.now)
            )
        decision = asked.decide()
        # The pause is loaded only now: a decision that begins nothing, such as a poll, does not depend on it.
        if decision.is_held_by_pause(asked.fact) and (asked.may_be_paused or not decision.begins_work):
            pause = await self._pauses.load(asked.key.pipeline)
            decision = decision if pause is None else asked.decide(pause)
        if isinstance(decision.main, End) and decision.main.outcome is not Outcome.SUCCEEDED:
            decision = await self._blocked.named_in(asked.key, decision)
        return asked, decision

    async def _with_start(self, asked: _Question, decision: Decision) -> Decision:
        """Add the start of the job to the creation of a run whose rules hold already.

        A run with a deadline is created first: its watch must exist before a decision can judge it.
        """
        is_new = asked.run is None and isinstance(asked.fact, RunTriggered) and isinstance(decision.main, Create)
        run = evolve(None, decision, asked.now, self._session) if is_new else None
        if run is None or run.is_ended or decision.deadline is not None:
            return decision
        held = await self._evaluate_first(run, asked.version.pipeline, asked.schedule)
        if held is None:
            return decision
        passed = decide(run, asked.version.pipeline, asked.schedule, held, asked.now)
        return decision.followed_by(passed) if passed.starts_job and passed.deadline is None else decision

    async def _record(self, asked: _Question, decision: Decision) -> Decided:
        after = evolve(asked.run, decision, asked.now, self._session)
        if any(isinstance(effect, Create | Reopen) for effect in decision.effects):
            await self._configs.persist(asked.version, self._clock.now())
        related = await self._related.read(asked.key, decision)
        run, watch = await self._commits.of_run(
            asked.run,
            after,
            yield_to_person(decision, asked.run, _open(related.request)),
            related,
            watch=self._moved_watch(asked, decision, related.watch),
            over=asked.over,
            deletion=asked.deletion,
            key=asked.key,
            now=asked.now,
        )
        if watch is None and asked.key in self._in_doubt:
            # As with actions: an earlier try may have armed the watch, and then only the row shows it.
            watch = await self._watches.load(asked.key)
        return Decided(
            run=run,
            before=asked.run,
            decision=decision,
            pipeline=asked.version.pipeline,
            schedule=asked.schedule,
            acts=self._acts(run, asked.fact, decision),
            watch=watch,
        )

    def _moved_watch(self, asked: _Question, decision: Decision, watch: SlaWatch | None) -> MovedWatch | None:
        if decision.deadline is None:
            return None
        return move_with_run(
            watch, decision.deadline, key=asked.key, sla=asked.schedule.sla, now=asked.now, by=self._session
        )

    def _acts(self, run: Run | None, fact: Fact, decision: Decision) -> list[Act]:
        acts = [*decision.actions]
        if run is not None and run.key in self._in_doubt:
            # An earlier try may have been applied; then only the row shows its actions.
            acts += [act for act in pending_actions(run, self._session) if act not in acts]
        if run is not None and run.job is not None and _is_begun(run, fact):
            acts.append(PollNow(run.job))
        return acts


def _open(request: RerunRequest | None) -> OpenRequest | None:
    if request is None:
        return None
    return OpenRequest(request.identity, request.reason, parse_rfc3339(request.requested_at))


def _is_active(loaded: Run | ForeignRun | None) -> bool:
    return isinstance(loaded, Run) and not loaded.is_ended


def _is_outdated(fact: Fact, in_force: Version) -> bool:
    """Return whether a fact rests on a trigger that may not hold in the version in force."""
    match fact:
        case RunTriggered(signal=signal) if signal is not None:
            return fact.birth.config_hash != in_force.config_hash
        case SignalOverdue() if fact.sensor_key:
            return fact.birth.config_hash != in_force.config_hash
        case _:
            return False


def _is_success(fact: Fact) -> TypeGuard[JobSucceeded | JobReported]:
    return isinstance(fact, JobSucceeded) or _is_success_report(fact)


def _is_success_report(fact: Fact) -> bool:
    """Return whether another system reports a success, which is passed on even in dry run."""
    return isinstance(fact, JobReported) and fact.report is JobReport.SUCCESS


def _is_begun(run: Run, fact: Fact) -> bool:
    """Return whether a job was just started; it is polled at once because it may have ended already.

    A job of a synchronous target has always ended by then.
    """
    return run.state is State.POLLING and isinstance(fact, JobStarted | JobFound)
