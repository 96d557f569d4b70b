"""Limits the calls to job targets, so that a slow target uses up only its own slots."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar
from urllib.parse import urlsplit

from worker.core.model.pipeline import Job, JobType
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.jobs.runner import TargetDown
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.runtime.rate_limit import TokenBucket
from worker.targets.circuit_breaker import Breaker
from worker.targets.priority_gate import PriorityGate, Urgency
from worker.targets.rates import DEFAULT_RATES, PROBE_RATES, Rate

T = TypeVar("T")

CALL_TIMEOUT: Final = timedelta(seconds=30)  # for a status, find or stop; runners have shorter timeouts of their own
_SILENT: Final = f"no answer within {format_duration(CALL_TIMEOUT)}"
_ADDRESSES: Final = ("url", "workspaceUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    calls_at_once: int = 32  # to one target
    rates: Mapping[JobType, Rate] = field(default_factory=lambda: DEFAULT_RATES)  # for each target of the job type
    in_all: int = 512  # calls to all targets together; bounds memory and sockets


def target_of(job: Job) -> str:
    """Return the name of a job's target. Jobs with the same target share its limits."""
    return host_target(str(job.type), job.config)


def host_target(kind: str, config: Mapping[str, Json]) -> str:
    """Return the name of a target that a configuration names: its kind, and its host if there is one."""
    addresses = (config.get(name) for name in _ADDRESSES)
    host = next((_host(url) for url in addresses if isinstance(url, str)), "")
    return f"{kind}:{host}" if host else kind


def _host(url: str) -> str:
    """Return host and port without credentials, because logs and alerts contain the target's name."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""  # an invalid URL: the runner rejects it and gives the reason


class Targets:
    def __init__(self, clock: Clock, limits: Limits | None = None, log: Log = to_nobody) -> None:
        self._clock, self._limits, self._log = clock, limits or Limits(), log
        self._in_all = asyncio.Semaphore(self._limits.in_all)
        self._gates: dict[str, _Gate] = {}

    @asynccontextmanager
    async def turn(self, target: str, urgency: Urgency = Urgency.POLL) -> AsyncGenerator[Breaker]:
        """Wait until the target may be called, then hold one of its slots until the block ends.

        The caller reports the result of its call to the breaker that this yields. Raises `RetryLater` if the circuit
        breaker rejects calls or too many callers wait.
        """
        gate = self._gate(target)
        # Take the shared slot last: a caller that waits for a slow target holds nothing that other targets need.
        async with gate.entered(urgency), self._in_all:
            yield gate.breaker

    async def call(
        self, target: str, urgency: Urgency, work: Callable[[], Awaitable[T]], *, is_list: bool = False
    ) -> T:
        """Call a target with work that may be repeated; records the result in its circuit breaker.

        Raises what `work` raises, and `TargetDown` if the call takes longer than `CALL_TIMEOUT`.
        """
        if is_list:
            await self._gate(target).lists.take()  # before the priority gate: a start must not wait behind it
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
        """Return how long the circuit breaker has rejected calls to the target, zero if it does not."""
        return self._gate(target).breaker.closed_for

    def _gate(self, target: str) -> "_Gate":
        gate = self._gates.get(target)
        if gate is None:
            kind = target.partition(":")[0]
            rate = PROBE_RATES.get(kind) or self._limits.rates[JobType(kind)]
            gate = self._gates[target] = _Gate(
                slots=asyncio.Semaphore(self._limits.calls_at_once),
                bucket=TokenBucket(self._clock, rate.per_second, rate.burst),
                lists=TokenBucket(self._clock, rate.lists_per_second or rate.per_second, rate.burst),
                breaker=Breaker(target, self._clock, self._log),
            )
        return gate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """Holds the limits of one target.

    Only one caller at a time waits for a slot and its token, so that a more urgent caller can still go first.
    """

    slots: asyncio.Semaphore
    bucket: TokenBucket
    lists: TokenBucket
    breaker: Breaker
    turnstile: PriorityGate = field(default_factory=PriorityGate)

    @asynccontextmanager
    async def entered(self, urgency: Urgency) -> AsyncGenerator[None]:
        self.breaker.check()  # fail fast: a caller that would be rejected does not queue first
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
