"""Every point at which a worker can come to grief: each write and each call of a life, numbered in order.

A life is lived once undisturbed, to learn its points. Then it is lived again for each of them, up to that point exactly
as before, and there one thing goes wrong: with the request, with the worker that made it, or with both.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, TypeVar

from tests.support.clock.virtual_time import Host, VirtualClock
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    FaultyTables,
    late,
    send,
)
from tests.support.fakes.runner import FakeRunner
from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.runner import (
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
    StopAnswer,
    Stopped,
    Succeeded,
    Unknown,
)
from worker.store.table import Tables, Write

T = TypeVar("T")

WRITE: Final = "write"
ORDERS_TO_TARGET: Final = frozenset({"start", "stop"})  # the calls that change something there

FROZEN_S: Final = 20.0
OVERSLEPT_S: Final = 200.0  # longer than any start is looked for: by then another has sent it
LISTED_AFTER: Final = timedelta(seconds=30)  # how late a target's list shows a job that it accepted


class Fate(Enum):
    """What becomes of the worker at the point."""

    LIVES = auto()
    DIES = auto()
    FREEZES = auto()  # for so long that others take it for dead, with its request on the way
    OVERSLEEPS = auto()  # freezes for long, and what it was about to send is still with it when it wakes


@dataclass(frozen=True, slots=True)
class Peril:
    """What happens at one point: to the request, and to the worker that makes it."""

    request: Fault
    fate: Fate = Fate.LIVES

    @property
    def frozen_s(self) -> float:
        return OVERSLEPT_S if self.fate is Fate.OVERSLEEPS else FROZEN_S


# A worker that dies with the answer in its hands has recorded as little as one that never got it.
WRITE_PERILS: Final[Mapping[str, Peril]] = {
    "killed just before the write": Peril(DROP_BEFORE, Fate.DIES),
    "killed just after the write": Peril(DROP_AFTER, Fate.DIES),
    "killed during the write, applied when another has taken over": Peril(late(FROZEN_S), Fate.DIES),
    "frozen during the write, applied when another has taken over": Peril(late(FROZEN_S), Fate.FREEZES),
    "outcome of the write unknown, not applied": Peril(DROP_BEFORE),
    "outcome of the write unknown, applied": Peril(DROP_AFTER),
    "outcome of the write unknown, applied after it was tried again": Peril(late(4.0)),
}
CALL_PERILS: Final[Mapping[str, Peril]] = {
    "killed during the call, never sent": Peril(DROP_BEFORE, Fate.DIES),
    "frozen before the call was sent": Peril(NO_FAULT, Fate.OVERSLEEPS),
    "frozen during the call, answered when another has taken over": Peril(late(FROZEN_S), Fate.FREEZES),
    "call never sent, nobody knows": Peril(DROP_BEFORE),
}
# Only of calls that change something at the target: of others they are the same as never sent. A job is listed late
# in all of them.
ORDER_PERILS: Final[Mapping[str, Peril]] = {
    "killed during the call, accepted": Peril(DROP_AFTER, Fate.DIES),
    "killed during the call, accepted when another has taken over": Peril(late(FROZEN_S), Fate.DIES),
    "call accepted, the answer is lost": Peril(DROP_AFTER),
}
PERILS: Final = {**WRITE_PERILS, **CALL_PERILS, **ORDER_PERILS}


def perils_of(point: str) -> Mapping[str, Peril]:
    """What can happen at a point, as the course calls it."""
    if point.startswith(WRITE):
        return WRITE_PERILS
    return {**CALL_PERILS, **ORDER_PERILS} if point in ORDERS_TO_TARGET else CALL_PERILS


class Course:
    """Numbers the points of a life as it meets them, and lets the peril strike at one. `victim` is who is struck."""

    def __init__(self, peril: Peril | None = None, at: int | None = None) -> None:
        self.points: list[str] = []
        self.peril, self._at = peril, at
        self.victim: Host | None = None
        self.struck = asyncio.Event()

    def meet(self, point: str) -> Peril:
        self.points.append(point)
        if self.peril is None or self.victim is None or len(self.points) - 1 != self._at:
            return Peril(NO_FAULT)
        if self.peril.fate is not Fate.LIVES:
            self.victim.freeze()
        self.struck.set()
        return self.peril


class PerilousTables(FaultyTables):
    """The store as the workers of a course see it: every commit is a point."""

    def __init__(self, tables: Tables, course: Course) -> None:
        super().__init__(tables)
        self._course = course

    async def commit(self, *writes: Write) -> None:
        point = f"{WRITE} of {writes[0].key.sk} and {len(writes) - 1} more"
        fault = self._course.meet(point).request
        if fault == NO_FAULT:
            return await self._tables.commit(*writes)
        return await send(lambda: self._tables.commit(*writes), fault, patience_s=self._patience_s, name=point)


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the job of one attempt, if it is let run."""

    lasts: timedelta
    fails: bool = False


@dataclass(slots=True, kw_only=True)
class OutsideJob:
    """A job that the target accepted."""

    token: str
    attempt: int
    began_at: datetime
    ends_at: datetime
    fails: bool

    def status(self, now: datetime) -> JobStatus:
        if now < self.ends_at:
            return Running()
        return Failed(FailureCategory.TRANSIENT, "node lost") if self.fails else Succeeded(self.ends_at)


@dataclass(kw_only=True)
class PlannedTarget(FakeRunner):
    """A target whose jobs end by themselves. Every call to it is a point of the course.

    It shows a job in its list late, and starts a second one for the same token unless it promises not to.
    """

    clock: VirtualClock
    course: Course
    plans: Mapping[int, Plan]  # by attempt
    unanswered: int = 0  # so many starts are accepted without an answer, peril or not
    accepted: list[OutsideJob] = field(default_factory=list[OutsideJob])

    async def start(self, request: StartRequest, /) -> StartAnswer:
        fault = await self._meet("start")
        if not request.may_send():
            return Refused(FailureCategory.TRANSIENT, "not allowed to send")
        if self.unanswered and fault == NO_FAULT:
            self.unanswered, fault = self.unanswered - 1, DROP_AFTER
        try:
            return await self._over(fault, "start", lambda: self._accept(request))
        except RetryLater as problem:
            return Unknown(str(problem))

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        fault = await self._meet("status")
        return await self._over(fault, "status", lambda: self._job(handle).status(self.clock.now()))

    async def find(self, token: str, config: Config, /) -> Handle | None:
        fault = await self._meet("find")
        return await self._over(fault, "find", lambda: self._listed(token))

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        fault = await self._meet("stop")
        return await self._over(fault, "stop", lambda: self._stop(handle))

    async def _meet(self, call: str) -> Fault:
        self.calls[call] += 1
        peril = self.course.meet(call)
        if peril.fate is Fate.OVERSLEEPS:
            await asyncio.sleep(0)  # here its host stands still
        return peril.request

    async def _over(self, fault: Fault, call: str, do: Callable[[], T]) -> T:
        if fault == NO_FAULT:
            return do()

        async def arrive() -> T:
            return do()

        return await send(arrive, fault, patience_s=self.send_timeout.total_seconds(), name=call)

    # --- at the target ------------------------------------------------------------------------------------------------

    def _accept(self, request: StartRequest) -> StartAnswer:
        is_known = any(job.token == request.token for job in self.accepted)
        if not (is_known and self.guarantee is Guarantee.EXACTLY_ONCE):
            now, plan = self.clock.now(), self.plans[request.context.attempt]
            job = OutsideJob(
                token=request.token,
                attempt=request.context.attempt,
                began_at=now,
                ends_at=now + plan.lasts,
                fails=plan.fails,
            )
            self.accepted.append(job)
        return Started({"id": request.token})

    def _listed(self, token: str) -> Handle | None:
        if self.is_found_by_sending:
            return None
        listed_by = self.clock.now() - LISTED_AFTER
        is_listed = any(job.token == token and job.began_at <= listed_by for job in self.accepted)
        return {"id": token} if is_listed else None

    def _stop(self, handle: Handle) -> StopAnswer:
        job = self._job(handle)
        if self.clock.now() < job.ends_at:
            job.ends_at, job.fails = self.clock.now(), True
        return Stopped()

    def _job(self, handle: Handle) -> OutsideJob:
        return next(job for job in self.accepted if job.token == handle["id"])
