"""The whole worker on an emulator: from a sensor to a message in the chat, with real processes, one of them killed."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.emulators import ministack
from tests.fakeslack import FakeSlack
from tests.installation import (
    endpoint_of,
    executions_of,
    install,
    make_state_machine,
    slack_on_loopback,
    write_pipeline,
)
from tests.liveworker import LiveWorker, interlock

PATIENCE_S = 90.0
EXIT_S = 25.0

pytestmark = pytest.mark.timeout(240)


async def test_a_run_goes_from_its_sensor_to_the_chat_although_its_worker_is_killed(tmp_path: Path) -> None:
    place = await install(endpoint_of(ministack()))
    machine = await make_state_machine(place.endpoint, seconds=8, outcome="Fail")
    write_pipeline(tmp_path / "pipelines", "orders", machine)
    async with slack_on_loopback() as (slack, api):
        variables = place.variables(api)
        await _command(tmp_path, variables, "pipelines", "push", "pipelines", "--yes")
        workers = [LiveWorker(tmp_path, name, **variables) for name in ("first", "second")]
        try:
            await _until(lambda: any(_has_begun(worker) for worker in workers), *workers)
            said = ("sensor", "put", "orders", "landed", "rows=12", "--period", "2027-03-22")
            await _command(tmp_path, variables, *said)
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
