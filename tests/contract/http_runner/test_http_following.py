"""HTTP jobs that are followed: polled, found again by their token, and stopped."""

import json

import pytest

from tests.contract.http_runner.httpjobs import TIMEOUT, TRANSIENT, followed, job
from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.fakes.http_target import (
    Behaviour,
    WebServer,
    answer,
    break_off,
    by_path,
    in_turn,
    reset,
)
from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.jobs.http.runner import HttpRunner
from worker.jobs.runner import CannotStop, Config, Failed, Guarantee, Running, StopAccepted, Succeeded, Unknown


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
    [(answer(200), StopAccepted), (answer(404), StopAccepted), (answer(409), StopAccepted), (answer(403), CannotStop)],
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
