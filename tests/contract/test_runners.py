"""What every runner must keep, whatever its target: one suite, run on each of them."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.support.builders.runners import TOKEN, a_request, ended, started, until
from tests.support.fakes.airflow import airflow_target
from tests.support.fakes.aws_targets import AWS_TARGETS
from tests.support.fakes.databricks import databricks_target
from tests.support.fakes.http_target import (
    Behaviour,
    Received,
    WebServer,
    a_web_server,
    answer,
    break_off,
    reset,
)
from tests.support.fakes.job_targets import NO_SECRETS, OpenTarget, Plot, Target
from tests.support.fakes.running_airflow import REAL_TARGETS
from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import JobType
from worker.core.run.state import FailureCategory
from worker.jobs.command.runner import CommandRunner
from worker.jobs.http.runner import HttpRunner
from worker.jobs.runner import (
    Config,
    Failed,
    Guarantee,
    Handle,
    Refused,
    Runner,
    Running,
    Started,
    StopAccepted,
    Stopped,
    Succeeded,
)
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.runtime.clock import SystemClock


@dataclass(frozen=True, slots=True)
class CommandTarget:
    folder: Path
    tells_timeouts: bool = True
    server: WebServer | None = None

    def runner(self) -> Runner:
        return CommandRunner(
            root=self.folder / "jobs",
            clock=SystemClock(),
            secrets=NO_SECRETS,
            environment={"PATH": os.environ["PATH"]},
        )

    def job(self, plot: Plot) -> Config:
        scripts = {
            Plot.SUCCEEDS: "true",
            Plot.FAILS: "exit 1",
            Plot.TIMES_OUT: "exit 124",
            Plot.RUNS_ON: "exec sleep 1000",
        }
        return {"command": ["sh", "-c", f"echo begun >> {self.folder}/begun; {scripts[plot]}"]}

    def broken_job(self) -> Config:
        return {"command": ["/does/not/exist"]}

    def begun(self) -> int:
        written = self.folder / "begun"
        return written.read_text().count("begun") if written.exists() else 0


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A job server that heeds the `Idempotency-Key` and knows a job by it."""

    client: HttpClient
    base: str
    jobs: dict[str, str] = field(default_factory=dict[str, str])
    tells_timeouts: bool = True
    server: WebServer | None = None

    def runner(self) -> Runner:
        return HttpRunner(self.client, SystemClock(), NO_SECRETS)

    def job(self, plot: Plot) -> Config:
        return {
            "url": f"{self.base}/start",
            "body": plot.name,
            "statusUrl": f"{self.base}/status/{{id}}",
            "stopUrl": f"{self.base}/stop/{{id}}",
        }

    def broken_job(self) -> Config:
        return {"url": f"{self.base}/nothing-here", "body": "x"}

    def begun(self) -> int:
        return len(self.jobs)

    async def behave(self, request: Received, writer: asyncio.StreamWriter) -> None:
        states = {
            Plot.SUCCEEDS: "succeeded",
            Plot.FAILS: "failed",
            Plot.TIMES_OUT: "timed_out",
            Plot.RUNS_ON: "running",
        }
        action, _, job_id = request.path.strip("/").partition("/")
        if action == "start":
            self.jobs.setdefault(request.headers["idempotency-key"], states[Plot[request.body.decode()]])
            return await answer(202, {})(request, writer)
        if job_id not in self.jobs:
            return await answer(404)(request, writer)
        if action == "stop" and self.jobs[job_id] == "running":
            self.jobs[job_id] = "cancelled"
        return await answer(200, {"status": self.jobs[job_id]})(request, writer)


@asynccontextmanager
async def command_target(folder: Path) -> AsyncGenerator[Target]:
    yield CommandTarget(folder)


@asynccontextmanager
async def http_target(folder: Path) -> AsyncGenerator[Target]:
    async with a_web_server() as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        target = HttpTarget(client, server.url("").rstrip("/"), server=server)
        server.behaviour = target.behave
        yield target


TARGETS: dict[str, OpenTarget] = {
    "airflow-2": partial(airflow_target, "v1"),
    "airflow-3": partial(airflow_target, "v2"),
    "command": command_target,
    "databricks-run-now": partial(databricks_target, "run-now"),
    "databricks-submit": partial(databricks_target, "runs/submit"),
    "http": http_target,
    **REAL_TARGETS,
    **AWS_TARGETS,
}
# Lambda keeps nothing that could be looked for or stopped, and says so.
KEEPING = [name for name in TARGETS if name != "lambda"]
# Glue and EMR have no way to recognise a repeated start: there, the job is looked for first.
RECOGNISING = [name for name in KEEPING if name not in {"glue", "emr"}]


# Those whose every answer a test decides: all but a program on this machine, and a real server.
ANSWERING = [name for name in TARGETS if name != "command" and name not in REAL_TARGETS]

# Answers that say nothing about a job; the last is longer than any that is read.
REFUSALS: dict[str, Behaviour] = {
    str(status): answer(status, {"message": "as told"}) for status in (400, 401, 403, 404, 409, 422, 429, 500, 502, 503)
}
BROKEN: dict[str, Behaviour] = {"reset": reset, "broken off": break_off(200)}
NONSENSE: dict[str, Behaviour] = {
    "nothing": answer(200),
    "a page": answer(200, "<html>Please log in</html>"),
    "null": answer(200, "null"),
    "a list": answer(200, "[]"),
    "an empty object": answer(200, "{}"),
    "an object of others": answer(200, {"JobRun": [], "Step": 5, "jobRun": "x", "state": [], "status": {}}),
    "half of one": answer(200, '{"state": "succ'),
    "a flood": answer(200, '{"state": "' + "x" * 9_000_000),
}


def test_all_nine_targets_are_in_the_suite() -> None:
    assert {kind for kind in JobType if any(name.startswith(kind) for name in TARGETS)} == set(JobType)


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Target]:
    async with TARGETS[str(request.param)](tmp_path) as opened:
        yield opened


@pytest.fixture(params=KEEPING)
async def keeping_target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Target]:
    async with TARGETS[str(request.param)](tmp_path) as opened:
        yield opened


@pytest.fixture(params=RECOGNISING)
async def recognising_target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Target]:
    async with TARGETS[str(request.param)](tmp_path) as opened:
        yield opened


def from_the_row(handle: Handle) -> Handle:
    """The handle as the next worker reads it: through JSON."""
    return json.loads(json.dumps(handle))


async def test_a_job_that_succeeds_is_followed_to_its_end(target: Target) -> None:
    runner, config = target.runner(), target.job(Plot.SUCCEEDS)

    handle = await started(runner, config)

    assert isinstance(await ended(runner, from_the_row(handle), config), Succeeded)


@pytest.mark.parametrize(
    ("plot", "category"), [(Plot.FAILS, FailureCategory.TRANSIENT), (Plot.TIMES_OUT, FailureCategory.TIMEOUT)]
)
async def test_a_job_that_fails_has_a_category_and_a_message(
    plot: Plot, category: FailureCategory, target: Target
) -> None:
    runner, config = target.runner(), target.job(plot)

    status = await ended(runner, await started(runner, config), config)

    assert isinstance(status, Failed)
    is_told = plot is Plot.FAILS or target.tells_timeouts
    assert status.category is (category if is_told else FailureCategory.TRANSIENT)
    assert status.message


async def test_an_end_stays_the_same_however_often_it_is_asked_for(target: Target) -> None:
    runner, config = target.runner(), target.job(Plot.SUCCEEDS)
    handle = await started(runner, config)

    first = await ended(runner, handle, config)

    assert await runner.status(handle, config) == first
    assert await target.runner().status(handle, config) == first


async def test_a_repeated_token_starts_no_second_job(recognising_target: Target) -> None:
    config = recognising_target.job(Plot.SUCCEEDS)

    first = await started(recognising_target.runner(), config)
    second = await started(recognising_target.runner(), config)

    assert first == second
    await ended(recognising_target.runner(), first, config)
    assert recognising_target.begun() == 1


async def test_two_tokens_are_two_jobs(target: Target) -> None:
    runner, config = target.runner(), target.job(Plot.SUCCEEDS)

    for token in ("il-1", "il-2"):
        await ended(runner, await started(runner, config, token=token), config)

    assert target.begun() == 2


async def test_a_job_whose_handle_was_lost_is_found_again_by_a_new_worker(keeping_target: Target) -> None:
    config = keeping_target.job(Plot.SUCCEEDS)
    guarantee = keeping_target.runner().traits(config).guarantee

    assert await keeping_target.runner().find(TOKEN, config) is None
    await started(keeping_target.runner(), config)
    successor = keeping_target.runner()
    found = await successor.find(TOKEN, config)
    if found is None:
        # Only a target that recognises the token itself may be sent it again.
        assert guarantee is Guarantee.EXACTLY_ONCE
        found = await started(successor, config)

    assert isinstance(await ended(successor, from_the_row(found), config), Succeeded)
    assert keeping_target.begun() == 1


async def test_a_running_job_is_stopped_and_stopping_it_again_is_harmless(keeping_target: Target) -> None:
    runner, config = keeping_target.runner(), keeping_target.job(Plot.RUNS_ON)
    assert runner.traits(config).can_stop
    handle = await started(runner, config)
    await until(keeping_target.begun)
    assert isinstance(await runner.status(handle, config), Running)

    first = await runner.stop(handle, config)
    status = await ended(runner, handle, config)
    again = await keeping_target.runner().stop(handle, config)

    assert first == StopAccepted()
    assert isinstance(status, Failed)
    assert again in {StopAccepted(), Stopped()}
    assert isinstance(await runner.status(handle, config), Failed)


async def test_a_job_the_target_refuses_for_good_is_refused_and_not_found(target: Target) -> None:
    runner, config = target.runner(), target.broken_job()

    answered = await runner.start(a_request(config))

    assert isinstance(answered, Refused)
    assert answered.category is FailureCategory.PERMANENT
    assert answered.message
    assert await runner.find(TOKEN, config) is None


async def test_a_worker_that_may_not_send_any_more_starts_nothing(target: Target) -> None:
    runner, config = target.runner(), target.job(Plot.SUCCEEDS)

    answered = await runner.start(a_request(config, may_send=lambda: False))

    assert isinstance(answered, Refused)
    assert answered.category is FailureCategory.TRANSIENT
    assert target.begun() == 0


async def test_a_configuration_that_cannot_be_understood_is_refused_for_good(target: Target) -> None:
    runner = target.runner()

    answered = await runner.start(a_request({"nonsense": 1}))

    assert isinstance(answered, Refused)
    assert answered.category is FailureCategory.PERMANENT
    with pytest.raises(Rejected, match=r"job\.config"):
        runner.traits({"nonsense": 1})


@pytest.mark.parametrize("name", [name for name in ANSWERING if name in KEEPING])
async def test_an_answer_that_says_nothing_about_a_job_is_never_taken_for_its_end(name: str, tmp_path: Path) -> None:
    async with TARGETS[name](tmp_path) as target:
        runner, config = target.runner(), target.job(Plot.RUNS_ON)
        handle = await started(runner, config)
        assert target.server is not None
        healthy, taken = target.server.behaviour, dict[str, object]()

        for trouble, behaviour in {**REFUSALS, **BROKEN, **NONSENSE}.items():
            target.server.behaviour = behaviour
            with suppress(RetryLater, Rejected):
                taken[trouble] = await runner.status(handle, config)

        target.server.behaviour = healthy
        ends = {trouble: status for trouble, status in taken.items() if not isinstance(status, Running)}
        assert ends == {}
        assert not taken.keys() & (REFUSALS | BROKEN).keys()
        assert isinstance(await runner.status(handle, config), Running)


@pytest.mark.parametrize("name", ANSWERING)
async def test_a_start_that_goes_wrong_is_never_taken_for_a_job_and_may_be_made_up_for(
    name: str, tmp_path: Path
) -> None:
    async with TARGETS[name](tmp_path) as target:
        runner, config = target.runner(), target.job(Plot.SUCCEEDS)
        assert target.server is not None
        healthy, taken = target.server.behaviour, dict[str, object]()

        for trouble, behaviour in {**REFUSALS, **BROKEN}.items():
            target.server.behaviour = behaviour
            answered = await runner.start(a_request(config))
            if isinstance(answered, Started):
                taken[trouble] = answered
            elif trouble in {"400", "422"}:
                assert isinstance(answered, Refused), trouble

        target.server.behaviour = healthy
        assert taken == {}
        assert target.begun() == 0
        assert isinstance(await ended(runner, await started(runner, config), config), Succeeded)
        assert target.begun() == 1


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in REAL_TARGETS])
async def test_the_page_about_jobs_says_what_each_target_guarantees(name: str, tmp_path: Path) -> None:
    kind = max((kind for kind in JobType if name.startswith(kind)), key=len)
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if re.match(rf"\| \[?`{kind}`", line)]
    async with TARGETS[name](tmp_path) as target:
        traits = target.runner().traits(target.job(Plot.SUCCEEDS))

    _, _, _, guarantee, stop, _ = (cell.strip() for cell in row.split("|"))
    assert traits.guarantee.value in guarantee
    assert traits.can_stop == (stop != "none")
