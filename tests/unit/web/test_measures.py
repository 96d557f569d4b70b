"""Requests are measured by the template of their route, their method and the class of their status."""

import httpx
import pytest

from tests.support.clock.manual import ManualClock
from tests.support.worlds.console import a_console_world
from worker.telemetry.meters import Meters, Metric
from worker.web.asgi import Receive, Scope, Send, respond
from worker.web.guard import STREAM
from worker.web.measures import measured


class ScriptedApp:
    """Answers as its paths say."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/broken":
            raise ConnectionError
        await respond(send, 404 if scope["path"] == "/unknown" else 200, b"{}")


def client(meters: Meters, clock: ManualClock) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(measured(ScriptedApp(), meters, clock))
    return httpx.AsyncClient(transport=transport, base_url="http://console")


def labels(meters: Meters) -> dict[object, int]:
    return {each.label: sum(each.counts) for each in meters.distributions() if each.metric is Metric.WEB_REQUEST}


async def test_an_unknown_path_and_method_make_no_new_label() -> None:
    meters, clock = Meters(), ManualClock()
    async with client(meters, clock) as asking:
        for number in range(3):
            await asking.get(f"/{number}")
        await asking.get("/unknown")
        await asking.request("BREW", "/")
        await asking.get("/livez")

    assert labels(meters) == {
        ("none", "GET", "2xx"): 3,
        ("none", "GET", "4xx"): 1,
        ("none", "other", "2xx"): 1,
        ("/livez", "GET", "2xx"): 1,
    }


async def test_a_request_without_a_response_counts_and_a_stream_does_not() -> None:
    meters, clock = Meters(), ManualClock()
    async with client(meters, clock) as asking:
        with pytest.raises(ConnectionError):
            await asking.get("/broken")
        await asking.get(STREAM)

    assert labels(meters) == {("none", "GET", "none"): 1}


async def test_pages_and_the_api_are_told_apart_by_the_templates_of_their_routes() -> None:
    meters = Meters()
    async with a_console_world() as world:
        transport = httpx.ASGITransport(measured(world.guard, meters, world.clock))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8040") as asking:
            for path in ("/", "/pipelines/a", "/pipelines/b", "/api/v1/pipelines/a", "/api/v1/runs", "/nowhere"):
                await asking.get(path)

    assert labels(meters) == {
        ("/", "GET", "2xx"): 1,
        ("/pipelines/{pipeline}", "GET", "4xx"): 2,
        ("/api/v1/pipelines/{pipeline}", "GET", "4xx"): 1,
        ("/api/v1/runs", "GET", "2xx"): 1,
        ("none", "GET", "4xx"): 1,
    }
