"""A run from its sensor to a message in the chat, by real workers on a whole installation, one of them killed."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fakeslack import FakeSlack
from tests.installation import Installation, executions_of, make_state_machine, slack_on_loopback, write_pipeline
from tests.liveworker import LiveWorker, interlock

PATIENCE_S = 90.0
EXIT_S = 25.0


async def live_through_a_kill(place: Installation, at: Path) -> None:
    """Sensor, stream, run, job, events, bus, queue, chat: all of it once, although the run's worker dies half-way."""
    machine = await make_state_machine(place.endpoint, seconds=8, outcome="Fail")
    write_pipeline(at / "pipelines", "orders", machine)
    async with slack_on_loopback() as (slack, api):
        variables = place.variables(api)
        await _command(at, variables, "pipelines", "push", "pipelines", "--yes")
        workers = [LiveWorker(at, name, **variables) for name in ("first", "second")]
        try:
            await _until(lambda: any(_has_begun(worker) for worker in workers), *workers)
            said = ("sensor", "put", "orders", "landed", "rows=12", "--period", "2027-03-22")
            await _command(at, variables, *said)
            await _until(lambda: any(_has_started(worker) for worker in workers), *workers)
            holder = next(worker for worker in workers if _has_started(worker))
            survivor = next(worker for worker in workers if worker is not holder)

            holder.kill()

            await _until(lambda: _has_told(slack, "JOB_FAILED"), survivor)
            assert len(await executions_of(place.endpoint, machine)) == 1
            assert len(slack.threads) == 1
            await _stops_in_time(survivor)
        finally:
            _end(workers)


def _has_begun(worker: LiveWorker) -> bool:
    """It reads the stream of the sensors' table."""
    return worker.has_logged('"pipelines.resynced"')


def _has_started(worker: LiveWorker) -> bool:
    return worker.has_logged('"JobStarted"')


def _has_told(slack: FakeSlack, event_type: str) -> bool:
    return any(event_type in text for said in slack.messages for text in said.texts)


async def _stops_in_time(worker: LiveWorker) -> None:
    began = time.monotonic()
    assert await asyncio.to_thread(worker.stop) == 0
    assert time.monotonic() - began < EXIT_S


async def _command(at: Path, variables: Mapping[str, str], *arguments: str) -> None:
    done = await asyncio.to_thread(lambda: interlock(*arguments, at=at, **variables))
    assert done.returncode == 0, done.stderr


async def _until(has_come: Callable[[], bool], *workers: LiveWorker) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not has_come():
        logs = "\n".join(worker.log.read_text() for worker in workers)
        assert time.monotonic() < deadline, f"it did not come; the workers said:\n{logs}"
        assert all(worker.process.poll() is None for worker in workers), f"a worker ended:\n{logs}"
        await asyncio.sleep(0.1)


def _end(workers: list[LiveWorker]) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.kill()
