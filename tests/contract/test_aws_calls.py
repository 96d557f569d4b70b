"""Calls to AWS: each leaves once, only while it may, and what became of it is told exactly."""

import asyncio

import pytest

from tests.support.aws.emulators import use_test_credentials
from tests.support.fakes.aws import an_aws_fake, aws_at, raw_answer
from tests.support.fakes.aws_jobs import Glue
from tests.support.fakes.http_target import a_web_server, reset
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws, AwsEndpoint, Service
from worker.jobs.aws.errors import AwsTrouble

STATUS = {"JobName": "etl", "RunId": "jr_1"}
CANCEL = {"applicationId": "00f1", "jobRunId": "00f2"}


async def test_whether_a_request_may_be_sent_is_asked_once_its_connection_stands() -> None:
    async with a_web_server() as server, aws_at(server.url("").rstrip("/")) as aws:
        connected: list[int] = []

        def may_send() -> bool:
            connected.append(server.connections)
            return False

        with pytest.raises(AwsTrouble, match="may not send any more") as caught:
            await aws.start("glue", "StartJobRun", {"JobName": "etl"}, may_send)

    assert len(connected) == 1
    assert server.received == []
    assert caught.value.category is FailureCategory.TRANSIENT


@pytest.mark.parametrize(
    ("service", "operation", "asked"), [("glue", "GetJobRun", STATUS), ("emr-serverless", "GetJobRun", CANCEL)]
)
async def test_a_request_whose_connection_broke_is_not_repeated_by_a_library(
    service: Service, operation: str, asked: dict[str, object]
) -> None:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        fake.break_next(operation, raw_answer(200, {}))
        await aws.call(service, operation, asked)
        # On a connection that was used before, where libraries like to try again.
        fake.break_next(operation, reset)

        with pytest.raises(AwsTrouble) as caught:
            await aws.call(service, operation, asked)

    assert caught.value.category is None
    assert fake.counted[operation] == 2


async def test_a_start_leaves_on_a_connection_of_its_own_and_questions_share_one() -> None:
    async with a_web_server(raw_answer(200, {"JobRunId": "jr_1"})) as server, aws_at(server.url("").rstrip("/")) as aws:
        for _ in range(3):
            await aws.call("glue", "GetJobRun", STATUS)
        shared = server.connections
        for _ in range(3):
            await aws.start("glue", "StartJobRun", {"JobName": "etl"}, lambda: True)

    assert (shared, server.connections) == (1, 4)


async def test_a_parameter_that_aws_does_not_know_is_refused_before_it_is_sent() -> None:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        with pytest.raises(AwsTrouble, match="Unknown parameter") as caught:
            await aws.call("glue", "GetJobRun", {**STATUS, "Typo": 1})

    assert caught.value.category is FailureCategory.PERMANENT
    assert fake.calls == []


async def test_a_worker_without_a_region_is_told_so_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials()
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    async with Aws(AwsEndpoint()) as aws:
        with pytest.raises(AwsTrouble, match="region") as caught:
            await aws.call("glue", "GetJobRun", STATUS)

    assert caught.value.category is FailureCategory.TRANSIENT


async def test_an_endpoint_that_is_none_is_told_and_nothing_is_sent() -> None:
    async with aws_at("not an address") as aws:
        with pytest.raises(AwsTrouble, match="AWS_ENDPOINT_URL"):
            await aws.call("glue", "GetJobRun", STATUS)


async def test_calls_at_once_are_told_apart() -> None:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        Glue(fake, "RUNNING").open()

        async def start(number: int) -> bool:
            try:
                await aws.start("glue", "StartJobRun", {"JobName": "etl", "Arguments": {}}, lambda: number % 2 == 0)
            except AwsTrouble:
                return False
            return True

        async with asyncio.TaskGroup() as calls:
            started = [calls.create_task(start(number)) for number in range(20)]

    assert [task.result() for task in started] == [number % 2 == 0 for number in range(20)]
    assert fake.counted["StartJobRun"] == 10


async def test_a_list_is_read_page_by_page_and_no_further_than_asked() -> None:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        glue = Glue(fake, "RUNNING", page_size=1).open()
        for number in range(5):
            glue.add(f"jr_{number}", {"Arguments": {}})

        pages = [
            page async for page in aws.pages("glue", "GetJobRuns", {"JobName": "etl"}, cursor="NextToken", pages_max=3)
        ]

    assert [page["JobRuns"][0]["Id"] for page in pages] == ["jr_4", "jr_3", "jr_2"]
    assert pages[-1]["NextToken"] == "3"
