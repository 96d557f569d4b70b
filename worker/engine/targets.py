"""Limits on what is asked of job targets at once: a slow one fills its own slots and nobody else's."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from worker.clock import Clock
from worker.core.pipeline import Job

_ADDRESSES: Final = ("url", "workspaceUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    calls_at_once: int = 32  # to one target
    calls_per_second: float = 50.0  # to one target
    burst: int = 100
    in_all: int = 512  # calls of all targets together, so that memory and sockets are bounded


def target_of(job: Job) -> str:
    """Name what a job runs on: jobs that share it share its limits."""
    addresses = (job.config.get(name) for name in _ADDRESSES)
    host = next((urlsplit(url).netloc for url in addresses if isinstance(url, str)), "")
    return f"{job.type}:{host}" if host else str(job.type)


class Targets:
    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        self._clock, self._limits = clock, limits or Limits()
        self._in_all = asyncio.Semaphore(self._limits.in_all)
        self._gates: dict[str, _Gate] = {}

    @asynccontextmanager
    async def turn(self, target: str) -> AsyncGenerator[None]:
        """Wait until the target may be called, and hold one of its slots meanwhile."""
        gate = self._gates.get(target)
        if gate is None:
            gate = self._gates[target] = _Gate(
                asyncio.Semaphore(self._limits.calls_at_once),
                TokenBucket(self._clock, self._limits.calls_per_second, self._limits.burst),
            )
        # The common slot comes last: whoever waits for a slow target holds nothing that others need.
        async with gate.slots:
            await gate.bucket.take()
            async with self._in_all:
                yield


@dataclass(slots=True)
class TokenBucket:
    """Lets `burst` through at once, and `per_second` in the long run; those who wait keep their order."""

    clock: Clock
    per_second: float
    burst: int
    _tokens: float = field(init=False)
    _counted_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._counted_at = float(self.burst), self.clock.monotonic()

    async def take(self) -> None:
        now = self.clock.monotonic()
        gained = (now - self._counted_at) * self.per_second
        self._tokens, self._counted_at = min(self._tokens + gained, self.burst) - 1, now
        if self._tokens < 0:
            # The debt is ours: whoever comes next waits longer.
            await self.clock.sleep(-self._tokens / self.per_second)


@dataclass(frozen=True, slots=True)
class _Gate:
    slots: asyncio.Semaphore
    bucket: TokenBucket
