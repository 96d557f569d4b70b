"""Where HTTP jobs may lead: redirects that are followed, and addresses that are never connected to."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.http_runner.httpjobs import HERE, PERMANENT, SECRETS, job, oauth
from tests.support.builders.runners import TOKEN, a_request
from tests.support.clock.manual import ManualClock
from tests.support.fakes.http_target import Names, WebServer, a_web_server, answer, by_path
from worker.core.model.values import Json
from worker.jobs.http.runner import HttpRunner
from worker.jobs.runner import Config, Refused, Started
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient, NotSent, Request, onward


async def test_a_redirect_that_keeps_the_method_is_followed(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(start=answer(307, Location="/there?x=1"), there=answer(200))

    result = await runner.start(a_request(job(server, headers={"X-Key": "k"}, body="hello")))

    assert isinstance(result, Started)
    last = server.received[-1]
    assert (last.method, last.path, last.body, last.headers["x-key"]) == ("POST", "/there?x=1", b"hello", "k")
    assert last.headers["idempotency-key"] == TOKEN


async def test_see_other_means_that_the_job_was_taken(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = answer(303, Location="/elsewhere")

    assert isinstance(await runner.start(a_request(job(server))), Started)
    assert len(server.received) == 1


async def test_credentials_do_not_follow_a_redirect_to_another_origin(server: WebServer, runner: HttpRunner) -> None:
    async with a_web_server() as other:
        server.behaviour = answer(307, Location=other.url("/there"))
        auth: Json = {"type": "bearer", "token": "t0ken"}

        await runner.start(a_request(job(server, headers={"X-Key": "k"}, auth=auth)))

    assert "authorization" in server.received[0].headers
    assert {"authorization", "x-key"}.isdisjoint(other.received[0].headers)
    assert other.received[0].headers["idempotency-key"] == TOKEN


@pytest.mark.parametrize("body", ["key=${INTERLOCK_KEY}", {"key": "${INTERLOCK_KEY}"}])
async def test_a_body_that_holds_a_secret_does_not_follow_a_redirect_to_another_origin(
    body: Json, server: WebServer, runner: HttpRunner
) -> None:
    async with a_web_server() as other:
        server.behaviour = answer(307, Location=other.url("/there"))

        refused = await runner.start(a_request(job(server, body=body)))
        await runner.start(a_request(job(server, body="plain")))

    assert isinstance(refused, Refused)
    assert refused.category is PERMANENT
    assert [request.body for request in other.received] == [b"plain"]


async def test_the_secret_of_an_oauth_client_does_not_follow_a_redirect_to_another_origin(
    server: WebServer, runner: HttpRunner
) -> None:
    async with a_web_server() as other:
        server.behaviour = answer(307, Location=other.url("/token"))

        assert isinstance(await runner.start(a_request(job(server, auth=oauth(server)))), Refused)

    assert other.received == []


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://localhost/", "file:///etc/passwd", "http://"],
)
async def test_a_redirect_to_a_forbidden_place_is_not_followed(
    location: str, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = answer(307, Location=location)

    result = await runner.start(a_request(job(server)))

    assert isinstance(result, Refused)
    assert result.category is PERMANENT


async def test_redirects_end(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = answer(307, Location="/start")

    result = await runner.start(a_request(job(server)))

    assert isinstance(result, Refused)
    assert len(server.received) == 6


def test_a_redirect_never_leaves_encryption() -> None:
    request = Request(method="POST", url="https://example.com/start")

    assert isinstance(onward(request, "http://example.com/start"), NotSent)
    assert isinstance(onward(request, "/next"), Request)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "inside.example"]
)
async def test_a_forbidden_address_is_never_connected_to(host: str, server: WebServer) -> None:
    names = Names(inside_example=[["127.0.0.1"]], **{"2130706433": [["127.0.0.1"]], "0x7f_1": [["127.0.0.1"]]})
    async with HttpClient(AddressPolicy(), resolver=names) as client:
        runner = HttpRunner(client, ManualClock(), SECRETS)

        result = await runner.start(a_request({"url": server.url(host=host)}))

    assert isinstance(result, Refused)
    assert result.category is PERMANENT
    assert "INTERLOCK_HTTP_ALLOW" in result.message or "not a canonical IPv4 address" in result.message
    assert result.is_final is ("INTERLOCK_HTTP_ALLOW" in result.message)
    assert server.connections == 0


async def test_names_are_found_although_every_thread_of_the_loop_is_busy(server: WebServer) -> None:
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        busy = asyncio.create_task(asyncio.to_thread(is_over.wait))
        await asyncio.sleep(0)
        try:
            async with HttpClient(AddressPolicy.parse(["localhost"])) as client:
                config: Config = {"url": server.url(host="localhost"), "timeout": 5}
                result = await HttpRunner(client, ManualClock(), SECRETS).start(a_request(config))
        finally:
            is_over.set()
            await busy

    assert isinstance(result, Started)


async def test_a_name_that_turns_inward_between_two_requests_is_refused_then(server: WebServer) -> None:
    names = Names(fickle_example=[["127.0.0.1"], ["10.0.0.1"]])
    async with HttpClient(HERE, resolver=names) as client:
        runner = HttpRunner(client, ManualClock(), SECRETS)
        config: Config = {"url": server.url(host="fickle.example")}

        first = await runner.start(a_request(config))
        second = await runner.start(a_request(config))

    assert isinstance(first, Started)
    assert isinstance(second, Refused)
    assert second.category is PERMANENT
