"""What Databricks is sent, and how it is let in."""

import json
from collections.abc import AsyncGenerator

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.clock.manual import NOON, ManualClock
from tests.support.fakes.databricks import ENDED_AT_MS, PERSONAL_TOKEN, Workspace
from tests.support.fakes.http_target import Received, WebServer, a_web_server, answer, by_path, in_turn
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import CannotStop, Config, Guarantee, Refused, Started, Stopped, Succeeded
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient

SECRETS = EnvironmentSecrets({"INTERLOCK_DATABRICKS": PERSONAL_TOKEN, "INTERLOCK_KEY": 'a"key'})


@pytest.fixture
async def server() -> AsyncGenerator[WebServer]:
    async with a_web_server(Workspace().behave) as served:
        yield served


@pytest.fixture
async def runner() -> AsyncGenerator[DatabricksRunner]:
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield DatabricksRunner(client, ManualClock(), SECRETS)


def job(server: WebServer, **further: Json) -> Config:
    auth: Json = {"type": "bearer", "token": "${INTERLOCK_DATABRICKS}"}
    return {"workspaceUrl": server.url("/"), "auth": auth, **further}


async def the_order(runner: DatabricksRunner, server: WebServer, config: Config) -> tuple[Received, dict[str, Json]]:
    await started(runner, config)
    return server.received[0], json.loads(server.received[0].body)


@pytest.mark.parametrize("named", ["notebook_params", "job_parameters"])
async def test_a_job_is_run_now_with_its_parameters_and_the_token(
    named: str, server: WebServer, runner: DatabricksRunner
) -> None:
    config = job(server, jobId="11", arguments={"day": "20260303", "key": "${INTERLOCK_KEY}"}, argumentsAs=named)

    request, body = await the_order(runner, server, config)

    assert (request.method, request.path) == ("POST", "/api/2.2/jobs/run-now")
    assert body == {"job_id": 11, named: {"day": "20260303", "key": 'a"key'}, "idempotency_token": TOKEN}


async def test_tasks_that_the_pipeline_brings_along_are_submitted(server: WebServer, runner: DatabricksRunner) -> None:
    task = {"task_key": "SUCCEEDS", "notebook_task": {"notebook_path": "/etl", "base_parameters": {"day": "3"}}}
    config = job(server, apiVersion="2.1", body={"tasks": [task], "timeout_seconds": 60, "idempotency_token": "mine"})

    request, body = await the_order(runner, server, config)

    assert (request.method, request.path) == ("POST", "/api/2.1/jobs/runs/submit")
    name = "orders 2026-03-03"
    assert body == {"run_name": name, "tasks": [task], "timeout_seconds": 60, "idempotency_token": TOKEN}


async def test_a_run_is_named_as_the_pipeline_says(server: WebServer, runner: DatabricksRunner) -> None:
    task = {"task_key": "SUCCEEDS", "notebook_task": {"notebook_path": "/etl"}}

    _, body = await the_order(runner, server, job(server, body={"run_name": "nightly", "tasks": [task]}))

    assert body["run_name"] == "nightly"


async def test_the_token_fits_and_starts_exactly_once(server: WebServer, runner: DatabricksRunner) -> None:
    assert len(TOKEN) <= 64
    assert runner.traits(job(server, jobId="11")).guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("what", "problem"),
    [({"jobId": "nightly"}, "number of a job"), ({}, "jobId or body is missing"), ({"jobId": "11", "x": 1}, "x")],
)
async def test_a_job_that_cannot_be_named_is_refused_before_anything_is_sent(
    what: dict[str, Json], problem: str, server: WebServer, runner: DatabricksRunner
) -> None:
    result = await runner.start(a_request(job(server, **what)))

    assert isinstance(result, Refused)
    assert result.category is FailureCategory.PERMANENT
    assert problem in result.message
    assert server.received == []


async def test_success_has_the_time_that_databricks_gives(server: WebServer, runner: DatabricksRunner) -> None:
    config = job(server, jobId="11")

    handle = await started(runner, config)

    assert NOON.timestamp() * 1000 == ENDED_AT_MS
    assert await runner.status(handle, config) == Succeeded(NOON)


async def test_a_run_id_of_64_bits_is_kept_exactly(server: WebServer, runner: DatabricksRunner) -> None:
    server.behaviour = in_turn(answer(200, {"run_id": 2**63 - 1}), answer(200, {}))
    config = job(server, jobId="11")

    handle = await started(runner, config)
    await runner.status(json.loads(json.dumps(handle)), config)

    assert server.received[-1].path == "/api/2.2/jobs/runs/get?run_id=9223372036854775807"


@pytest.mark.parametrize(("state", "expected"), [("TERMINATED", Stopped), ("RUNNING", CannotStop)])
async def test_a_cancel_that_is_refused_is_fine_if_the_run_is_over(
    state: str, expected: type, server: WebServer, runner: DatabricksRunner
) -> None:
    refusal = answer(400, {"error_code": "INVALID_STATE", "message": "no"})
    server.behaviour = in_turn(refusal, answer(200, {"state": {"life_cycle_state": state}}))

    assert isinstance(await runner.stop({"token": TOKEN, "runId": "7"}, job(server, jobId="11")), expected)


# --- machine to machine -----------------------------------------------------------------------------------------------


def m2m(server: WebServer) -> Json:
    return {
        "type": "oauth",
        "tokenUrl": server.url("/oidc/v1/token"),
        "clientId": "service-principal",
        "clientSecret": "${INTERLOCK_KEY}",
        "scope": "all-apis",
        "clientIn": "header",
    }


async def test_a_service_principal_gets_a_token_once_and_a_new_one_when_it_is_refused(
    server: WebServer, runner: DatabricksRunner
) -> None:
    workspace = Workspace(accepted="first")
    tokens = in_turn(
        answer(200, {"access_token": "first", "token_type": "Bearer", "expires_in": 3600}),
        answer(200, {"access_token": "second", "token_type": "Bearer", "expires_in": 3600}),
    )
    server.behaviour = by_path(oidc=tokens, api=workspace.behave)
    config = job(server, jobId="14", auth=m2m(server))

    handle = await started(runner, config)
    await runner.status(handle, config)
    workspace.accepted = "second"
    again = await runner.start(a_request(config))

    assert again == Started(handle)
    calls = [request.path.partition("?")[0].rpartition("/")[2] for request in server.received]
    assert calls == ["token", "run-now", "get", "run-now", "token", "run-now"]
    assert server.received[0].headers["authorization"].startswith("Basic ")
    assert server.received[0].body == b"grant_type=client_credentials&scope=all-apis"


async def test_a_fresh_token_that_is_refused_is_not_replaced(server: WebServer, runner: DatabricksRunner) -> None:
    server.behaviour = by_path(oidc=answer(200, {"access_token": "t0ken"}), api=answer(403, "no rights"))

    result = await runner.start(a_request(job(server, jobId="14", auth=m2m(server))))

    assert isinstance(result, Refused)
    assert [request.path.rpartition("/")[2] for request in server.received] == ["token", "run-now"]
