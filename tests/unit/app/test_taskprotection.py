"""When the agent of ECS is asked to protect the task, and when not."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.app.ecs_protection import TaskProtection
from worker.core.errors import RetryLater


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


@on_virtual_time
async def test_a_task_that_is_asked_to_end_is_protected_no_more_at_once_and_for_good() -> None:
    agent, clock, began = Agent(), VirtualClock(), asyncio.get_running_loop().time()
    protection = TaskProtection(agent.put, lambda: True, clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(protection.run())
        await clock.sleep(1)
        protection.end()
        await clock.sleep(1)
        asked = list(agent.asked)
        await clock.sleep(60)
        running.cancel()

    assert asyncio.get_running_loop().time() - began == 62
    assert asked == agent.asked == [True, False]
