"""What every runner must keep that asks about many jobs in one call."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import pytest

from tests.support.builders.runners import started
from tests.support.fakes.airflow import Airflow, AirflowTarget
from tests.support.fakes.aws_targets import CONFIGS, aws_target
from tests.support.fakes.databricks import DatabricksTarget, Workspace
from tests.support.fakes.http_target import Received, a_web_server, answer
from tests.support.fakes.job_targets import Plot
from worker.core.errors import RetryLater
from worker.jobs.runner import BatchRunner, Config, Failed, Runner, Running, StatusQuery, TargetDown
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient

LISTS: Final = {
    "glue": "GetJobRuns", "emr": "ListSteps", "emr-serverless": "ListJobRuns", "step-function": "ListExecutions"
}  # fmt: skip
FEW = 4
THROTTLED, FORBIDDEN = "throttled", "forbidden"


@dataclass(kw_only=True)
class Listing:
    """A target with a few running jobs."""

    kind: str
    runner: BatchRunner
    job: Callable[[Plot], Config]
    count_lists: Callable[[], int]
    set_page: Callable[[int], None]
    refuse: Callable[[str], None]  # the next list
    questions: list[StatusQuery] = field(default_factory=list[StatusQuery])

    async def start(self, plot: Plot, token: str) -> StatusQuery:
        config = self.job(plot)
        return StatusQuery(await started(self.runner, config, token=token), config)


def batching(runner: Runner) -> BatchRunner:
    assert isinstance(runner, BatchRunner)
    return runner


@asynccontextmanager
async def on_aws(kind: str) -> AsyncGenerator[Listing]:
    async with aws_target(kind) as target:
        codes = {THROTTLED: "ThrottlingException", FORBIDDEN: "AccessDeniedException"}
        yield Listing(
            kind=kind,
            runner=batching(target.runner()),
            job=target.job,
            count_lists=lambda: target.fake.counted[LISTS[kind]],
            set_page=partial(setattr, target.service, "page_size"),
            refuse=lambda why: target.fake.decline_next(LISTS[kind], codes[why]),
        )


@asynccontextmanager
async def over_http(played: Workspace | Airflow) -> AsyncGenerator[Listing]:
    async with a_web_server(played.behave) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        base = server.url("").rstrip("/")
        is_airflow = isinstance(played, Airflow)
        run_now = partial(DatabricksTarget, call="run-now")
        target = AirflowTarget(client, base, played) if is_airflow else run_now(client, base, played)

        def refuse(why: str) -> None:
            refused = answer(429 if why == THROTTLED else 403, {"detail": why})

            async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
                await (refused if "/list" in request.path else played.behave)(request, writer)

            server.behaviour = behave

        yield Listing(
            kind="airflow" if is_airflow else "databricks",
            runner=batching(target.runner()),
            job=target.job,
            count_lists=lambda: sum("/list" in request.path for request in server.received),
            set_page=partial(setattr, played, "page_size"),
            refuse=refuse,
        )


def airflow(version: Literal["v1", "v2"]) -> Airflow:
    return Airflow(version)


OPENED: Final = {
    **{kind: partial(on_aws, kind) for kind in LISTS},
    "databricks": lambda: over_http(Workspace()),
    "airflow-2": lambda: over_http(airflow("v1")),
    "airflow-3": lambda: over_http(airflow("v2")),
}


@pytest.fixture(params=OPENED)
async def listing(request: pytest.FixtureRequest) -> AsyncGenerator[Listing]:
    async with OPENED[str(request.param)]() as opened:
        opened.questions += [await opened.start(Plot.RUNS_ON, f"il-{number}") for number in range(FEW)]
        yield opened


async def test_jobs_of_one_place_are_asked_about_in_one_call(listing: Listing) -> None:
    groups = {listing.runner.group(question) for question in listing.questions}

    sightings = await listing.runner.look(listing.questions)

    assert len(groups) == 1
    assert "" not in groups
    assert set(sightings.seen) == set(range(FEW))
    assert all(isinstance(status, Running) for status in sightings.seen.values())
    assert listing.count_lists() == 1


async def test_what_is_seen_of_a_job_among_others_is_what_it_says_by_itself(listing: Listing) -> None:
    failed, over = await listing.start(Plot.FAILS, "il-failed"), await listing.start(Plot.SUCCEEDS, "il-over")
    questions = [failed, *listing.questions, over]

    seen = (await listing.runner.look(questions)).seen

    for place, status in seen.items():
        alone = await listing.runner.status(questions[place].handle, questions[place].config)
        assert type(status) is type(alone)
        if isinstance(status, Failed):
            assert status == alone
    assert set(range(1, FEW + 1)) <= set(seen)


async def test_a_job_that_the_list_does_not_have_is_not_judged(listing: Listing) -> None:
    known = listing.questions[0]
    other = {"runId": "arn:aws:states:eu-west-1:1:execution:etl:x", "dagRunId": "x"}
    stranger = StatusQuery({name: other.get(name, value) for name, value in known.handle.items()}, known.config)

    seen = (await listing.runner.look([known, stranger])).seen

    assert set(seen) == {0}


async def test_a_long_list_goes_on_where_it_is_told_to(listing: Listing) -> None:
    listing.set_page(FEW - 1)

    first = await listing.runner.look(listing.questions)
    if listing.kind == "emr":  # asked by their ids, all of them are in one answer
        assert (set(first.seen), first.more) == (set(range(FEW)), "")
        return
    rest = await listing.runner.look(listing.questions, first.more)

    assert first.seen.keys() | rest.seen.keys() == set(range(FEW))
    assert first.more
    assert not rest.more


async def test_many_are_asked_about_in_one_call_too(listing: Listing) -> None:
    many = [*listing.questions, *[await listing.start(Plot.RUNS_ON, f"il-x{number}") for number in range(10)]]

    assert len((await listing.runner.look(many)).seen) == len(many)
    assert listing.count_lists() == 1


@pytest.mark.parametrize("why", [THROTTLED, FORBIDDEN])
async def test_a_list_that_is_refused_says_whether_the_target_is_to_be_spared(why: str, listing: Listing) -> None:
    listing.refuse(why)

    with pytest.raises(RetryLater) as problem:
        await listing.runner.look(listing.questions)

    assert isinstance(problem.value, TargetDown) == (why == THROTTLED)


async def test_an_express_workflow_is_in_no_list() -> None:
    async with aws_target("step-function") as target:
        runner = batching(target.runner())
        express = {"runId": "arn:aws:states:eu-west-1:123456789012:express:etl:il-1:0"}

        assert runner.group(StatusQuery(express, CONFIGS["step-function"])) == ""
