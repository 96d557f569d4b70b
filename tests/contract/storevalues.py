"""What the tests of the stores put in: only what a test says matters differs from these."""

import asyncio
import uuid
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.store.table import StaleWrite

T = TypeVar("T")
NOW = datetime(2026, 3, 3, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
A, B, C = SessionId("a"), SessionId("b"), SessionId("c")


def a_name() -> str:
    """A name no other test has: backends may keep their tables from one test to the next."""
    return uuid.uuid4().hex


def a_pipeline() -> PipelineId:
    return PipelineId(f"p-{a_name()}")


def a_period(text: str = "2026-03-03") -> Period:
    period = Period.parse(text)
    assert period is not None
    return period


def run_key_of(pipeline: PipelineId | None = None, period: str = "2026-03-03") -> RunKey:
    return RunKey(pipeline or a_pipeline(), ScheduleId("cron"), a_period(period))


def a_run(state: State = State.EVALUATING) -> Run:
    return Run(
        key=run_key_of(),
        run_id=a_name(),
        state=state,
        config_hash="c1",
        created_at=NOW - timedelta(hours=1),
        since=NOW,
        timeout_at=NOW + timedelta(hours=3),
    )


def a_watch(key: RunKey) -> SlaWatch:
    return SlaWatch(
        key=key,
        config_hash="c1",
        since=NOW - timedelta(hours=1),
        warning_at=NOW + timedelta(minutes=30),
        breach_at=NOW + timedelta(hours=1),
    )


# moto checks a condition and writes in two steps, with no lock between them: two updates of one row can both pass.
# There the contenders come one after another, which still shows that the second is refused.
NOT_ATOMIC = {"dynamodb-moto"}


async def race(backend: str, *tries: Coroutine[None, None, T]) -> list[T | StaleWrite]:
    """Let all of them run at once; the losers' answer is the refusal."""
    if backend in NOT_ATOMIC:
        return [await _outcome(one) for one in tries]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_outcome(one)) for one in tries]
    return [task.result() for task in tasks]


async def _outcome(one: Coroutine[None, None, T]) -> T | StaleWrite:
    try:
        return await one
    except StaleWrite as refused:
        return refused
