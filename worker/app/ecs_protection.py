"""ECS protection: protects a task from scale-in while it has work in progress.

The worker calls the agent only when it changes between idle and busy. A protection expires by itself and is not
renewed: otherwise a task that is never idle could never be replaced, because deployments wait for it. A task that must
stop lifts its protection, whatever work it has: ECS gives it the time to finish. The work continues whatever the agent
answers: a task that is stopped anyway is an ordinary crash.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.runtime.timers import Wakeable

AGENT: Final = "ECS_AGENT_URI"  # set by ECS in every task
PATH: Final = "/task-protection/v1/state"
LOOK_EVERY_S: Final = 5.0
MINUTES: Final = 60  # well under the three hours after which a deployment fails

_LIFTED: Final = {"ProtectionEnabled": False}

_log = logger()

# Sends a JSON body to the agent. Raises `RetryLater`.
PutState: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


class TaskProtection:
    def __init__(self, put: PutState, is_busy: Callable[[], bool], clock: Clock) -> None:
        self._put, self._is_busy = put, is_busy
        self._is_protected = False  # or was, for the current stretch of work
        self._is_ending, self._alarm = False, Wakeable(clock)

    async def run(self) -> None:
        while True:
            await self.look()
            await self._alarm.sleep(LOOK_EVERY_S)

    def end(self) -> None:
        """Lift the protection at once and permanently."""
        self._is_ending = True
        self._alarm.ring()

    async def look(self) -> None:
        """Set the protection that is wanted, if it is not the current one."""
        is_busy = self._is_busy() and not self._is_ending
        if is_busy == self._is_protected:
            return
        await self._ask({"ProtectionEnabled": True, "ExpiresInMinutes": MINUTES} if is_busy else _LIFTED)

    async def _ask(self, state: Mapping[str, Any]) -> None:
        try:
            await self._put(state)
        except RetryLater as error:
            _log.warning("protection.unchanged", wanted=state["ProtectionEnabled"], reason=str(error))
        else:
            self._is_protected = state["ProtectionEnabled"]
