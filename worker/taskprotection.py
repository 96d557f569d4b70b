"""Protection of an ECS task while it has something in hand that a scale-in would cut short.

The agent is asked on the edges between idle and busy only, and again before a protection runs out. Whatever it
answers, the work goes on: a task that is ended anyway is an ordinary crash.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from worker.clock import Clock
from worker.core.errors import RetryLater
from worker.logs import logger

AGENT: Final = "ECS_AGENT_URI"  # set by ECS in every task
PATH: Final = "/task-protection/v1/state"
LOOK_EVERY_S: Final = 5.0
MINUTES: Final = 60  # well under the three hours after which a deployment is given up
RENEW_AFTER_S: Final = MINUTES * 60 / 2

_log = logger()

# Sends a JSON body to the agent. Raises `RetryLater`.
PutState: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


class TaskProtection:
    def __init__(self, put: PutState, is_busy: Callable[[], bool], clock: Clock) -> None:
        self._put, self._is_busy, self._clock = put, is_busy, clock
        self._protected_at: float | None = None

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask the agent for what should be, if that is not what is."""
        now = self._clock.monotonic()
        if not self._is_busy():
            await self.lift()
        elif self._protected_at is None or now - self._protected_at >= RENEW_AFTER_S:
            await self._ask({"ProtectionEnabled": True, "ExpiresInMinutes": MINUTES}, protected_at=now)

    async def lift(self) -> None:
        """Let the task go: it is idle, or on its way out."""
        if self._protected_at is not None:
            await self._ask({"ProtectionEnabled": False}, protected_at=None)

    async def _ask(self, state: Mapping[str, Any], *, protected_at: float | None) -> None:
        try:
            await self._put(state)
        except RetryLater as error:
            _log.warning("protection.unchanged", wanted=state["ProtectionEnabled"], reason=str(error))
        else:
            self._protected_at = protected_at
