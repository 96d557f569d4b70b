"""Step Functions: executions that are named by their token."""

import json

import pytest

from tests.support.builders.runners import TOKEN, a_request, ended, started
from tests.support.fakes.aws import raw_answer
from tests.support.fakes.aws_jobs import ENDED, MACHINE
from tests.support.fakes.aws_targets import CONFIGS, aws_target
from tests.support.fakes.job_targets import Plot
from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.runner import Config, Failed, Refused, Running, Started

EXECUTION = f"{MACHINE.replace('stateMachine', 'execution')}:{TOKEN}"
CONFIG = CONFIGS["step-function"]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"input": {"day": "2026-03-03", "rows": [1, 2]}}, {"day": "2026-03-03", "rows": [1, 2]}),
        ({"input": {}, "arguments": {"day": "2026-03-03"}}, {"day": "2026-03-03"}),
        ({"input": {}}, {}),
    ],
)
async def test_an_execution_is_named_by_its_token_and_given_its_input(config: dict[str, Json], text: Json) -> None:
    async with aws_target("step-function") as target:
        target.job(Plot.SUCCEEDS)

        assert await started(target.runner(), {**CONFIG, **config}) == {"runId": EXECUTION}
        [asked] = target.fake.asked("StartExecution")
        assert (asked["stateMachineArn"], asked["name"], json.loads(asked["input"])) == (MACHINE, TOKEN, text)


async def test_an_execution_that_has_ended_meanwhile_is_the_one_that_was_started() -> None:
    async with aws_target("step-function") as target:
        config = target.job(Plot.FAILS)
        await started(target.runner(), config)

        assert await target.runner().start(a_request(config)) == Started({"runId": EXECUTION})
        assert target.begun() == 1


@pytest.mark.parametrize("qualifier", [":3", ":PROD"])
async def test_a_version_or_alias_changes_nothing_about_where_its_execution_is(qualifier: str) -> None:
    async with aws_target("step-function") as target:
        target.job(Plot.RUNS_ON)
        config: Config = {**CONFIG, "stateMachineArn": MACHINE + qualifier}

        assert await started(target.runner(), config) == await target.runner().find(TOKEN, config)


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("States.Runtime: the path $.day is not there", FailureCategory.PERMANENT),
        ("States.TaskFailed: exit code 1", FailureCategory.TRANSIENT),
    ],
)
async def test_an_error_of_the_machine_itself_is_permanent(message: str, category: FailureCategory) -> None:
    async with aws_target("step-function") as target:
        config = target.job(Plot.FAILS)
        target.service.message = message

        status = await ended(target.runner(), await started(target.runner(), config), config)

    assert status == Failed(category, f"FAILED: {message}", ENDED)


async def test_a_redriven_execution_is_running() -> None:
    async with aws_target("step-function") as target:
        config = target.job(Plot.RUNS_ON)
        target.service.begins_as = "PENDING_REDRIVE"

        assert await target.runner().status(await started(target.runner(), config), config) == Running(
            "PENDING_REDRIVE"
        )


async def test_the_state_of_an_execution_is_seen_without_the_key_to_its_data() -> None:
    async with aws_target("step-function") as target:
        config = target.job(Plot.RUNS_ON)
        handle = await started(target.runner(), config)
        target.fake.decline_next("DescribeExecution", "KmsAccessDeniedException")

        assert isinstance(await target.runner().status(handle, config), Running)
        assert target.fake.asked("DescribeExecution")[-1]["includedData"] == "METADATA_ONLY"


async def test_an_express_workflow_is_a_failure_that_says_what_to_do() -> None:
    async with aws_target("step-function") as target:
        arn = MACHINE.replace("stateMachine", "express") + ":il-1:5b1d"
        target.fake.break_next("StartExecution", raw_answer(200, {"executionArn": arn, "startDate": 1}))

        status = await target.runner().status(await started(target.runner(), CONFIG), CONFIG)

    assert isinstance(status, Failed)
    assert status.category is FailureCategory.PERMANENT
    assert "standard state machine" in status.message


async def test_an_input_that_is_too_large_is_refused_before_it_is_sent() -> None:
    async with aws_target("step-function") as target:
        answer = await target.runner().start(a_request({**CONFIG, "input": {"rows": "x" * 300_000}}))

        assert isinstance(answer, Refused)
        assert answer.category is FailureCategory.PERMANENT
        assert target.fake.calls == []


@pytest.mark.parametrize("arn", ["etl", "arn:aws:states:eu-west-1:123456789012:execution:etl"])
async def test_an_arn_that_is_none_of_a_state_machine_is_refused(arn: str) -> None:
    async with aws_target("step-function") as target:
        with pytest.raises(Rejected, match="not the ARN of a state machine"):
            target.runner().traits({"stateMachineArn": arn})
