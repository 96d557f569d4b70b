"""Job actions: each action calls a target and returns the answer as a fact.

No behaviour of a target raises an error here: a call that could not be made also becomes a fact.
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
from worker.jobs.callbacks import CallbackUrl, no_callback
from worker.jobs.runner import Guarantee, Runner, Traits
from worker.jobs.templates import context_of, filled_in
from worker.runtime.clock import Clock
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.targets.batch_status import NOT_WAITING, StatusCalls
from worker.targets.calls import Targets, target_of
from worker.targets.circuit_breaker import Breaker, TargetClosed
from worker.targets.priority_gate import Urgency

# Maximum time a start may wait for its turn before the row is read again. A run that is being stopped waits far longer
# than this for the start's answer.
WAITED_MAX_S: Final = 5.0
SEND_GRACE: Final = timedelta(seconds=5)  # for a runner that exceeds its own time-out
# How long a poll may wait to share a call with other polls: a fraction of its interval, with an upper bound.
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
        callback_url: CallbackUrl = no_callback,
    ) -> None:
        self._callback_url = callback_url
        self._runners, self._targets, self._statuses = runners, targets, statuses
        self._standing, self._outages = standing, outages
        self._runs, self._pauses, self._clock = runs, pauses, clock

    # --- the start ----------------------------------------------------------------------------------------------------

    async def start(self, run: Run, pipeline: Pipeline, act: StartJob) -> Fact:
        """Send the start once. The caller has proof that this session must send it."""
        try:
            runner, job, config, traits = self._target(run, pipeline)
        except Rejected as problem:
            return JobRefused(run.attempt, act.sending, FailureCategory.PERMANENT, str(problem))
        request = port.StartRequest(
            config=config,
            token=act.token,
            context=context_of(run, self._callback_url(run)),
            may_send=self._standing.may_act,
        )
        objection = partial(self._objection, run, act)
        match await self._send(runner, target_of(job), request, traits, objection):
            case port.Started(handle=handle, outputs=outputs):
                return JobStarted(run.attempt, handle, can_find(traits), outputs)
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
                is_throttled = isinstance(answer, port.Refused) and answer.is_throttled
                self._targets.count(target, Urgency.START, is_throttled=is_throttled)
                _tell(breaker, answer, traits)
                return answer
        except TargetClosed as closed:
            return port.Refused(FailureCategory.TRANSIENT, str(closed), closed.again_after)
        except RetryLater as problem:
            # Too many calls already wait for this target, or the store could not say whether the start is still wanted.
            return port.Refused(FailureCategory.TRANSIENT, str(problem))

    async def _objection(self, run: Run, act: StartJob) -> str | None:
        """Return why a start that waited long for its turn must not be sent; None if it is still wanted.

        A run that is given up does not wait for a start that did not get its turn, and its next attempt must not
        collide with that start. Raises `RetryLater`.
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
        """Return the fact that the session that was to send the start is gone.

        A worker without a runner for the job type cannot find the job.
        """
        try:
            traits = self._target(run, pipeline)[3]
        except Rejected:
            return StarterLost(run.attempt, run.start_failures, can_find=False)
        return StarterLost(run.attempt, run.start_failures, can_find(traits))

    def time_to_be_seen(self, run: Run, pipeline: Pipeline) -> timedelta:
        """Return how long after an unanswered start the target must list its job, if the job exists."""
        try:
            traits = self._target(run, pipeline)[3]
        except Rejected:
            return timedelta()
        return traits.send_timeout + traits.list_lag

    async def find_early(self, run: Run, pipeline: Pipeline, act: FindJob) -> Fact | None:
        """Search for a job that may not be visible yet; return None if the search showed nothing.

        A target with the guarantee `EXACTLY_ONCE` recognises the token, so it is safe to query it, or even to send to
        it, at any time. But a start may still be on its way. If this early search counted as proof, that start would be
        forgotten: the next one may have another token, or none may follow. So the result is only `JobNotSeen`, and only
        if the starter was lost. Every other uncertain start had a bad answer, and then the target is not called early.
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
        """Search for the job; return None if the search showed nothing."""
        try:
            runner, job, config, traits = self._target(run, pipeline)
            if traits.is_found_by_sending:
                return await self._find_by_sending(run, pipeline, act)
            find = partial(runner.find, act.token, config)
            handle = await self._targets.call(target_of(job), Urgency.FIND, find)
        except (RetryLater, Rejected) as problem:
            await self._outages.doubt(run, str(problem))
            return None
        return JobNotFound(run.attempt, act.sending) if handle is None else JobFound(run.attempt, handle)

    async def _find_by_sending(self, run: Run, pipeline: Pipeline, act: FindJob) -> Fact | None:
        """Send the start again, to a target that answers a repeat with the job it already has.

        Raises `RetryLater` if there is no such answer. A refusal proves nothing: its cause may be on this side, such as
        changed credentials, and the job may exist anyway.
        """
        if run.state is State.STOPPING:
            # Sending could start the job that must be stopped. Whether it exists stays unknown, and an event reports
            # that.
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
        """Query a job's status; a query that is not urgent may wait briefly to share a call with others."""
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
            case port.Failed(category=category, message=message, outputs=outputs):
                return JobFailed(run.attempt, category, message, outputs)
            case port.Succeeded(ended_at=ended_at, notices=notices, outputs=outputs):
                return JobSucceeded(attempt=run.attempt, ended_at=ended_at, notices=notices, outputs=outputs)

    async def stop(self, run: Run, pipeline: Pipeline, act: StopJob) -> Fact:
        """Stop the job at its target; if the target only accepts the stop, also query the job's status."""
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
        config = filled_in(job.config, run, self._callback_url(run))
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
    """Report to the circuit breaker what a start's answer shows about the target.

    A temporary refusal may concern this job alone, so it is not reported. The same holds for a missing answer if the
    target recognises no token: there, the call may be waiting for the job itself.
    """
    match answer:
        case port.Started() | port.Refused(category=FailureCategory.PERMANENT):
            breaker.answered()
        case port.Unknown(message=message) if can_find(traits):
            breaker.failed(message)
        case _:
            pass
