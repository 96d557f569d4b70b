"""What an HTTP job sends: token, secrets, body and credentials, and nothing that gives a secret away."""

import json
from datetime import date

import pytest

from tests.contract.http_runner.httpjobs import HERE, PERMANENT, followed, job
from tests.support.builders.runners import DAY, TOKEN, a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.http_target import WebServer, a_web_server, answer
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.jobs.http.runner import HttpRunner
from worker.jobs.runner import Refused
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.http_client import HttpClient


async def test_a_start_carries_the_token_the_secrets_and_the_query(server: WebServer, runner: HttpRunner) -> None:
    config = job(
        server,
        method="PUT",
        headers={"X-Key": "${INTERLOCK_KEY}", "content-type": "application/vnd.jobs+json"},
        body={"key": "${INTERLOCK_KEY}", "n": 1},
        arguments={"day": "2026-03-03", "q": "a&b"},
    )

    await runner.start(a_request(config))

    [request] = server.received
    assert (request.method, request.path) == ("PUT", "/start?day=2026-03-03&q=a%26b")
    assert request.headers["idempotency-key"] == TOKEN
    assert request.headers["x-key"] == 'hunter"22'
    assert request.headers["content-type"] == "application/vnd.jobs+json"
    assert json.loads(request.body) == {"key": 'hunter"22', "n": 1}


async def test_a_text_body_is_sent_as_it_is_written(server: WebServer, runner: HttpRunner) -> None:
    await runner.start(a_request(job(server, body="<day>3</day> ${INTERLOCK_USER}")))

    assert server.received[0].body == b"<day>3</day> scott"
    assert server.received[0].headers["content-type"] == "application/json"


async def test_an_address_may_be_a_secret_and_stays_one(server: WebServer) -> None:
    server.behaviour = answer(400, "no")
    secrets = EnvironmentSecrets({"INTERLOCK_HOOK": server.url("/hooks/s3cret-path?sig=5igned")})
    async with HttpClient(HERE) as client:
        runner = HttpRunner(client, ManualClock(), secrets)
        refused = await runner.start(a_request({"url": "${INTERLOCK_HOOK}", "arguments": {"day": "3"}}))
        async with a_web_server() as gone:
            nowhere = EnvironmentSecrets({"INTERLOCK_HOOK": gone.url("/hooks/s3cret-path?sig=5igned")})
        unsent = await HttpRunner(client, ManualClock(), nowhere).start(a_request({"url": "${INTERLOCK_HOOK}"}))

    assert server.received[0].path == "/hooks/s3cret-path?sig=5igned&day=3"
    for result in (refused, unsent):
        assert isinstance(result, Refused)
        assert "s3cret" not in result.message
        assert "5igned" not in result.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/start", "http://[::1/start", "${INTERLOCK_NOWHERE}"])
async def test_an_address_that_is_none_is_refused_for_good(url: str) -> None:
    secrets = EnvironmentSecrets({"INTERLOCK_NOWHERE": "http://scott:s3cret/t1ger@example.com/"})
    async with HttpClient(HERE) as client:
        result = await HttpRunner(client, ManualClock(), secrets).start(a_request({"url": url}))

    assert isinstance(result, Refused)
    assert result.category is PERMANENT
    assert "s3cret" not in result.message


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"type": "bearer", "token": "${INTERLOCK_KEY}"}, 'Bearer hunter"22'),
        ({"type": "basic", "username": "${INTERLOCK_USER}", "password": "tiger"}, "Basic c2NvdHQ6dGlnZXI="),
    ],
)
async def test_polls_and_stops_authenticate_as_starts_do(
    auth: Json, header: str, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = answer(200, {"status": "running"})
    config = followed(server, auth=auth, stopUrl=server.url("/stop/{id}"))

    handle = await started(runner, config)
    await runner.status(handle, config)
    await runner.stop(handle, config)

    assert [request.headers["authorization"] for request in server.received] == [header] * 3
    assert [request.path for request in server.received] == ["/start", f"/status/{TOKEN}", f"/stop/{TOKEN}"]


def test_the_hour_of_a_period_is_its_part_behind_the_day() -> None:
    def hour_of(period: Period) -> str:
        return a_request({}, period=period).context.par_hour

    assert hour_of(DAY) == ""
    assert hour_of(Period(date(2026, 3, 3), 7)) == "07"
    assert hour_of(Period(date(2026, 3, 3), 23, 30)) == "2330"
