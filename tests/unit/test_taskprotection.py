"""When the agent of ECS is asked to protect the task, and when not."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.manualclock import ManualClock
from worker.core.errors import RetryLater
from worker.taskprotection import TaskProtection


class Agent:
    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.is_away = False

    async def put(self, state: Mapping[str, Any]) -> None:
        if self.is_away:
            raise RetryLater("no answer")
        self.asked.append(state["ProtectionEnabled"])


class Worker:
    def __init__(self) -> None:
        self.busy, self.clock, self.agent = False, ManualClock(), Agent()
        self.protection = TaskProtection(self.agent.put, lambda: self.busy, self.clock)

    async def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes * 12):
            self.clock.advance(timedelta(seconds=5))
            await self.protection.look()


async def test_the_agent_is_asked_on_the_edges_only() -> None:
    worker = Worker()

    await worker.pass_minutes(3)
    worker.busy = True
    await worker.pass_minutes(10)
    worker.busy = False
    await worker.pass_minutes(10)

    assert worker.agent.asked == [True, False]


async def test_a_long_protection_is_renewed_before_it_runs_out() -> None:
    worker = Worker()
    worker.busy = True

    await worker.pass_minutes(95)

    assert worker.agent.asked == [True, True, True, True]


async def test_an_agent_that_is_away_is_asked_again() -> None:
    worker = Worker()
    worker.busy, worker.agent.is_away = True, True
    await worker.pass_minutes(1)

    worker.agent.is_away = False
    await worker.pass_minutes(1)

    assert worker.agent.asked == [True]
