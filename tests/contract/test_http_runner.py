"""HTTP jobs against a real server that resets, hangs, redirects, lies and floods."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest

from tests.httptarget import (
    Behaviour,
    Names,
    Received,
    WebServer,
    a_web_server,
    answer,
    break_off,
    by_path,
    hang,
    in_turn,
    reset,
)
from tests.manualclock import NOON, ManualClock
from tests.runners import DAY, TOKEN, a_request, started
from worker.core.errors import RetryLater
from worker.core.outcomes import FailureCategory
from worker.core.periods import Period
from worker.core.values import Json
from worker.jobs.addresses import AddressPolicy
from worker.jobs.http import HttpRunner
from worker.jobs.http_client import Answer, HttpClient, NotSent, Request, Unanswered, onward
from worker.jobs.messages import MESSAGE_BYTES_MAX
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Refused,
    Running,
    Started,
    Stopped,
    StopPending,
    Succeeded,
    Unknown,
)
from worker.jobs.secrets import EnvironmentSecrets

PERMANENT, TRANSIENT, TIMEOUT = FailureCategory.PERMANENT, FailureCategory.TRANSIENT, FailureCategory.TIMEOUT
SECRETS = EnvironmentSecrets({"INTERLOCK_KEY": 'hunter"22', "INTERLOCK_USER": "scott"})
HERE = AddressPolicy.parse(["127.0.0.1"])


@pytest.fixture
async def server() -> AsyncGenerator[WebServer]:
    async with a_web_server() as served:
        yield served


@pytest.fixture
async def runner() -> AsyncGenerator[HttpRunner]:
    async with HttpClient(HERE) as client:
        yield HttpRunner(client, ManualClock(), SECRETS)


def job(server: WebServer, **further: Json) -> Config:
    return {"url": server.url("/start"), **further}


def followed(server: WebServer, **further: Json) -> Config:
    return job(server, statusUrl=server.url("/status/{id}"), **further)


# --- what is sent -----------------------------------------------------------------------------------------------------


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


# --- what a start's answer means --------------------------------------------------------------------------------------


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
    ],
    ids=["400", "401", "403", "404", "409", "422", "408", "429", "503-retry-after", "400-broken-off", "302"],
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
    [answer(500), answer(502), answer(503), reset, break_off(200)],
    ids=["500", "502", "503", "reset", "broken-off"],
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


# --- redirects and addresses ------------------------------------------------------------------------------------------


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


# --- following --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", Running),
        ("queued", Running),
        ("Succeeded", Succeeded),
        ("FAILED", Failed),
        ("cancelled", Failed),
        ("TIMED_OUT", Failed),
    ],
)
async def test_common_words_for_states_are_understood(
    state: str, expected: type, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = answer(200, {"status": state, "reason": "disk full"})
    config = followed(server)

    status = await runner.status({"token": TOKEN, "id": "7"}, config)

    assert isinstance(status, expected)
    if isinstance(status, Failed):
        assert "disk full" in status.message
        assert status.category is (TIMEOUT if state == "TIMED_OUT" else TRANSIENT)


async def test_configured_states_are_taken_as_written(server: WebServer, runner: HttpRunner) -> None:
    config = followed(server, statusPath="runs.0.code", succeededValues=["0"], failedValues=["3"])
    handle: Config = {"token": TOKEN, "id": "7"}
    server.behaviour = in_turn(
        answer(200, {"runs": [{"code": 0}]}),
        answer(200, {"runs": [{"code": 3}]}),
        answer(200, {"runs": [{"code": "done"}]}),
    )

    statuses = [await runner.status(handle, config) for _ in range(3)]

    assert [type(status) for status in statuses] == [Succeeded, Failed, Running]


@pytest.mark.parametrize(
    "behaviour",
    [
        answer(401),
        answer(404),
        answer(500, {"status": "succeeded"}),
        answer(200, "<html>succeeded</html>"),
        answer(200, {"state": "succeeded"}),
        answer(200, {"status": {"nested": 1}}),
        answer(200, json.dumps({"status": "succeeded"}) + " " * 100_000),
        answer(200, "[" * 60_000),
        break_off(200),
        reset,
    ],
    ids=["401", "404", "500", "html", "no-state", "no-text", "too-long", "too-deep", "broken-off", "reset"],
)
async def test_a_poll_without_a_usable_answer_decides_nothing(
    behaviour: Behaviour, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = behaviour

    with pytest.raises(RetryLater):
        await runner.status({"token": TOKEN, "id": "7"}, followed(server))


async def test_polls_share_a_connection(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = answer(200, {"status": "running"})
    handle: Config = {"token": TOKEN, "id": "7"}

    for _ in range(3):
        await runner.status(handle, followed(server))

    assert server.connections == 1


async def test_the_targets_own_id_is_used_where_it_gives_one(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(start=answer(202, {"data": {"id": 4711}}), status=answer(200, {"status": "done"}))
    config = followed(server, idPath="data.id")

    handle = await started(runner, config)
    status = await runner.status(handle, config)

    assert isinstance(status, Succeeded)
    assert server.received[-1].path == "/status/4711"


async def test_an_id_cannot_change_which_address_is_polled(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = by_path(start=answer(202, {"id": "../admin?x=/y"}), status=answer(200, {"status": "done"}))
    config = followed(server, idPath="id")

    await runner.status(await started(runner, config), config)

    assert server.received[-1].path == "/status/..%2Fadmin%3Fx=%2Fy"


async def test_an_accepted_start_without_the_promised_id_is_unknown(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = answer(202, {"job": 1})

    result = await runner.start(a_request(followed(server, idPath="data.id")))

    assert isinstance(result, Unknown)
    assert "data.id" in result.message


async def test_a_job_that_calls_back_runs_until_it_does(server: WebServer, runner: HttpRunner) -> None:
    config = job(server, callback=True)

    handle = await started(runner, config)

    assert isinstance(await runner.status(handle, config), Running)


async def test_a_lost_start_is_found_by_its_token(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = in_turn(answer(404), answer(200, {"status": "running"}))
    config = followed(server)

    assert runner.traits(config).guarantee is Guarantee.FOUND_AGAIN
    assert await runner.find(TOKEN, config) is None
    handle = await runner.find(TOKEN, config)

    assert handle
    assert isinstance(await runner.status(handle, config), Running)


@pytest.mark.parametrize("further", [{}, {"statusUrl": "https://example.com/{id}", "idPath": "id"}])
async def test_a_target_that_cannot_recognise_a_token_says_so(
    further: dict[str, Json], server: WebServer, runner: HttpRunner
) -> None:
    config = job(server, **further)

    assert runner.traits(config).guarantee is Guarantee.AT_LEAST_ONCE
    assert await runner.find(TOKEN, config) is None
    assert server.received == []


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [(answer(200), StopPending), (answer(404), StopPending), (answer(409), StopPending), (answer(403), CannotStop)],
)
async def test_a_stop_is_told_to_the_target(
    behaviour: Behaviour, expected: type, server: WebServer, runner: HttpRunner
) -> None:
    server.behaviour = behaviour
    config = followed(server, stopUrl=server.url("/stop/{id}"))

    assert isinstance(await runner.stop({"token": TOKEN, "id": "7"}, config), expected)
    assert (server.received[0].method, server.received[0].path) == ("POST", "/stop/7")


async def test_a_stop_that_did_not_get_through_is_tried_again(server: WebServer, runner: HttpRunner) -> None:
    server.behaviour = answer(500)

    with pytest.raises(RetryLater):
        await runner.stop({"token": TOKEN, "id": "7"}, followed(server, stopUrl=server.url("/stop/{id}")))


async def test_a_job_without_a_stop_url_cannot_be_stopped(server: WebServer, runner: HttpRunner) -> None:
    assert not runner.traits(followed(server)).can_stop
    assert isinstance(await runner.stop({"token": TOKEN, "id": "7"}, followed(server)), CannotStop)


# --- access tokens ----------------------------------------------------------------------------------------------------


def oauth(server: WebServer) -> Mapping[str, Json]:
    return {
        "type": "oauth",
        "tokenUrl": server.url("/token"),
        "clientId": "interlock",
        "clientSecret": "${INTERLOCK_KEY}",
        "scope": "jobs",
    }


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
    assert server.received == []


# --- the client alone -------------------------------------------------------------------------------------------------


async def test_a_time_limit_covers_the_body_too(server: WebServer) -> None:
    async def trickle(_request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nslow")
        await asyncio.Event().wait()

    server.behaviour = trickle
    async with HttpClient(HERE) as client:
        reply = await client.send(
            Request(method="POST", url=server.url(), timeout=timedelta(milliseconds=100), once=True)
        )

    assert isinstance(reply, Answer)
    assert not reply.is_whole


async def test_silence_is_told_from_refusal(server: WebServer) -> None:
    server.behaviour = hang
    async with HttpClient(HERE) as client:
        reply = await client.send(
            Request(method="POST", url=server.url("/x?key=secret"), timeout=timedelta(milliseconds=100), once=True)
        )

    assert reply == Unanswered(f"POST {server.url('/x')}: no answer in time")


def test_the_hour_of_a_period_is_its_part_behind_the_day() -> None:
    def hour_of(period: Period) -> str:
        return a_request({}, period=period).context.par_hour

    assert hour_of(DAY) == ""
    assert hour_of(Period(date(2026, 3, 3), 7)) == "07"
    assert hour_of(Period(date(2026, 3, 3), 23, 30)) == "2330"
