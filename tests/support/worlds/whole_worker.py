"""A run from its sensor to a message in the chat, by real workers on a whole installation: one of them killed, or each
with roles of its own.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from consumers.outbox.routes import envelope
from tests.support.fakes.slack import FakeSlack
from tests.support.worlds.alerts import an_event
from tests.support.worlds.installation import (
    CHANNEL,
    Installation,
    client,
    executions_of,
    make_state_machine,
    slack_on_loopback,
    write_pipeline,
)
from tests.support.worlds.live_worker import LiveWorker, interlock, today
from worker.core.model.events import EventType

PATIENCE_S = 90.0
EXIT_S = 25.0


# Owners have channels of their own, so whoever tells people looks up who owns a pipeline.
ROUTING = json.dumps({"channel": CHANNEL, "owners": {"commerce": {"channel": CHANNEL}}})


async def live_through_a_kill(place: Installation, at: Path) -> None:
    """Sensor, stream, run, job, events, bus, queue, chat: all of it once, although the run's worker dies half-way."""
    machine = await make_state_machine(place.endpoint, seconds=8, outcome="Fail")
    async with slack_on_loopback() as (slack, api):
        variables = place.variables(api)
        await _push(at, variables, machine)
        async with _at_work(LiveWorker(at, name, **variables) for name in ("first", "second")) as workers:
            await _until(lambda: any(_has_begun(worker) for worker in workers), *workers)
            await _say_landed(at, variables)
            await _until(lambda: any(_has_started(worker) for worker in workers), *workers)
            holder = next(worker for worker in workers if _has_started(worker))
            survivor = next(worker for worker in workers if worker is not holder)

            holder.kill()

            await _until(lambda: _has_told(slack, "RETRY_EXHAUSTED"), survivor)
            assert len(await executions_of(place.endpoint, machine)) == 1
            assert len(slack.threads) == 1
            await _stops_in_time(survivor)


async def live_apart(place: Installation, at: Path, roles: Sequence[str]) -> None:
    """The same way through several workers, each with some roles; and what one of them does beside a run."""
    machine = await make_state_machine(place.endpoint, seconds=1, outcome="Fail")
    async with slack_on_loopback() as (slack, api):
        variables = {**place.variables(api), "INTERLOCK_ALERTS": ROUTING}
        await _push(at, variables, machine)
        apart = [LiveWorker(at, each, INTERLOCK_ROLES=each, **variables) for each in roles]
        async with _at_work(apart) as workers:
            await _until(lambda: any(_has_begun(worker) for worker in workers), *workers)
            await _say_landed(at, variables)
            await _until(lambda: _has_told(slack, "RETRY_EXHAUSTED"), *workers)
            probe = an_event("probe", EventType.ALERT_PATH_CHECK, pipeline="")
            await _send_to_people(place, json.dumps(envelope(probe)), "no envelope at all")
            await _until(lambda: any(worker.has_logged('"message.parked"') for worker in workers), *workers)
            for worker in workers:
                await _stops_in_time(worker)
            assert not any(worker.has_logged('"message.failed"') for worker in workers)


@asynccontextmanager
async def _at_work(begun: Iterable[LiveWorker]) -> AsyncGenerator[list[LiveWorker]]:
    workers = list(begun)
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()


async def _push(at: Path, variables: Mapping[str, str], machine: str) -> None:
    write_pipeline(at / "pipelines", "orders", machine)
    await _command(at, variables, "pipelines", "push", "pipelines", "--yes")


async def _say_landed(at: Path, variables: Mapping[str, str]) -> None:
    await _command(at, variables, "sensor", "put", "orders", "landed", "rows=12", "--period", today())


async def _send_to_people(place: Installation, *bodies: str) -> None:
    async with client("sqs", place.endpoint) as sqs:
        for body in bodies:
            await sqs.send_message(QueueUrl=place.alerts_queue, MessageBody=body)


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
