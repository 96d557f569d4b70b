"""The health page and its probe, over real loopback sockets."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import aiohttp
import pytest

from tests.support.builders.command_line import TODAY
from tests.support.clock.manual import ManualClock
from worker.app.web import stale_lists
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.telemetry.meters import Meters, Metric
from worker.web.addresses import Address, parse_address
from worker.web.health import HealthPages, HealthProblem
from worker.web.live.mirror import Mirror
from worker.web.live.updates import LiveUpdates
from worker.web.probe import probe
from worker.web.server import WebServer

SETTING = "INTERLOCK_HEALTH"


@dataclass
class Patient:
    """A worker whose state is said by the test."""

    ill: list[HealthProblem] = field(default_factory=list[HealthProblem])
    idle: list[HealthProblem] = field(default_factory=list[HealthProblem])
    outage: HealthProblem | None = None

    def ailments(self) -> Sequence[HealthProblem]:
        return self.ill

    def hindrances(self) -> Sequence[HealthProblem]:
        return self.idle

    def store_outage(self) -> HealthProblem | None:
        return self.outage


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
async def address(patient: Patient) -> AsyncGenerator[str]:
    meters = Meters()
    meters.add(Metric.RUNS_STARTED, 3)
    server = WebServer(Address("127.0.0.1", 0), HealthPages(patient, meters), setting=SETTING)
    bound = await server.start()
    yield f"{bound.host}:{bound.port}"
    await server.stop()


async def test_a_worker_without_findings_is_healthy_and_ready(address: str) -> None:
    assert await _get(address, "/healthz") == (200, '{"ok": true, "why": []}')
    assert await _get(address, "/readyz") == (200, '{"ok": true, "why": []}')


class ControlledSource:
    """News whose reading ends as the test says."""

    interval_s = 5.0

    def __init__(self) -> None:
        self.error: WorkerError | None = None

    async def load(self, mirror: Mirror) -> AsyncGenerator[bool]:
        await self.read(mirror)
        yield True

    async def read(self, mirror: Mirror) -> None:
        if self.error is not None:
            raise self.error


async def test_a_load_balancer_avoids_a_console_whose_lists_stand_still_while_somebody_looks() -> None:
    clock, source = ManualClock(TODAY), ControlledSource()
    live = LiveUpdates(source, clock)
    await live.fresh()
    assert stale_lists(live) == ()

    for _ in range(11):  # somebody looks twice a minute, and nothing reads
        live.touch()
        assert stale_lists(live) == ()
        clock.advance(timedelta(seconds=30))
    live.touch()

    [problem] = stale_lists(live)
    assert "not updated for 330 s" in problem.text
    await live.fresh()
    assert stale_lists(live) == ()


async def test_a_console_that_nobody_looked_at_for_hours_is_live_and_has_its_time_when_somebody_does() -> None:
    clock = ManualClock(TODAY)
    live = LiveUpdates(ControlledSource(), clock)
    await live.fresh()
    clock.advance(timedelta(hours=2))
    assert stale_lists(live) == ()

    live.touch()

    assert stale_lists(live) == ()


async def test_a_console_without_its_store_is_live_because_another_would_have_the_same_problem() -> None:
    clock, source = ManualClock(TODAY), ControlledSource()
    live = LiveUpdates(source, clock)
    await live.fresh()
    source.error = RetryLater("no route to the store")
    for _ in range(12):
        clock.advance(timedelta(seconds=30))
        await live.fresh()

    assert live.outage
    assert stale_lists(live) == ()


async def test_the_page_for_load_balancers_says_what_is_wrong() -> None:
    pages = HealthPages(Patient(), Meters(), lambda: (HealthProblem("the lists stand still"),))
    server = WebServer(Address("127.0.0.1", 0), pages, setting=SETTING)
    bound = await server.start()
    try:
        live = await _get(f"{bound.host}:{bound.port}", "/livez")
        healthy = await _get(f"{bound.host}:{bound.port}", "/healthz")
    finally:
        await server.stop()

    assert live == (503, '{"ok": false, "why": ["the lists stand still"]}')
    assert healthy[0] == 200


async def test_a_worker_that_cannot_work_is_healthy_and_says_why_it_is_not_ready(
    address: str, patient: Patient
) -> None:
    patient.idle.append(HealthProblem("it has no session"))

    assert (await _get(address, "/healthz"))[0] == 200
    assert await _get(address, "/readyz") == (503, '{"ok": false, "why": ["it has no session"]}')


async def test_an_outage_of_the_store_is_on_both_pages_and_no_reason_to_replace_the_worker(
    address: str, patient: Patient
) -> None:
    patient.outage = HealthProblem("the store cannot be written for 12 s: its disk is full")
    patient.idle.append(patient.outage)

    status, text = await _get(address, "/healthz")
    assert (status, json.loads(text)) == (200, {"ok": True, "why": [], "store": patient.outage.text})
    status, text = await _get(address, "/readyz")
    assert (status, json.loads(text)["why"]) == (503, [patient.outage.text])


async def test_the_probe_tells_the_healthy_from_the_ill(address: str, patient: Patient) -> None:
    said = io.StringIO()

    assert await asyncio.to_thread(probe, address, say=said) == 0
    patient.ill.append(HealthProblem("the loop is 2 s late"))
    assert await asyncio.to_thread(probe, address, say=said) == 1
    assert "the loop is 2 s late" in said.getvalue()


def test_no_answer_is_not_health() -> None:
    assert probe("127.0.0.1:1", say=io.StringIO()) == 1
    assert probe("", say=io.StringIO()) == 1


async def test_metrics_are_served_as_prometheus_reads_them(address: str) -> None:
    status, text = await _get(address, "/metrics")

    assert status == 200
    assert "interlock_runs_started_total 3.0" in text


async def test_an_address_that_is_taken_is_said_with_what_to_do(address: str) -> None:
    server = WebServer(parse_address(SETTING, address), HealthPages(Patient(), Meters()), setting=SETTING)

    with pytest.raises(ConfigError, match="INTERLOCK_HEALTH"):
        await server.start()
    await server.stop()


@pytest.mark.parametrize("text", ["8080", "host:", ":80", "host:http", "host:70000", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"INTERLOCK_HEALTH is .* use HOST:PORT"):
        parse_address(SETTING, text)


async def _get(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
        return answer.status, await answer.text()


async def test_somebody_who_is_slow_to_ask_does_not_hold_up_the_end(patient: Patient) -> None:
    server = WebServer(Address("127.0.0.1", 0), HealthPages(patient, Meters()), setting=SETTING)
    bound = await server.start()
    reader, writer = await asyncio.open_connection(bound.host, bound.port)
    writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf of it")
    assert b"405" in await reader.readline()  # answered, and the rest of the question is still to come

    async with asyncio.timeout(5):
        await server.stop()
    writer.close()
