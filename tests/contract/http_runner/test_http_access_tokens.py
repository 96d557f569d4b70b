"""Access tokens of HTTP jobs: fetched once, used until they expire or are refused."""

import asyncio
from datetime import timedelta

import pytest

from tests.contract.http_runner.httpjobs import HERE, PERMANENT, SECRETS, TRANSIENT, job, oauth
from tests.support.builders.runners import a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.http_target import Behaviour, Received, WebServer, answer, by_path, in_turn, reset
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.http.runner import HttpRunner
from worker.jobs.runner import Refused, Started
from worker.net.http_client import HttpClient


async def test_an_access_token_is_fetched_once_and_used_until_it_expires(server: WebServer) -> None:
    clock = ManualClock()
    server.behaviour = by_path(
        token=in_turn(
            answer(200, {"access_token": "first", "expires_in": 3600}),
            answer(200, {"access_token": "second", "expires_in": 3600}),
        ),
        start=answer(200),
    )
    async with HttpClient(HERE) as client:
        runner = HttpRunner(client, clock, SECRETS)
        for _ in range(2):
            await runner.start(a_request(job(server, auth=oauth(server))))
        clock.advance(timedelta(hours=1))
        await runner.start(a_request(job(server, auth=oauth(server))))

    assert [request.path for request in server.received] == ["/token", "/start", "/start", "/token", "/start"]
    assert server.received[0].body == (
        b"grant_type=client_credentials&client_id=interlock&client_secret=hunter%2222&scope=jobs"
    )
    used = [request.headers["authorization"] for request in server.received if request.path == "/start"]
    assert used == ["Bearer first", "Bearer first", "Bearer second"]


async def test_an_access_token_that_is_said_to_last_beyond_all_numbers_is_used_for_a_day(server: WebServer) -> None:
    clock = ManualClock()
    server.behaviour = by_path(token=answer(200, {"access_token": "t0ken", "expires_in": 10**400}), start=answer(200))
    async with HttpClient(HERE) as client:
        runner = HttpRunner(client, clock, SECRETS)
        for wait in (timedelta(), timedelta(hours=23), timedelta(hours=1)):
            clock.advance(wait)
            assert isinstance(await runner.start(a_request(job(server, auth=oauth(server)))), Started)

    assert [request.path for request in server.received] == ["/token", "/start", "/start", "/token", "/start"]


async def test_starts_that_come_together_fetch_one_access_token(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(token=answer(200, {"access_token": "t0ken"}), start=answer(200))
    config = job(server, auth=oauth(server))

    async with asyncio.TaskGroup() as starts:
        for number in range(20):
            starts.create_task(runner.start(a_request(config, token=f"il-{number}")))

    assert [request.path for request in server.received].count("/token") == 1


async def test_starts_that_are_refused_together_fetch_one_new_access_token(
    server: WebServer, runner: HttpRunner
) -> None:
    accepted = "first"

    async def guarded(request: Received, writer: asyncio.StreamWriter) -> None:
        is_known = request.headers["authorization"] == f"Bearer {accepted}"
        await answer(200 if is_known else 401)(request, writer)

    tokens = in_turn(answer(200, {"access_token": "first"}), answer(200, {"access_token": "second"}))
    server.behaviour = by_path(token=tokens, start=guarded)
    config = job(server, auth=oauth(server))
    await started(runner, config)
    accepted = "second"

    async with asyncio.TaskGroup() as starts:
        tasks = [starts.create_task(runner.start(a_request(config, token=f"il-{number}"))) for number in range(20)]

    assert {type(task.result()) for task in tasks} == {Started}
    assert [request.path for request in server.received].count("/token") == 2


async def test_an_oauth_client_may_name_itself_in_the_header(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(token=answer(200, {"access_token": "t0ken"}), start=answer(200))
    auth: Json = {
        "type": "oauth",
        "tokenUrl": server.url("/token"),
        "clientId": "${INTERLOCK_USER}",
        "clientSecret": "tiger",
        "scope": "all-apis",
        "clientIn": "header",
    }

    await runner.start(a_request(job(server, auth=auth)))

    assert server.received[0].headers["authorization"] == "Basic c2NvdHQ6dGlnZXI="
    assert server.received[0].body == b"grant_type=client_credentials&scope=all-apis"
    assert server.received[1].headers["authorization"] == "Bearer t0ken"


async def test_a_refused_access_token_is_replaced_once(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(
        token=answer(200, {"access_token": "t0ken"}), start=in_turn(answer(200), answer(401), answer(401), answer(200))
    )
    config = job(server, auth=oauth(server))

    results = [await runner.start(a_request(config)) for _ in range(2)]

    assert [type(result) for result in results] == [Started, Refused]
    assert [request.path for request in server.received] == ["/token", "/start", "/start", "/token", "/start"]


async def test_the_time_a_start_may_take_includes_everything_it_may_do(server: WebServer, runner: HttpRunner) -> None:
    plain, with_tokens = job(server, timeout=45), job(server, timeout=45, auth=oauth(server))

    assert runner.traits(plain).send_timeout == timedelta(seconds=45)
    assert runner.traits(with_tokens).send_timeout == timedelta(seconds=110)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (answer(401, "unknown client"), PERMANENT),
        (answer(429), TRANSIENT),
        (answer(500), TRANSIENT),
        (answer(200, "no json"), TRANSIENT),
        (reset, TRANSIENT),
    ],
)
async def test_without_an_access_token_nothing_is_started(
    behaviour: Behaviour, expected: FailureCategory, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = by_path(token=behaviour)

    result = await runner.start(a_request(job(server, auth=oauth(server))))

    assert isinstance(result, Refused)
    assert result.category is expected
    assert [request.path for request in server.received if request.path != "/token"] == []


async def test_a_token_is_not_fetched_from_a_forbidden_place(server: WebServer, runner: HttpRunner) -> None:
    auth: Json = {**oauth(server), "tokenUrl": "http://169.254.169.254/token"}

    result = await runner.start(a_request(job(server, auth=auth)))

    assert isinstance(result, Refused)
    assert "INTERLOCK_HTTP_ALLOW" in result.message
    assert (result.category, result.is_final) == (FailureCategory.PERMANENT, True)
    assert server.received == []
