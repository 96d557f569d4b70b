"""Limits on what is asked of job targets: a slow one fills its own slots, and nobody else's."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar
from urllib.parse import urlsplit

from worker.core.model.pipeline import Job, JobType
from worker.core.time.durations import format_duration
from worker.jobs.runner import TargetDown
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.runtime.rate_limit import TokenBucket
from worker.targets.circuit_breaker import Breaker
from worker.targets.priority_gate import PriorityGate, Urgency
from worker.targets.rates import DEFAULT_RATES, Rate

T = TypeVar("T")

CALL_TIMEOUT: Final = timedelta(seconds=30)  # for a status, find or stop; runners have tighter ones of their own
_SILENT: Final = f"no answer within {format_duration(CALL_TIMEOUT)}"
_ADDRESSES: Final = ("url", "workspaceUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    calls_at_once: int = 32  # to one target
    rates: Mapping[JobType, Rate] = field(default_factory=lambda: DEFAULT_RATES)  # for each target of the kind
    in_all: int = 512  # calls of all targets together, so that memory and sockets are bounded


def target_of(job: Job) -> str:
    """Name what a job runs on: jobs that share it share its limits."""
    addresses = (job.config.get(name) for name in _ADDRESSES)
    host = next((_host(url) for url in addresses if isinstance(url, str)), "")
    return f"{job.type}:{host}" if host else str(job.type)


def _host(url: str) -> str:
    """Host and port, without the credentials that may stand before them: logs and alerts name targets."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""  # no address: the runner refuses it, and says why


class Targets:
    def __init__(self, clock: Clock, limits: Limits | None = None, log: Log = to_nobody) -> None:
        self._clock, self._limits, self._log = clock, limits or Limits(), log
        self._in_all = asyncio.Semaphore(self._limits.in_all)
        self._gates: dict[str, _Gate] = {}

    @asynccontextmanager
    async def turn(self, target: str, urgency: Urgency = Urgency.POLL) -> AsyncGenerator[Breaker]:
        """Wait until the target may be called, and hold one of its slots meanwhile. Who has called tells the breaker.

        Raises `RetryLater` if the target is to be left alone, or too many wait for it.
        """
        gate = self._gate(target)
        # The common slot comes last: whoever waits for a slow target holds nothing that others need.
        async with gate.entered(urgency), self._in_all:
            yield gate.breaker

    async def call(
        self, target: str, urgency: Urgency, work: Callable[[], Awaitable[T]], *, is_list: bool = False
    ) -> T:
        """Ask a target something that may be asked again. Raises what `work` does, and `TargetDown` after a while."""
        if is_list:
            await self._gate(target).lists.take()  # not in the turnstile, where a start would wait behind it
        async with self.turn(target, urgency) as breaker:
            try:
                async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
                    answer = await work()
            except TimeoutError as problem:
                breaker.failed(_SILENT)
                raise TargetDown(_SILENT) from problem
            except TargetDown as problem:
                breaker.failed(str(problem))
                raise
            breaker.answered()
            return answer

    def closed_for(self, target: str) -> timedelta:
        """How long the target has been left alone, because it does not answer."""
        return self._gate(target).breaker.closed_for

    def _gate(self, target: str) -> "_Gate":
        gate = self._gates.get(target)
        if gate is None:
            rate = self._limits.rates[JobType(target.partition(":")[0])]
            gate = self._gates[target] = _Gate(
                slots=asyncio.Semaphore(self._limits.calls_at_once),
                bucket=TokenBucket(self._clock, rate.per_second, rate.burst),
                lists=TokenBucket(self._clock, rate.lists_per_second or rate.per_second, rate.burst),
                breaker=Breaker(target, self._clock, self._log),
            )
        return gate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """One target's: only one caller waits for a slot and its token, so that a later one may still be more urgent."""

    slots: asyncio.Semaphore
    bucket: TokenBucket
    lists: TokenBucket
    breaker: Breaker
    turnstile: PriorityGate = field(default_factory=PriorityGate)

    @asynccontextmanager
    async def entered(self, urgency: Urgency) -> AsyncGenerator[None]:
        self.breaker.check()  # who need not wait in order to be sent away does not
        await self.turnstile.enter(urgency)
        with ExitStack() as held:
            try:
                await self.slots.acquire()
                held.callback(self.slots.release)
                held.enter_context(self.breaker.admitted())
                await self.bucket.take()
            finally:
                self.turnstile.leave()
            yield
