"""The target of a simulated world: it runs jobs, loses answers, is late, and remembers the truth about each job."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Final, TypeAlias

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import OUTSIDE
from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
    Running,
    StartAnswer,
    Started,
    StartRequest,
    StopAccepted,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
    Unknown,
)

SEND_S: Final = 20.0
LIST_LAG_S: Final = 60.0

# Which run a job is for: pipeline, schedule, period.
RunName: TypeAlias = tuple[str, str, str]
# Told in the same step in which a start is sent, or a job begins.
OnSend: TypeAlias = Callable[[StartRequest], None]
OnBegin: TypeAlias = Callable[["Job"], None]


@dataclass(slots=True)
class Job:
    """A job as it really was. Times are those of the world, in seconds."""

    id: str
    token: str
    run: RunName
    run_id: str
    began_at: float
    listed_at: float
    ends_at: float
    end: JobStatus
    asked_at: float = -1.0  # when its state was last asked for

    def is_alive(self, now: float) -> bool:
        return now < self.ends_at


@dataclass(slots=True)
class Record:
    """All jobs of all targets, by the run they are for."""

    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    by_token: dict[str, list[Job]] = field(default_factory=lambda: defaultdict[str, list[Job]](list))
    by_run: dict[RunName, list[Job]] = field(default_factory=lambda: defaultdict[RunName, list[Job]](list))

    def add(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.by_token[job.token].append(job)
        self.by_run[job.run].append(job)


@dataclass(slots=True, kw_only=True)
class SimulatedTarget:
    """One kind of target. `trouble` is the share of calls that go wrong; an outage lets no call but a start through."""

    guarantee: Guarantee
    can_stop: bool
    random: Random
    record: Record
    on_send: OnSend
    on_begin: OnBegin
    trouble: float
    is_out: bool = False

    def traits(self, config: Config, /) -> Traits:
        del config
        return Traits(
            guarantee=self.guarantee,
            can_stop=self.can_stop,
            send_timeout=timedelta(seconds=SEND_S),
            list_lag=timedelta(seconds=LIST_LAG_S),
        )

    async def start(self, request: StartRequest, /) -> StartAnswer:
        await asyncio.sleep(self.random.uniform(0.0, 2.0))
        if not request.may_send():
            return Refused(FailureCategory.TRANSIENT, "this worker may not send any more")
        self.on_send(request)
        drawn = self.random.random()
        if drawn < self.trouble:
            return Refused(FailureCategory.TRANSIENT, "throttled")
        if drawn < 2 * self.trouble:
            return await self._unanswered()
        is_slow = drawn < 4 * self.trouble
        delay_s = self.random.uniform(0.0, SEND_S - 2.0) if is_slow else self.random.uniform(0.01, 0.5)
        answer: asyncio.Future[Handle] = asyncio.get_running_loop().create_future()
        # The request is on its way, whatever becomes of its sender.
        asyncio.get_running_loop().call_later(delay_s, self._arrive, request, answer, context=OUTSIDE.copy())
        if drawn < 3 * self.trouble:
            return await self._unanswered()
        return Started(await answer)

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        job = self.record.jobs[str(handle["id"])]
        job.asked_at = asyncio.get_running_loop().time()
        await self._answer()
        return Running() if job.is_alive(asyncio.get_running_loop().time()) else job.end

    async def find(self, token: str, config: Config, /) -> Handle | None:
        await self._answer()
        now = asyncio.get_running_loop().time()
        return next(({"id": job.id} for job in self.record.by_token[token] if job.listed_at <= now), None)

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        await self._answer()
        now, job = asyncio.get_running_loop().time(), self.record.jobs[str(handle["id"])]
        if not job.is_alive(now):
            return Stopped()
        if not self.can_stop:
            return CannotStop("this target cannot stop a job")
        if self.random.random() < 0.5:
            self._end(job, now)
            return Stopped()
        if self.random.random() < 0.8 and not isinstance(job.end, Failed):
            self._end(job, now + self.random.uniform(5.0, 240.0))
        return StopAccepted()

    # --- the truth ----------------------------------------------------------------------------------------------------

    def _arrive(self, request: StartRequest, answer: "asyncio.Future[Handle]") -> None:
        known = self.record.by_token[request.token]
        is_repeat = self.guarantee is Guarantee.EXACTLY_ONCE and bool(known)
        job = known[0] if is_repeat else self._begin(request)
        if not answer.done():
            answer.set_result({"id": job.id})

    def _begin(self, request: StartRequest) -> Job:
        now, about = asyncio.get_running_loop().time(), request.context
        lasts_s = self.random.uniform(1500.0, 5400.0) if self.random.random() < 0.1 else self.random.uniform(30, 900)
        lag_s = 0.0 if self.guarantee is Guarantee.EXACTLY_ONCE else self.random.uniform(0.0, LIST_LAG_S - 1.0)
        job = Job(
            id=f"job-{len(self.record.jobs)}",
            token=request.token,
            run=(about.pipeline, about.schedule, str(about.period)),
            run_id=about.run_id,
            began_at=now,
            listed_at=now + lag_s,
            ends_at=now + lasts_s,
            end=self._draw_end(now + lasts_s),
        )
        self.on_begin(job)
        self.record.add(job)
        return job

    def _draw_end(self, at: float) -> JobStatus:
        drawn = self.random.random()
        if drawn < 0.15:
            return Failed(FailureCategory.TRANSIENT, "connection lost", world_time(at))
        if drawn < 0.22:
            return Failed(FailureCategory.PERMANENT, "bad code", world_time(at))
        return Succeeded(world_time(at))

    def _end(self, job: Job, at: float) -> None:
        if at < job.ends_at:
            job.ends_at, job.end = at, Failed(FailureCategory.TRANSIENT, "stopped", world_time(at))

    # --- the way ------------------------------------------------------------------------------------------------------

    async def _unanswered(self) -> StartAnswer:
        await asyncio.sleep(SEND_S if self.random.random() < 0.5 else self.random.uniform(0.1, 3.0))
        return Unknown("connection reset")

    async def _answer(self) -> None:
        await asyncio.sleep(self.random.uniform(0.01, 1.0))
        if self.is_out or self.random.random() < self.trouble:
            raise RetryLater("no route to host")


def world_time(at_s: float) -> datetime:
    return NOON + timedelta(seconds=at_s)
