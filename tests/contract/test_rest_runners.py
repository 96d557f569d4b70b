"""Databricks and Airflow when something is wrong: with the answer, the connection, the credentials or the address."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.airflow import Airflow, Version
from tests.support.fakes.databricks import PERSONAL_TOKEN, Workspace
from tests.support.fakes.http_target import (
    Behaviour,
    Names,
    Received,
    WebServer,
    a_web_server,
    answer,
    break_off,
    hang,
    in_turn,
    reset,
)
from worker.core.errors import RetryLater, WorkerError
from worker.core.run.state import FailureCategory
from worker.jobs.messages import MESSAGE_BYTES_MAX
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import (
    CannotStop,
    Config,
    Handle,
    Refused,
    Runner,
    Running,
    Started,
    StopAccepted,
    Unknown,
)
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient

PERMANENT, TRANSIENT = FailureCategory.PERMANENT, FailureCategory.TRANSIENT
HERE = AddressPolicy.parse(["127.0.0.1"])
SECRETS = EnvironmentSecrets({"INTERLOCK_TOKEN": PERSONAL_TOKEN})
BEARER: Config = {"type": "bearer", "token": "${INTERLOCK_TOKEN}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One target as these tests see it."""

    make: type[DatabricksRunner] | type[AirflowRunner]
    address_key: str
    job: Config  # a job that runs on, without its address
    handle: Handle
    play: Callable[[], Workspace | Airflow]
    running: Mapping[str, object]  # an answer that says so


def _airflow(version: Version) -> Side:
    return Side(
        make=AirflowRunner,
        address_key="url",
        job={"dagId": "runs_on", "apiVersion": version, "auth": BEARER, "timeout": 1},
        handle={"token": TOKEN, "dagRunId": TOKEN},
        play=lambda: Airflow(version, accepted=f"Bearer {PERSONAL_TOKEN}"),
        running={"dag_run_id": TOKEN, "state": "running"},
    )


SIDES = {
    "databricks": Side(
        make=DatabricksRunner,
        address_key="workspaceUrl",
        job={"jobId": "14", "auth": BEARER, "timeout": 1},
        handle={"token": TOKEN, "runId": "455644833"},
        play=Workspace,
        running={"run_id": 455644833, "state": {"life_cycle_state": "RUNNING"}},
    ),
    "airflow-2": _airflow("v1"),
    "airflow-3": _airflow("v2"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    side: Side
    fake: Workspace | Airflow
    server: WebServer
    runner: Runner

    @property
    def config(self) -> Config:
        return {**self.side.job, self.side.address_key: self.server.url("")}


@pytest.fixture(params=SIDES)
async def stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage]:
    side = SIDES[str(request.param)]
    fake = side.play()
    async with a_web_server(fake.behave) as server, HttpClient(HERE) as client:
        yield Stage(side, fake, server, side.make(client, ManualClock(), SECRETS))


def unheard(fake: Workspace | Airflow, instead: Behaviour) -> Behaviour:
    """Let a target do what it is asked, and answer otherwise."""

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        fake.respond(request)
        await instead(request, writer)

    return behave


# --- starts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (answer(400, "bad"), PERMANENT),
        (answer(401), PERMANENT),
        (answer(403), PERMANENT),
        (answer(404), PERMANENT),
        (answer(422), PERMANENT),
        (answer(302, Location="/login"), PERMANENT),
        (answer(408), TRANSIENT),
        (answer(429), TRANSIENT),
        (answer(503, Retry_After="5"), TRANSIENT),
    ],
    ids=["400", "401", "403", "404", "422", "302", "408", "429", "503-retry-after"],
)
async def test_a_start_that_was_turned_away_is_refused(
    behaviour: Behaviour, expected: FailureCategory, stage: Stage
) -> None:
    stage.server.behaviour = behaviour

    result = await stage.runner.start(a_request(stage.config))

    assert isinstance(result, Refused)
    assert result.category is expected
    assert len(stage.server.received) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        answer(500),
        answer(502, "<html>"),
        answer(503),
        reset,
        break_off(200),
        hang,
        answer(200, "<html>please log in</html>"),
        answer(200, {}),
        answer(200, {"run_id": 0, "dag_run_id": "another"}),
        answer(200, {"run_id": "7", "dag_run_id": 7}),
        answer(200, "[" * 60_000),
    ],
    ids=["500", "502", "503", "reset", "broken-off", "silent", "html", "empty", "none", "odd", "too-deep"],
)
async def test_a_start_that_may_have_arrived_is_unknown_and_never_repeated(behaviour: Behaviour, stage: Stage) -> None:
    stage.server.behaviour = behaviour

    result = await stage.runner.start(a_request(stage.config))

    assert isinstance(result, Unknown)
    assert len(stage.server.received) == 1


@pytest.mark.parametrize("failure", [reset, answer(500), break_off(200)], ids=["reset", "500", "broken-off"])
async def test_a_start_whose_answer_was_lost_leads_to_the_same_job(failure: Behaviour, stage: Stage) -> None:
    stage.server.behaviour = unheard(stage.fake, failure)

    lost = await stage.runner.start(a_request(stage.config))
    stage.server.behaviour = stage.fake.behave
    handle = await stage.runner.find(TOKEN, stage.config) or await started(stage.runner, stage.config)

    assert isinstance(lost, Unknown)
    assert handle == stage.side.handle
    assert isinstance(await stage.runner.status(handle, stage.config), Running)
    assert len(stage.fake.runs) == 1


async def test_a_target_that_is_not_there_refuses_for_now(stage: Stage) -> None:
    async with a_web_server() as gone:
        config = {**stage.config, stage.side.address_key: gone.url("")}

    result = await stage.runner.start(a_request(config))

    assert isinstance(result, Refused)
    assert result.category is TRANSIENT


async def test_a_flood_of_an_answer_is_read_in_bounds(stage: Stage) -> None:
    stage.server.behaviour = in_turn(answer(400, "x" * 3_000_000), answer(200, "x" * 6_000_000))

    refused = await stage.runner.start(a_request(stage.config))
    with pytest.raises(RetryLater, match="too long") as caught:
        await stage.runner.status(stage.side.handle, stage.config)

    assert isinstance(refused, Refused)
    assert len(refused.message.encode()) == MESSAGE_BYTES_MAX
    assert len(str(caught.value).encode()) <= MESSAGE_BYTES_MAX


async def test_a_target_that_repeats_our_credentials_does_not_get_them_into_messages(stage: Stage) -> None:
    async def mirror(request: Received, writer: asyncio.StreamWriter) -> None:
        await answer(400, {"message": f"you sent {request.headers['authorization']}"})(request, writer)

    stage.server.behaviour = mirror

    result = await stage.runner.start(a_request(stage.config))

    assert isinstance(result, Refused)
    assert "you sent" in result.message
    assert PERSONAL_TOKEN not in result.message


# --- polls and stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [
        answer(400),
        answer(401),
        answer(403),
        answer(404),
        answer(409),
        answer(429),
        answer(500),
        answer(200, "<html>success</html>"),
        answer(200, ["success"]),
        answer(200, "[" * 60_000),
        break_off(200),
        reset,
        hang,
    ],
    ids=["400", "401", "403", "404", "409", "429", "500", "html", "list", "too-deep", "broken-off", "reset", "silent"],
)
async def test_a_poll_without_a_usable_answer_decides_nothing(behaviour: Behaviour, stage: Stage) -> None:
    stage.server.behaviour = behaviour

    with pytest.raises(RetryLater):
        await stage.runner.status(stage.side.handle, stage.config)


async def test_a_run_with_very_many_tasks_is_read_all_the_same(stage: Stage) -> None:
    tasks = [{"task_key": f"task-{number}", "description": "x" * 1000} for number in range(500)]
    stage.server.behaviour = answer(200, {"tasks": tasks, **stage.side.running})

    assert isinstance(await stage.runner.status(stage.side.handle, stage.config), Running)


async def test_polls_and_stops_authenticate_as_starts_do(stage: Stage) -> None:
    config = {**stage.config, "headers": {"X-Gateway": "${INTERLOCK_TOKEN}"}}

    handle = await started(stage.runner, config)
    await stage.runner.status(handle, config)
    await stage.runner.stop(handle, config)

    assert len(stage.server.received) >= 3
    assert {request.headers["authorization"] for request in stage.server.received} == {f"Bearer {PERSONAL_TOKEN}"}
    assert {request.headers["x-gateway"] for request in stage.server.received} == {PERSONAL_TOKEN}


async def test_polls_share_a_connection_and_starts_do_not(stage: Stage) -> None:
    handle = await started(stage.runner, stage.config)
    for _ in range(3):
        await stage.runner.status(handle, stage.config)

    assert stage.server.connections == 2


@pytest.mark.parametrize(
    ("status", "expected"), [(200, StopAccepted), (404, StopAccepted), (403, CannotStop), (400, CannotStop)]
)
async def test_a_stop_is_told_to_the_target(status: int, expected: type, stage: Stage) -> None:
    stage.server.behaviour = _running_but(stage, answer(status, "as told"))

    assert isinstance(await stage.runner.stop(stage.side.handle, stage.config), expected)


@pytest.mark.parametrize("failure", [answer(500), answer(429), reset], ids=["500", "429", "reset"])
async def test_a_stop_that_did_not_get_through_is_tried_again(failure: Behaviour, stage: Stage) -> None:
    stage.server.behaviour = _running_but(stage, failure)

    with pytest.raises(RetryLater):
        await stage.runner.stop(stage.side.handle, stage.config)


def _running_but(stage: Stage, on_change: Behaviour) -> Behaviour:
    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        answering = answer(200, stage.side.running) if request.method == "GET" else on_change
        await answering(request, writer)

    return behave


# --- where it goes ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _behind_names(side: Side, policy: AddressPolicy, names: Names) -> AsyncGenerator[Runner]:
    async with HttpClient(policy, resolver=names) as client:
        yield side.make(client, ManualClock(), SECRETS)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "inside.example"])
async def test_a_forbidden_address_is_never_connected_to(host: str, stage: Stage) -> None:
    config = {**stage.config, stage.side.address_key: stage.server.url("", host=host)}
    names = Names(inside_example=[["127.0.0.1"]])

    async with _behind_names(stage.side, AddressPolicy(), names) as runner:
        refused = await runner.start(a_request(config))
        for ask in (runner.status, runner.stop):
            with pytest.raises(WorkerError, match="INTERLOCK_HTTP_ALLOW"):
                await ask(stage.side.handle, config)

    assert isinstance(refused, Refused)
    assert refused.category is PERMANENT
    assert stage.server.connections == 0


async def test_a_name_that_turns_inward_between_two_requests_is_refused_then(stage: Stage) -> None:
    config = {**stage.config, stage.side.address_key: stage.server.url("", host="fickle.example")}
    names = Names(fickle_example=[["127.0.0.1"], ["100.64.0.1"]])

    async with _behind_names(stage.side, HERE, names) as runner:
        first = await runner.start(a_request(config))
        second = await runner.start(a_request(config, token="il-2"))

    assert isinstance(first, Started)
    assert isinstance(second, Refused)
    assert second.category is PERMANENT


@pytest.mark.parametrize("location", ["http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://localhost/"])
async def test_a_redirect_to_a_forbidden_place_is_not_followed(location: str, stage: Stage) -> None:
    stage.server.behaviour = answer(307, Location=location)

    result = await stage.runner.start(a_request(stage.config))

    assert isinstance(result, Refused)
    assert result.category is PERMANENT
    assert len(stage.server.received) == 1


# --- secrets that are replaced ----------------------------------------------------------------------------------------


class Rotated:
    """A secret that was replaced after it was read; who forgets the old one reads the new one."""

    def __init__(self) -> None:
        self._value = "old-token"

    async def read(self, name: str) -> str | None:
        return self._value if name == "INTERLOCK_TOKEN" else None

    def forget(self, name: str) -> bool:
        assert name == "INTERLOCK_TOKEN"
        was_old, self._value = self._value == "old-token", PERSONAL_TOKEN
        return was_old


async def test_a_secret_that_was_replaced_is_read_anew_when_it_is_refused(stage: Stage) -> None:
    async with HttpClient(HERE) as client:
        runner = stage.side.make(client, ManualClock(), Rotated())

        result = await runner.start(a_request(stage.config))

    assert isinstance(result, Started)
    used = [request.headers["authorization"] for request in stage.server.received]
    assert used == ["Bearer old-token", f"Bearer {PERSONAL_TOKEN}"]
