"""What the answer to the start of an HTTP job means, and what it means that none came."""

from datetime import timedelta

import pytest

from tests.contract.http_runner.httpjobs import PERMANENT, SECRETS, TRANSIENT, job
from tests.support.builders.runners import a_request, started
from tests.support.clock.manual import NOON, ManualClock
from tests.support.fakes.http_target import (
    Behaviour,
    Names,
    WebServer,
    a_web_server,
    answer,
    break_off,
    hang,
    in_turn,
    reset,
)
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.http.runner import HttpRunner
from worker.jobs.messages import MESSAGE_BYTES_MAX
from worker.jobs.runner import Config, Refused, Started, Stopped, Succeeded, Unknown
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient


async def test_without_a_status_url_the_answer_is_the_end(server: WebServer, runner: HttpRunner) -> None:
    handle = await started(runner, job(server))

    assert await runner.status(handle, job(server)) == Succeeded(NOON)
    assert await runner.stop(handle, job(server)) == Stopped()
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (answer(400, "bad"), PERMANENT),
        (answer(401), PERMANENT),
        (answer(403), PERMANENT),
        (answer(404), PERMANENT),
        (answer(409), PERMANENT),
        (answer(422), PERMANENT),
        (answer(408), TRANSIENT),
        (answer(429), TRANSIENT),
        (answer(503, Retry_After="5"), TRANSIENT),
        (break_off(400), PERMANENT),
        (answer(302, Location="/moved"), PERMANENT),
        (answer(300), PERMANENT),
    ],
    ids=["400", "401", "403", "404", "409", "422", "408", "429", "503-retry-after", "400-broken-off", "302", "300"],
)
async def test_a_start_that_was_turned_away_is_refused(
    behaviour: Behaviour, expected: FailureCategory, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = behaviour

    result = await runner.start(a_request(job(server)))

    assert isinstance(result, Refused)
    assert result.category is expected
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("120", timedelta(minutes=2)),
        ("Tue, 03 Mar 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Tue, 03 Mar 2026 11:00:00 GMT", timedelta()),
        ("99999999999", timedelta(days=1)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(days=1)),
        ("Tue, 03 Mar 99999999999999999999 12:00:00 GMT", None),
        ("soon", None),
        ("-5", None),
    ],
)
async def test_how_long_a_target_wants_to_be_spared_is_passed_on(
    told: str, expected: timedelta | None, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = answer(429, Retry_After=told, Date="Tue, 03 Mar 2026 12:00:00 GMT")

    result = await runner.start(a_request(job(server)))

    assert isinstance(result, Refused)
    assert result.retry_after == expected


@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "behaviour",
    [answer(500), answer(502), answer(503), answer(101), reset, break_off(200)],
    ids=["500", "502", "503", "101", "reset", "broken-off"],
)
async def test_a_start_that_may_have_arrived_is_unknown_and_never_repeated(
    method: str, behaviour: Behaviour, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = behaviour

    result = await runner.start(a_request(job(server, method=method)))

    assert isinstance(result, Unknown)
    assert len(server.received) == 1


async def test_a_target_that_does_not_answer_leaves_the_start_unknown(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = hang

    result = await runner.start(a_request(job(server, timeout=1)))

    assert isinstance(result, Unknown)
    assert "no answer in time" in result.message


async def test_a_connection_that_cannot_be_made_is_tried_again_because_nothing_was_sent(server: WebServer) -> None:
    names = Names(target_example=[[], [], ["127.0.0.1"]])
    async with HttpClient(AddressPolicy.parse(["target.example"]), resolver=names) as client:
        runner = HttpRunner(client, ManualClock(), SECRETS)

        result = await runner.start(a_request({"url": server.url(host="target.example")}))

    assert isinstance(result, Started)
    assert len(names.asked) == 3
    assert len(server.received) == 1


async def test_a_target_that_is_not_there_refuses_for_now(runner: HttpRunner) -> None:
    async with a_web_server() as gone:
        config = job(gone)

    result = await runner.start(a_request(config))

    assert isinstance(result, Refused)
    assert result.category is TRANSIENT


async def test_a_worker_that_may_not_send_any_more_lets_nothing_out(server: WebServer, runner: HttpRunner) -> None:
    result = await runner.start(a_request(job(server), may_send=lambda: False))

    assert isinstance(result, Refused)
    assert result.category is TRANSIENT
    assert server.received == []


async def test_the_permission_to_send_is_asked_for_when_the_connection_stands_and_not_before(
    server: WebServer, runner: HttpRunner
) -> None:
    asked: list[str] = []

    def may_send(where: str) -> bool:
        asked.append(where)
        return True

    async with a_web_server() as gone:
        nowhere = job(gone)
    await runner.start(a_request(nowhere, may_send=lambda: may_send("nowhere")))
    await runner.start(a_request(job(server), may_send=lambda: may_send("here")))

    assert asked == ["here"]


async def test_starts_do_not_share_a_connection_that_may_have_gone_stale(server: WebServer, runner: HttpRunner) -> None:
    await runner.start(a_request(job(server)))
    await runner.start(a_request(job(server)))

    assert server.connections == 2


async def test_a_flood_of_an_answer_is_read_in_bounds(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = in_turn(answer(400, "x" * 3_000_000), answer(200, "x" * 3_000_000))

    refused = await runner.start(a_request(job(server)))
    accepted = await runner.start(a_request(job(server)))

    assert isinstance(refused, Refused)
    assert len(refused.message.encode()) == MESSAGE_BYTES_MAX
    assert isinstance(accepted, Started)


async def test_a_target_that_repeats_our_secrets_does_not_get_them_into_messages(
    server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = answer(400, {"you sent": 'hunter"22', "and": "c2NvdHQ6dGlnZXI=", "bell": "\x07"})
    auth: Json = {"type": "basic", "username": "${INTERLOCK_USER}", "password": "tiger"}

    result = await runner.start(a_request(job(server, headers={"X-Key": "${INTERLOCK_KEY}"}, auth=auth)))

    assert isinstance(result, Refused)
    assert "hunter" not in result.message
    assert "c2NvdHQ6dGlnZXI=" not in result.message
    assert "you sent" in result.message


@pytest.mark.parametrize(
    "config",
    [
        {"url": "ftp://example.com"},
        {"url": "http://"},
        {"url": "https://example.com", "headers": {"X": "a\nb"}},
        {"url": "https://example.com", "headers": {"X": "${INTERLOCK_NOBODY_SET_IT}"}},
    ],
)
async def test_a_request_that_cannot_be_made_is_refused_for_good(config: Config, runner: HttpRunner) -> None:
    result = await runner.start(a_request(config))

    assert isinstance(result, Refused)
    assert result.category is PERMANENT
