"""What the tests of runners share: a run to start jobs for, and a patient look at how one ended."""

import asyncio
from collections.abc import Callable
from datetime import date

from worker.core.time.periods import Period
from worker.jobs.runner import Config, Handle, JobStatus, RunContext, Runner, Running, Started, StartRequest, always

TOKEN = "il-" + "0123456789" * 4
DAY = Period(date(2026, 3, 3))
_LOOKS_MAX = 4000
_LOOK_AGAIN_S = 0.005


def a_request(
    config: Config,
    *,
    token: str = TOKEN,
    period: Period = DAY,
    may_send: Callable[[], bool] = always,
) -> StartRequest:
    context = RunContext(pipeline="orders", schedule="cron", period=period, run_id="run-1", attempt=2)
    return StartRequest(config=config, token=token, context=context, may_send=may_send)


async def started(runner: Runner, config: Config, *, token: str = TOKEN) -> Handle:
    """Start a job and insist that it was."""
    answer = await runner.start(a_request(config, token=token))
    assert isinstance(answer, Started), answer
    return answer.handle


async def ended(runner: Runner, handle: Handle, config: Config) -> JobStatus:
    """The status of a job once it is over."""
    for _ in range(_LOOKS_MAX):
        status = await runner.status(handle, config)
        if not isinstance(status, Running):
            return status
        await asyncio.sleep(_LOOK_AGAIN_S)
    raise AssertionError("the job is still running")


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    for _ in range(_LOOKS_MAX):
        if is_so():
            return
        await asyncio.sleep(_LOOK_AGAIN_S)
    raise AssertionError("it never happened")
