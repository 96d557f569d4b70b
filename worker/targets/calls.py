"""Limits the calls to job targets, so that a slow target uses up only its own slots."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol, TypeVar
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
from worker.targets.rates import DEFAULT_RATES, PROBE_RATES, ActionRate, Rate

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


class CountCall(Protocol):
    """Counts a call of a target by its kind and action."""

    def __call__(self, target: str, action: str, /, *, is_throttled: bool) -> None: ...


def _uncounted(_target: str, _action: str, /, *, is_throttled: bool) -> None:
    pass


def alone() -> int:
    return 1


class Targets:
    """Limits the calls of one worker. `workers` says how many workers divide the shared rates."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits | None = None,
        log: Log = to_nobody,
        *,
        workers: Callable[[], int] = alone,
        count: CountCall = _uncounted,
    ) -> None:
        self._clock, self._limits, self._log, self._workers = clock, limits or Limits(), log, workers
        self._count = count
        self._in_all = asyncio.Semaphore(self._limits.in_all)
        self._gates: dict[str, _Gate] = {}

    def turn(self, target: str, urgency: Urgency = Urgency.POLL) -> AbstractAsyncContextManager[Breaker, None]:
        """Wait until the target may be called, then hold one of its slots until the block ends.

        The caller reports the result of its call to the breaker that this yields. Raises `RetryLater` if the circuit
        breaker rejects calls or too many callers wait.
        """
        return _Turn(self._gate(target), self._in_all, urgency, self._workers())

    async def call(
        self, target: str, urgency: Urgency, work: Callable[[], Awaitable[T]], *, is_list: bool = False
    ) -> T:
        """Call a target with work that may be repeated; records the result in its circuit breaker.

        Raises what `work` raises, and `TargetDown` if the call takes longer than `CALL_TIMEOUT`.
        """
        if is_list:
            await self._gate(target).lists.take(
                self._workers()
            )  # before the priority gate: a start must not wait behind it
        async with self.turn(target, urgency) as breaker:
            is_throttled = False
            try:
                async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
                    answer = await work()
            except TimeoutError as problem:
                breaker.failed(_SILENT)
                raise TargetDown(_SILENT) from problem
            except TargetDown as problem:
                is_throttled = problem.is_throttled
                breaker.failed(str(problem))
                raise
            finally:
                self.count(target, urgency, is_throttled=is_throttled)
            breaker.answered()
            return answer

    def count(self, target: str, urgency: Urgency, *, is_throttled: bool) -> None:
        """Count a call that was made in a turn of the target."""
        self._count(target.partition(":")[0], urgency.name.lower(), is_throttled=is_throttled)

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
                lanes=self._lanes(rate),
                lists=self._bucket(ActionRate(rate.lists_per_second or rate.per_second, rate.burst), rate),
                breaker=Breaker(target, self._clock, self._log),
            )
        return gate

    def _lanes(self, rate: Rate) -> "dict[Urgency, _Lane]":
        """Return what each call waits in: starts and stops by themselves if they have a rate of their own."""
        common = _Lane(self._bucket(ActionRate(rate.per_second, rate.burst), rate))
        own = {Urgency.START: rate.starts, Urgency.STOP: rate.stops}
        return {
            urgency: _Lane(self._bucket(action, rate)) if (action := own.get(urgency)) else common
            for urgency in Urgency
        }

    def _bucket(self, action: ActionRate, rate: Rate) -> "_SharedBucket":
        bucket = TokenBucket(self._clock, action.per_second, action.burst)
        return _SharedBucket(bucket, action if rate.is_shared else None)


@dataclass(frozen=True, slots=True)
class _SharedBucket:
    """Holds this worker's part of a rate; the whole of it if it is not shared."""

    bucket: TokenBucket
    shared: ActionRate | None

    async def take(self, workers: int) -> None:
        if self.shared is not None:
            # At least one call at once, however many workers there are.
            self.bucket.limit(self.shared.per_second / workers, max(1.0, self.shared.burst / workers))
        await self.bucket.take()


@dataclass(frozen=True, slots=True)
class _Lane:
    """Holds where callers wait for a token.

    Only one caller at a time waits for a slot and its token, so that a more urgent caller can still go first.
    """

    bucket: _SharedBucket
    turnstile: PriorityGate = field(default_factory=PriorityGate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """Holds the limits of one target."""

    slots: asyncio.Semaphore
    lanes: Mapping[Urgency, _Lane]
    lists: _SharedBucket
    breaker: Breaker


class _Turn:
    """Holds a slot of one target while its block runs.

    It is a class, because every call passes here, and nested generators would take most of the call's own time.
    """

    __slots__ = ("_gate", "_in_all", "_is_probe", "_urgency", "_workers")

    def __init__(self, gate: _Gate, in_all: asyncio.Semaphore, urgency: Urgency, workers: int) -> None:
        self._gate, self._in_all, self._urgency, self._workers = gate, in_all, urgency, workers
        self._is_probe = False

    async def __aenter__(self) -> Breaker:
        gate, lane = self._gate, self._gate.lanes[self._urgency]
        gate.breaker.check()  # fail fast: a caller that would be rejected does not queue first
        await lane.turnstile.enter(self._urgency)
        try:
            await gate.slots.acquire()
            try:
                self._is_probe = gate.breaker.admit()
                await lane.bucket.take(self._workers)
            except BaseException:
                self._give_back()
                raise
        finally:
            lane.turnstile.leave()
        # Last: a caller that waits for a slow target holds nothing that other targets need.
        try:
            await self._in_all.acquire()
        except BaseException:
            self._give_back()
            raise
        return gate.breaker

    async def __aexit__(self, *_: object) -> None:
        self._in_all.release()
        self._give_back()

    def _give_back(self) -> None:
        self._gate.breaker.leave(is_probe=self._is_probe)
        self._gate.slots.release()
