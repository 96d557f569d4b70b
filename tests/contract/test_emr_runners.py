"""EMR steps and EMR Serverless runs: what is sent, how a job is found, and what a refusal means."""

from typing import Any

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.fakes.aws import AwsError
from tests.support.fakes.aws_jobs import ENDED
from tests.support.fakes.aws_targets import CONFIGS, AwsTarget, aws_target
from tests.support.fakes.job_targets import Plot
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.runner import Failed, Refused, Stopped, Succeeded


async def _asked(kind: str, operation: str, **config: Json) -> Any:  # noqa: ANN401 - whatever was sent
    async with aws_target(kind) as target:
        target.job(Plot.SUCCEEDS)
        await started(target.runner(), {**CONFIGS[kind], **config})
        [asked] = target.fake.asked(operation)
        return asked


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [(["z", "a", "m"], ["z", "a", "m"]), ({"--z": "1", "--a": "2"}, ["--z=1", "--a=2"])],
)
async def test_a_step_gets_its_arguments_in_the_order_given(arguments: Json, sent: list[str]) -> None:
    asked = await _asked("emr", "AddJobFlowSteps", arguments=arguments, mainClass="org.example.Etl")

    assert asked == {
        "JobFlowId": "j-2AXXXXXXGAPLF",
        "Steps": [
            {
                "Name": f"etl {TOKEN}",
                "ActionOnFailure": "CONTINUE",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": sent, "MainClass": "org.example.Etl"},
            }
        ],
    }


async def test_a_long_step_name_is_cut_before_its_token() -> None:
    asked = await _asked("emr", "AddJobFlowSteps", stepName="n" * 300)

    [step] = asked["Steps"]
    assert len(step["Name"]) == 256
    assert step["Name"].endswith(f" {TOKEN}")


async def test_a_cluster_that_is_full_is_tried_again() -> None:
    async with aws_target("emr") as target:
        message = (
            "Maximum number of active steps(State = 'Running', 'Pending' or 'Cancel_Pending') for cluster exceeded."
        )
        target.fake.decline_next("AddJobFlowSteps", "ValidationException", message)

        answer = await target.runner().start(a_request(CONFIGS["emr"]))

    assert answer == Refused(FailureCategory.TRANSIENT, f"emr AddJobFlowSteps: ValidationException: {message}")


async def test_a_failed_step_says_why_and_where_its_log_is() -> None:
    async with aws_target("emr") as target:
        config = target.job(Plot.FAILS)

        status = await target.runner().status(await started(target.runner(), config), config)

    assert status == Failed(FailureCategory.TRANSIENT, "FAILED: Unknown Error.; s3://logs/stderr.gz", ENDED)


async def test_a_stop_of_a_step_that_is_over_needs_nothing() -> None:
    async with aws_target("emr") as target:
        config = target.job(Plot.SUCCEEDS)

        assert await target.runner().stop(await started(target.runner(), config), config) == Stopped()


async def test_a_step_is_found_behind_many_newer_ones() -> None:
    async with aws_target("emr") as target:
        runner, config = target.runner(), target.job(Plot.RUNS_ON)
        handle = await started(runner, config)
        for number in range(60):
            await started(runner, config, token=f"il-{number}")

        assert await runner.find(TOKEN, config) == handle
        assert target.fake.counted["ListSteps"] == 2


# --- runs of an application -------------------------------------------------------------------------------------------


async def test_a_run_carries_its_role_its_driver_and_its_token() -> None:
    overrides: Json = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://logs/"}}}
    driver: Json = {"sparkSubmit": {"entryPoint": "s3://code/etl.py", "entryPointArguments": ["first"]}}

    asked = await _asked(
        "emr-serverless",
        "StartJobRun",
        jobDriver=driver,
        arguments=["--day", "2026-03-03"],
        configurationOverrides=overrides,
        timeoutMinutes=60,
    )

    assert asked == {
        "applicationId": "00f1r3n4k5a6b7c8",
        "clientToken": TOKEN,
        "name": f"etl-{TOKEN}",
        "executionRoleArn": "arn:aws:iam::123456789012:role/job",
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": "s3://code/etl.py",
                "entryPointArguments": ["first", "--day", "2026-03-03"],
            }
        },
        "configurationOverrides": overrides,
        "executionTimeoutMinutes": 60,
    }


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"jobDriver": {"hive": {"query": "s3://code/q.sql"}}, "arguments": ["x"]}, "sparkSubmit"),
        ({"jobDriver": {"sparkSubmit": {"entryPint": "s3://code/etl.py"}}}, "entryPint"),
        ({"jobDriver": {"sparkSubmit": {"entryPoint": "s3://x"}, "hive": {"query": "s3://q"}}}, "hive"),
    ],
)
async def test_a_driver_that_makes_no_sense_is_refused_before_it_is_sent(config: dict[str, Json], problem: str) -> None:
    async with aws_target("emr-serverless") as target:
        answer = await target.runner().start(a_request({**CONFIGS["emr-serverless"], **config}))

        assert isinstance(answer, Refused)
        assert answer.category is FailureCategory.PERMANENT
        assert problem in answer.message
        assert target.fake.calls == []


async def test_the_end_of_a_run_has_the_services_own_time() -> None:
    async with aws_target("emr-serverless") as target:
        config = target.job(Plot.SUCCEEDS)

        assert await target.runner().status(await started(target.runner(), config), config) == Succeeded(ENDED)


def _without_tokens(target: AwsTarget) -> None:
    """A service that has forgotten the client tokens it has seen."""

    def start(_asked: object) -> dict[str, Any]:
        raise AwsError("ConflictException", "the token was used before")

    target.fake.serve("emr-serverless", StartJobRun=start)


async def test_a_run_is_found_by_its_name_when_its_token_is_no_longer_taken() -> None:
    async with aws_target("emr-serverless") as target:
        config = target.job(Plot.RUNS_ON)
        handle = await started(target.runner(), config)
        _without_tokens(target)

        assert await target.runner().find(TOKEN, config) == handle
