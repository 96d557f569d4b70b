"""Carrying out what a decision ordered: each act calls a target and comes back with a fact.

Nothing a target does is an error here; what it could not be asked is a fact too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import Job, JobType, Pipeline
from worker.core.run.effects import FindJob, PollNow, StartJob, StopJob
from worker.core.run.facts import (
    Fact,
    JobFailed,
    JobFound,
    JobNotFound,
    JobNotSeen,
    JobRefused,
    JobRunning,
    JobStarted,
    JobStatusUnknown,
    JobStopped,
    JobSucceeded,
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
)
from worker.core.run.state import FailureCategory, Run, StartStep, State
from worker.core.time.durations import format_duration
from worker.engine.incidents import Outages
from worker.engine.session_authority import SessionAuthority
from worker.jobs import runner as port
from worker.jobs.runner import Guarantee, Runner, Traits
from worker.jobs.templates import context_of, filled_in
from worker.runtime.clock import Clock
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.targets.batch_status import NOT_WAITING, StatusCalls
from worker.targets.calls import Targets, target_of
from worker.targets.circuit_breaker import Breaker, TargetClosed
from worker.targets.priority_gate import Urgency

# How old the row may be by which a start is sent. A run that is stopped meanwhile waits far longer for its answer.
WAITED_MAX_S: Final = 5.0
SEND_GRACE: Final = timedelta(seconds=5)  # a runner keeps its own time-out; this is for one that does not
# How long a poll may wait for others to share a call with: a part of its interval, and never long.
GATHERING_PART: Final = 0.2
GATHERING_MAX: Final = timedelta(seconds=10)


class JobActions:
    def __init__(
        self,
        runners: Mapping[JobType, Runner],
        targets: Targets,
        statuses: StatusCalls,
        standing: SessionAuthority,
        *,
        outages: Outages,
        runs: Runs,
        pauses: Pauses,
        clock: Clock,
    ) -> None:
        self._runners, self._targets, self._statuses = runners, targets, statuses
        self._standing, self._outages = standing, outages
        self._runs, self._pauses, self._clock = runs, pauses, clock

    # --- the start ----------------------------------------------------------------------------------------------------

    async def start(self, run: Run, pipeline: Pipeline, act: StartJob) -> Fact:
        """Send the start once. The caller has proof that this session is the one to send it."""
        try:
            runner, job, config, traits = self._target(run, pipeline)
        except Rejected as problem:
            return JobRefused(run.attempt, act.sending, FailureCategory.PERMANENT, str(problem))
        request = port.StartRequest(
            config=config, token=act.token, context=context_of(run), may_send=self._standing.may_act
        )
        objection = partial(self._objection, run, act)
        match await self._send(runner, target_of(job), request, traits, objection):
            case port.Started(handle=handle):
                return JobStarted(run.attempt, handle, can_find(traits))
            case port.Refused(category=category, message=message, retry_after=retry_after, is_final=is_final):
                return JobRefused(
                    run.attempt,
                    act.sending,
                    category,
                    message,
                    retry_after=retry_after,
                    is_final=is_final,
                    can_find=can_find(traits),
                )
            case port.Unknown(message=message):
                return StartUnanswered(run.attempt, act.sending, message, can_find(traits))

    async def _send(
        self,
        runner: Runner,
        target: str,
        request: port.StartRequest,
        traits: Traits,
        objection: Callable[[], Awaitable[str | None]],
    ) -> port.StartAnswer:
        asked_at = self._clock.monotonic()
        try:
            async with self._targets.turn(target, Urgency.START) as breaker:
                waited_s = self._clock.monotonic() - asked_at
                if waited_s > WAITED_MAX_S and (why := await objection()):
                    return port.Refused(FailureCategory.TRANSIENT, why)
                answer = await _answered(runner, request, traits)
                _tell(breaker, answer, traits)
                return answer
        except TargetClosed as closed:
            return port.Refused(FailureCategory.TRANSIENT, str(closed), closed.again_after)
        except RetryLater as problem:
            # Too many wait already, or whether it is still wanted could not be found out.
            return port.Refused(FailureCategory.TRANSIENT, str(problem))

    async def _objection(self, run: Run, act: StartJob) -> str | None:
        """Why a start that waited long for its turn must not be sent any more; None if it is still wanted.

        A run that is given up does not wait for a start that did not get its turn, and what follows it must not meet
        that start. Raises `RetryLater`.
        """
        try:
            row = await self._runs.load(run.key)
        except Rejected as problem:
            return str(problem)
        wanted = (State.TRIGGERING, act.token, run.start_step, act.sending)
        if not isinstance(row, Run) or (row.state, row.token, row.start_step, row.start_failures) != wanted:
            return "the run went on while the start waited for its turn"
        pause = await self._pauses.load(run.key.pipeline)
        return f"paused: {pause.reason}" if pause and not pause.is_over(self._clock.now()) else None

    def starter_lost(self, run: Run, pipeline: Pipeline) -> Fact:
        """Who was to send the start is gone. A job that nobody here knows how to look for cannot be found."""
        try:
            traits = self._target(run, pipeline)[3]
        except Rejected:
            return StarterLost(run.attempt, run.start_failures, can_find=False)
        return StarterLost(run.attempt, run.start_failures, can_find(traits))

    def time_to_be_seen(self, run: Run, pipeline: Pipeline) -> timedelta:
        """How long after a start was in doubt its job must be in the target's lists, if it exists."""
        try:
            traits = self._target(run, pipeline)[3]
        except Rejected:
            return timedelta()
        return traits.send_timeout + traits.list_lag

    async def find_early(self, run: Run, pipeline: Pipeline, act: FindJob) -> Fact | None:
        """Look for a job that may not be visible yet; None if that told nothing.

        A target that recognises the token itself may be asked, and even sent to, at any time. But a start that is still
        on its way would be forgotten if this look were believed: the next one may have another token, or none follow.
        So it is only said that the job was not seen, and only where its starter was lost: any other start was answered
        badly, and its target is to be spared.
        """
        try:
            if self._target(run, pipeline)[3].guarantee is not Guarantee.EXACTLY_ONCE:
                return None
        except Rejected:
            return None
        fact = await self.find(run, pipeline, act)
        if not isinstance(fact, JobNotFound):
            return fact
        is_left_behind = run.state is State.TRIGGERING and run.start_step is StartStep.ABANDONED
        return JobNotSeen(run.attempt, act.sending) if is_left_behind else None

    async def find(self, run: Run, pipeline: Pipeline, act: FindJob) -> Fact | None:
        """Look for the job; None if that told nothing."""
        try:
            runner, job, config, traits = self._target(run, pipeline)
            if traits.is_found_by_sending:
                return await self._find_by_sending(run, pipeline, act)
            find = partial(runner.find, act.token, config)
            handle = await self._targets.call(target_of(job), Urgency.START, find)
        except (RetryLater, Rejected) as problem:
            await self._outages.doubt(run, str(problem))
            return None
        return JobNotFound(run.attempt, act.sending) if handle is None else JobFound(run.attempt, handle)

    async def _find_by_sending(self, run: Run, pipeline: Pipeline, act: FindJob) -> Fact | None:
        """Send the start once more, to a target that answers it with the job it has. Raises `RetryLater` without one.

        A refusal is no answer: it may be about us, such as credentials that were changed, and the job exists all the
        same.
        """
        if run.state is State.STOPPING:
            # What is to be stopped might only begin by this. Whether it exists stays unknown, and people are told so.
            return None
        pause = await self._pauses.load(run.key.pipeline)
        if pause is not None and not pause.is_over(self._clock.now()):
            raise RetryLater(f"it might only begin by looking for it, and the pipeline is paused: {pause.reason}")
        match await self.start(run, pipeline, StartJob(act.token, act.sending)):
            case JobStarted(job=job):
                return JobFound(run.attempt, job)
            case JobRefused(message=message) | StartUnanswered(message=message):
                raise RetryLater(f"sent once more to see whether it was started: {message}")
            case _:
                return None

    # --- the job ------------------------------------------------------------------------------------------------------

    async def poll(self, run: Run, pipeline: Pipeline, act: PollNow, *, is_urgent: bool = False) -> Fact:
        """Ask how a job is; one that is not urgent may wait a little, to be asked about together with others."""
        try:
            _, job, config, _ = self._target(run, pipeline)
            patience = NOT_WAITING if is_urgent else min(job.poll_interval * GATHERING_PART, GATHERING_MAX)
            status = await self._statuses.ask(job, port.StatusQuery(act.job, config), patience)
        except RetryLater as problem:
            await self._outages.look(run.key, pipeline, self._targets)
            return JobStatusUnknown(run.attempt, str(problem))
        except Rejected as problem:
            return JobStatusUnknown(run.attempt, str(problem))
        match status:
            case port.Running():
                return JobRunning(run.attempt)
            case port.Failed(category=category, message=message):
                return JobFailed(run.attempt, category, message)
            case port.Succeeded(ended_at=ended_at, notices=notices):
                return JobSucceeded(attempt=run.attempt, ended_at=ended_at, notices=notices)

    async def stop(self, run: Run, pipeline: Pipeline, act: StopJob) -> Fact:
        """Tell the target to stop the job; of one that takes its time, also ask how the job is."""
        try:
            runner, job, config, _ = self._target(run, pipeline)
            stop = partial(runner.stop, act.job, config)
            answer = await self._targets.call(target_of(job), Urgency.STOP, stop)
        except (RetryLater, Rejected) as problem:
            return JobStatusUnknown(run.attempt, str(problem))
        match answer:
            case port.Stopped():
                return JobStopped(run.attempt)
            case port.CannotStop(message=message):
                return StopRefused(run.attempt, message)
            case port.StopAccepted():
                seen = await self.poll(run, pipeline, PollNow(act.job), is_urgent=True)
                return StopPending(run.attempt) if isinstance(seen, JobRunning | JobStatusUnknown) else seen

    def _target(self, run: Run, pipeline: Pipeline) -> tuple[Runner, Job, port.Config, Traits]:
        job = pipeline.job
        runner = self._runners.get(job.type) if job else None
        if job is None or runner is None:
            kind = job.type if job else "no job"
            raise Rejected(f"{pipeline.id}: nothing here runs jobs of type {kind}; use a worker that does")
        config = filled_in(job.config, run)
        return runner, job, config, runner.traits(config)


def can_find(traits: Traits) -> bool:
    return traits.guarantee is not Guarantee.AT_LEAST_ONCE


async def _answered(runner: Runner, request: port.StartRequest, traits: Traits) -> port.StartAnswer:
    patience = traits.send_timeout + SEND_GRACE
    try:
        async with asyncio.timeout(patience.total_seconds()):
            return await runner.start(request)
    except TimeoutError:
        return port.Unknown(f"no answer within {format_duration(patience)}")


def _tell(breaker: Breaker, answer: port.StartAnswer, traits: Traits) -> None:
    """Tell what a start's answer says about the target. A refusal that may heal can be about this one job alone.

    So can silence, where the job itself is what is waited for: such targets recognise no token.
    """
    match answer:
        case port.Started() | port.Refused(category=FailureCategory.PERMANENT):
            breaker.answered()
        case port.Unknown(message=message) if can_find(traits):
            breaker.failed(message)
        case _:
            pass
