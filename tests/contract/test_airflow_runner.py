"""What Airflow is sent, in both versions, and what is made of its answers."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.airflow import AUTH, Airflow, Version
from tests.support.fakes.http_target import (
    Behaviour,
    WebServer,
    a_web_server,
    answer,
    by_path,
    in_turn,
    reset,
)
from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.rest.airflow_versions import KEPT_FOR
from worker.jobs.runner import Config, Failed, Guarantee, Refused, Running, Started, Stopped, Succeeded, Unknown
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient

SECRETS = EnvironmentSecrets({"INTERLOCK_KEY": 'a"key'})
HANDLE = {"token": TOKEN, "dagRunId": TOKEN}


@pytest.fixture(params=["v1", "v2"])
def airflow(request: pytest.FixtureRequest) -> Airflow:
    version: Version = "v1" if request.param == "v1" else "v2"
    return Airflow(version)


@pytest.fixture
async def server(airflow: Airflow) -> AsyncGenerator[WebServer]:
    async with a_web_server(airflow.behave) as served:
        yield served


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def runner(clock: ManualClock) -> AsyncGenerator[AirflowRunner]:
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield AirflowRunner(client, clock, SECRETS)


def job(server: WebServer, **further: Json) -> Config:
    return {"url": server.url("/"), "dagId": "succeeds", "auth": AUTH, **further}


def paths(server: WebServer) -> list[str]:
    return [f"{request.method} {request.path}" for request in server.received]


# --- which interface --------------------------------------------------------------------------------------------------


async def test_the_interface_is_found_out_once_and_asked_for_again_later(
    airflow: Airflow, server: WebServer, runner: AirflowRunner, clock: ManualClock
) -> None:
    config = job(server)
    asked = ["GET /api/v2/version"] if airflow.version == "v2" else ["GET /api/v2/version", "GET /api/v1/version"]

    handle = await started(runner, config)
    await runner.status(handle, config)
    assert [path for path in paths(server) if path.endswith("/version")] == asked
    clock.advance(KEPT_FOR + timedelta(seconds=1))
    await runner.status(handle, config)

    assert [path for path in paths(server) if path.endswith("/version")] == 2 * asked


async def test_a_configured_interface_is_not_asked_for(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    await started(runner, job(server, apiVersion=airflow.version))

    assert [path for path in paths(server) if path.endswith("/version")] == []
    assert f"POST /api/{airflow.version}/dags/succeeds/dagRuns" in paths(server)


@pytest.mark.parametrize("behaviour", [answer(502), answer(200, "<html>"), answer(404), answer(403), reset])
async def test_a_server_that_is_not_known_to_be_airflow_is_sent_nothing(
    behaviour: Behaviour, server: WebServer, runner: AirflowRunner
) -> None:
    server.behaviour = behaviour

    result = await runner.start(a_request(job(server)))
    with pytest.raises(RetryLater):
        await runner.find(TOKEN, job(server))

    assert isinstance(result, Refused)
    assert result.category is FailureCategory.TRANSIENT
    assert {request.method for request in server.received} == {"GET"}


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_dag_run_is_named_by_the_token_and_told_its_conf(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    config = job(server, body={"rows": 5, "key": "${INTERLOCK_KEY}"}, arguments={"day": "20260303"})

    await started(runner, config)

    [sent] = [json.loads(request.body) for request in server.received if request.path.endswith("/dagRuns")]
    assert sent["dag_run_id"] == TOKEN
    assert sent["conf"] == {"rows": 5, "key": 'a"key', "day": "20260303"}
    # Airflow 3 insists on the key, Airflow 2 does not take null.
    assert {"logical_date"} & set(sent) == ({"logical_date"} if airflow.version == "v2" else set())


async def test_a_conf_may_be_written_as_json(airflow: Airflow, server: WebServer, runner: AirflowRunner) -> None:
    await started(runner, job(server, body='{"key": "${INTERLOCK_KEY}", "deep": [1, {"a": null}]}'))

    [run] = airflow.runs.values()
    assert run.conf == {"key": 'a"key', "deep": [1, {"a": None}]}


@pytest.mark.parametrize("body", ["not json", "[1]", "5", "[" * 60_000])
async def test_a_conf_that_is_no_mapping_is_refused_before_anything_is_sent(
    body: str, server: WebServer, runner: AirflowRunner
) -> None:
    result = await runner.start(a_request(job(server, body=body)))

    assert isinstance(result, Refused)
    assert result.category is FailureCategory.PERMANENT
    assert "conf" in result.message
    assert server.received == []


async def test_the_name_of_a_dag_cannot_change_which_address_is_called(
    server: WebServer, runner: AirflowRunner
) -> None:
    await runner.start(a_request(job(server, dagId="../x?y/z")))

    assert server.received[-1].path.endswith("/dags/..%2Fx%3Fy%2Fz/dagRuns")


# --- repeats and conflicts --------------------------------------------------------------------------------------------


async def test_a_repeat_is_recognised_by_looking_at_the_run_that_is_there(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    first, second = [await runner.start(a_request(job(server))) for _ in range(2)]

    assert first == second == Started(HANDLE)
    assert len(airflow.runs) == 1
    assert runner.traits(job(server)).guarantee is Guarantee.EXACTLY_ONCE


async def test_a_logical_date_that_another_run_has_is_no_start(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    config = job(server, logicalDate="2026-03-03T00:00:00Z")

    first = await runner.start(a_request(config))
    second = await runner.start(a_request(config, token="il-2"))

    assert first == Started(HANDLE)
    assert isinstance(second, Refused)
    assert second.category is FailureCategory.PERMANENT
    assert "logical" in second.message
    assert len(airflow.runs) == 1


NOT_AIRFLOWS: list[Behaviour] = [answer(404, "<h1>no such service</h1>"), answer(404, {"detail": "Not Found"})]


@pytest.mark.parametrize("behaviour", NOT_AIRFLOWS, ids=["proxy", "other-version"])
async def test_a_run_is_not_missing_because_nobody_there_knows_of_runs(
    behaviour: Behaviour, airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    auth: Json = {"type": "bearer", "token": "t0ken"}
    server.behaviour = behaviour

    with pytest.raises(RetryLater):
        await runner.find(TOKEN, job(server, apiVersion=airflow.version, auth=auth))


@pytest.mark.parametrize(
    "look",
    [answer(500), answer(200, "<html>"), reset, *NOT_AIRFLOWS],
    ids=["500", "html", "reset", "proxy", "other-version"],
)
async def test_a_conflict_that_cannot_be_looked_into_is_unknown(
    look: Behaviour, airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    conflict = answer(409, {"detail": "exists"})
    server.behaviour = in_turn(conflict, look)
    auth: Json = {"type": "bearer", "token": "t0ken"}

    result = await runner.start(a_request(job(server, apiVersion=airflow.version, auth=auth)))

    assert isinstance(result, Unknown)


async def test_a_conflict_is_unknown_when_the_look_at_it_is_not_let_in(runner: AirflowRunner) -> None:
    logins = in_turn(answer(201, {"access_token": "first"}), answer(401, {"detail": "Invalid credentials"}))
    calls = in_turn(answer(409, {"detail": "exists"}), answer(403, {"detail": "Token Expired"}))
    async with a_web_server(by_path(auth=logins, api=calls)) as server:
        result = await runner.start(a_request(job(server, apiVersion="v2")))

    assert isinstance(result, Unknown)


async def test_an_address_that_may_not_be_reached_is_refused_for_good_though_its_version_is_not_known() -> None:
    async with a_web_server() as server, HttpClient(AddressPolicy()) as client:
        result = await AirflowRunner(client, ManualClock(), SECRETS).start(a_request(job(server)))

    assert isinstance(result, Refused)
    assert result.category is FailureCategory.PERMANENT
    assert server.connections == 0


# --- states and stops -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [("queued", Running), ("running", Running), ("success", Succeeded), ("failed", Failed)],
)
async def test_every_state_of_a_dag_run_is_understood(
    state: str, expected: type, airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    handle = await started(runner, job(server))
    airflow.runs["succeeds", TOKEN].state = state

    status = await runner.status(handle, job(server))

    assert isinstance(status, expected)
    if isinstance(status, Succeeded | Failed):
        assert status.ended_at == datetime(2026, 3, 3, 12, 0, 0, 250_000, tzinfo=UTC)


async def test_a_state_nobody_has_heard_of_is_not_an_end(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    server.behaviour = answer(200, {"dag_run_id": TOKEN, "state": "hibernating"})
    auth: Json = {"type": "bearer", "token": "t0ken"}

    status = await runner.status(HANDLE, job(server, apiVersion=airflow.version, auth=auth))

    assert status == Running("hibernating")


async def test_a_run_that_is_over_is_never_marked_failed(
    airflow: Airflow, server: WebServer, runner: AirflowRunner
) -> None:
    handle = await started(runner, job(server))

    assert await runner.stop(handle, job(server)) == Stopped()
    assert airflow.runs["succeeds", TOKEN].state == "success"
    assert "PATCH" not in {request.method for request in server.received}


# --- tokens of Airflow 3 ----------------------------------------------------------------------------------------------


async def test_a_name_and_a_password_buy_a_token_that_is_kept_and_replaced(runner: AirflowRunner) -> None:
    airflow = Airflow("v2")
    async with a_web_server(airflow.behave) as server:
        config = job(server, dagId="runs_on")
        handle = await started(runner, config)
        await runner.status(handle, config)
        airflow.token = "the-next-one"
        await runner.status(handle, config)

    assert paths(server).count("POST /auth/token") == 2


async def test_a_wrong_password_starts_nothing_and_is_not_told(runner: AirflowRunner) -> None:
    airflow = Airflow("v2")
    async with a_web_server(airflow.behave) as server:
        auth: Json = {"type": "basic", "username": "interlock", "password": "${INTERLOCK_KEY}"}
        result = await runner.start(a_request(job(server, auth=auth)))

    assert isinstance(result, Refused)
    assert result.category is FailureCategory.PERMANENT
    assert "no access token" in result.message
    assert 'a"key' not in result.message
    assert airflow.runs == {}
