"""A job target inside the test: it does what it is told, remembers what it was asked, and keeps its jobs for ever."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

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
    TargetDown,
    Traits,
    Unknown,
)

# What becomes of one start: answered, refused, or accepted with the answer lost on the way.
StartScript: TypeAlias = Callable[[StartRequest], StartAnswer]


def refuse(message: str = "throttled", category: FailureCategory = FailureCategory.TRANSIENT) -> StartScript:
    return lambda _: Refused(category, message)


def lose(_: StartRequest) -> StartAnswer:
    """The request never arrived, and nobody knows."""
    return Unknown("connection reset")


@dataclass
class FakeRunner:
    """By default every job starts, runs, and is over when the test says so with `finish`."""

    guarantee: Guarantee = Guarantee.FOUND_AGAIN
    can_stop: bool = True
    stops_slowly: bool = False
    send_timeout: timedelta = timedelta(seconds=20)
    list_lag: timedelta = timedelta(seconds=60)
    is_found_by_sending: bool = False
    starts: list[StartRequest] = field(default_factory=list[StartRequest])  # as sent
    jobs: dict[str, JobStatus] = field(default_factory=dict[str, JobStatus])  # by token, as accepted
    calls: Counter[str] = field(default_factory=Counter[str])
    scripts: deque[StartScript] = field(default_factory=deque[StartScript])
    at_once: JobStatus = field(default_factory=Running)  # the state in which jobs begin
    is_unreachable: bool = False
    is_silent: bool = False  # as a target that is down: others that ask it fare no better
    hangs: asyncio.Event | None = None  # while set, calls wait for it

    def traits(self, config: Config, /) -> Traits:
        return Traits(
            guarantee=self.guarantee,
            can_stop=self.can_stop,
            send_timeout=self.send_timeout,
            list_lag=self.list_lag,
            is_found_by_sending=self.is_found_by_sending,
        )

    async def start(self, request: StartRequest, /) -> StartAnswer:
        try:
            await self._arrive("start")
        except TargetDown as problem:
            return Refused(FailureCategory.TRANSIENT, str(problem))
        if not request.may_send():
            return Refused(FailureCategory.TRANSIENT, "not allowed to send")
        self.starts.append(request)
        if self.scripts:
            return self.scripts.popleft()(request)
        return self.accept(request)

    def accept(self, request: StartRequest) -> StartAnswer:
        if self.guarantee is Guarantee.AT_LEAST_ONCE or request.token not in self.jobs:
            self.jobs[request.token] = self.at_once
        return Started({"id": request.token})

    def accept_and_lose_answer(self, request: StartRequest) -> StartAnswer:
        self.accept(request)
        return Unknown("connection reset")

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        await self._arrive("status")
        return self.jobs[str(handle["id"])]

    async def find(self, token: str, config: Config, /) -> Handle | None:
        await self._arrive("find")
        return {"id": token} if token in self.jobs and not self.is_found_by_sending else None

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        await self._arrive("stop")
        if not self.can_stop:
            return CannotStop("this target cannot")
        if self.stops_slowly:
            return StopAccepted()
        self.jobs[str(handle["id"])] = Failed(FailureCategory.TRANSIENT, "stopped")
        return Stopped()

    # --- what a test says ---------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> list[str]:
        return [request.token for request in self.starts]

    @property
    def running(self) -> list[str]:
        return [token for token, status in self.jobs.items() if isinstance(status, Running)]

    def finish(self, status: JobStatus | None = None) -> None:
        """Every running job ends so; by success unless said otherwise."""
        for token in self.running:
            self.jobs[token] = status or Succeeded()

    def fail(self, message: str = "out of memory", category: FailureCategory = FailureCategory.TRANSIENT) -> None:
        self.finish(Failed(category, message))

    async def _arrive(self, call: str) -> None:
        self.calls[call] += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if self.is_silent:
            raise TargetDown("connection refused")
        if self.is_unreachable and call != "start":
            raise RetryLater("no route to host")
