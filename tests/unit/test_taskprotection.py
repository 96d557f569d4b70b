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
        self.minutes: list[int] = []
        self.is_away = False

    async def put(self, state: Mapping[str, Any]) -> None:
        if self.is_away:
            raise RetryLater("no answer")
        self.asked.append(state["ProtectionEnabled"])
        self.minutes += [state["ExpiresInMinutes"]] if state["ProtectionEnabled"] else []


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


async def test_a_task_that_is_never_idle_is_not_protected_for_ever_or_no_deployment_would_end() -> None:
    worker = Worker()
    worker.busy = True

    await worker.pass_minutes(300)

    assert worker.agent.asked == [True]
    assert worker.agent.minutes == [60]


async def test_work_after_a_pause_is_protected_again() -> None:
    worker = Worker()
    for busy in (True, False, True):
        worker.busy = busy
        await worker.pass_minutes(1)

    assert worker.agent.asked == [True, False, True]


async def test_an_agent_that_is_away_is_asked_again() -> None:
    worker = Worker()
    worker.busy, worker.agent.is_away = True, True
    await worker.pass_minutes(1)

    worker.agent.is_away = False
    await worker.pass_minutes(1)

    assert worker.agent.asked == [True]
