"""The AWS runners on emulators that really run jobs: what the fake of our own might get wrong, these would show."""

import io
import json
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiobotocore.session import AioSession

from tests.support.aws.emulators import Server, ministack, moto, use_test_credentials
from tests.support.aws.wire import Fault, WireProxy
from tests.support.builders.runners import TOKEN, a_request, ended, started
from tests.support.fakes.aws import aws_at
from tests.support.fakes.aws_jobs import ROLE
from tests.support.fakes.job_targets import NO_SECRETS
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.emr import EmrRunner
from worker.jobs.aws.emr_serverless import EmrServerlessRunner
from worker.jobs.aws.glue import GlueRunner
from worker.jobs.aws.lambda_ import LambdaRunner
from worker.jobs.aws.secrets_manager import SecretsManagerSecrets
from worker.jobs.aws.step_functions import StepFunctionRunner
from worker.jobs.runner import Config, Failed, Refused, Running, StopAccepted, Succeeded, Unknown
from worker.runtime.clock import SystemClock
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

pytestmark = pytest.mark.xdist_group("aws")

CLOCK = SystemClock()
SESSION = AioSession()  # keeps the descriptions of the services
ECHO = "def handle(event, context):\n    if 'fail' in event: raise KeyError('day')\n    return event\n"


@asynccontextmanager
async def admin(service: Any, server: Server) -> AsyncGenerator[Any]:  # noqa: ANN401 - to set a stage with
    use_test_credentials()
    client = SESSION.create_client(service, region_name="eu-west-1", endpoint_url=server.proxy.url)
    async with client as opened:
        yield opened


@pytest.fixture
async def aws() -> AsyncGenerator[Aws]:
    async with aws_at(ministack().proxy.url) as aws:
        yield aws


async def a_glue_job(name: str) -> Config:
    async with admin("glue", ministack()) as glue:
        await glue.create_job(Name=name, Role=ROLE, Command={"Name": "glueetl", "ScriptLocation": "s3://code/etl.py"})
    return {"jobName": name}


async def test_a_glue_run_is_followed_to_its_end_and_found_by_its_token(aws: Aws) -> None:
    runner, config = GlueRunner(aws, CLOCK), await a_glue_job("followed")

    handle = await started(runner, config)

    assert isinstance(await ended(runner, handle, config), Succeeded)
    assert await runner.find(TOKEN, config) == handle
    assert await runner.find("il-another", config) is None


async def test_a_glue_run_whose_answer_was_lost_on_the_wire_is_found() -> None:
    config = await a_glue_job("lost")
    with WireProxy(ministack().port) as wire:
        async with aws_at(wire.url) as aws:
            runner = GlueRunner(aws, CLOCK)
            wire.break_next("StartJobRun", Fault.REPLY_RESET)

            assert isinstance(await runner.start(a_request(config)), Unknown)

            found = await runner.find(TOKEN, config)
            assert found
            assert isinstance(await ended(runner, found, config), Succeeded)
            assert wire.operations["StartJobRun"] == 1


async def test_a_glue_job_that_does_not_exist_is_refused_for_good(aws: Aws) -> None:
    answer = await GlueRunner(aws, CLOCK).start(a_request({"jobName": "nothing-here"}))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT
    assert "EntityNotFoundException" in answer.message


async def test_an_emr_step_is_followed_to_its_end_and_found_by_its_name(aws: Aws) -> None:
    async with admin("emr", ministack()) as emr:
        instances = {"KeepJobFlowAliveWhenNoSteps": True, "InstanceCount": 1, "MasterInstanceType": "m5.xlarge"}
        cluster = await emr.run_job_flow(Name="c", Instances=instances, JobFlowRole="r", ServiceRole="r")
    config: Config = {"clusterId": cluster["JobFlowId"], "stepName": "etl", "command": "command-runner.jar"}
    runner = EmrRunner(aws, CLOCK)

    handle = await started(runner, config)

    assert isinstance(await ended(runner, handle, config), Succeeded)
    assert await runner.find(TOKEN, config) == handle
    assert await runner.find(TOKEN, {**config, "clusterId": "j-NOTHINGHERE"}) is None


async def a_machine(name: str, state: dict[str, object]) -> Config:
    definition = json.dumps({"StartAt": "only", "States": {"only": state}})
    async with admin("stepfunctions", ministack()) as step_functions:
        made = await step_functions.create_state_machine(name=name, roleArn=ROLE, definition=definition)
    return {"stateMachineArn": made["stateMachineArn"], "input": {"day": "2026-03-03"}}


async def test_an_execution_is_started_once_however_often_it_is_sent(aws: Aws) -> None:
    runner, config = StepFunctionRunner(aws), await a_machine("passes", {"Type": "Pass", "End": True})
    assert await runner.find(TOKEN, config) is None

    handle = await started(runner, config)
    assert isinstance(await ended(runner, handle, config), Succeeded)

    assert await started(runner, config) == handle
    assert await runner.find(TOKEN, config) == handle


async def test_an_execution_that_fails_says_so_in_its_own_words(aws: Aws) -> None:
    config = await a_machine("fails", {"Type": "Fail", "Error": "Own.Error", "Cause": "it broke"})
    runner = StepFunctionRunner(aws)

    status = await ended(runner, await started(runner, config), config)

    assert isinstance(status, Failed)
    assert status.message == "FAILED: Own.Error: it broke"


async def test_an_execution_is_stopped(aws: Aws) -> None:
    config = await a_machine("waits", {"Type": "Wait", "Seconds": 600, "End": True})
    runner = StepFunctionRunner(aws)
    handle = await started(runner, config)
    assert isinstance(await runner.status(handle, config), Running)

    assert await runner.stop(handle, config) == StopAccepted()

    status = await ended(runner, handle, config)
    assert isinstance(status, Failed)
    assert status.message.startswith("ABORTED")


async def test_a_function_runs_and_its_failure_is_told_from_its_success(aws: Aws) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("code.py", ECHO)
    async with admin("lambda", ministack()) as functions:
        await functions.create_function(
            FunctionName="echo",
            Role=ROLE,
            Runtime="python3.11",
            Handler="code.handle",
            Code={"ZipFile": archive.getvalue()},
        )
    runner = LambdaRunner(aws, CLOCK, NO_SECRETS, Sensors(SqliteTables.in_memory(CLOCK)))
    sound: Config = {"functionName": "echo", "payload": {"day": "2026-03-03"}}
    broken: Config = {"functionName": "echo", "payload": {"fail": True}}

    succeeded = await runner.status(await started(runner, sound), sound)
    failed = await runner.status(await started(runner, broken), broken)

    assert isinstance(succeeded, Succeeded)
    assert isinstance(failed, Failed)
    assert "day" in failed.message


async def test_a_secret_is_read(aws: Aws) -> None:
    async with admin("secretsmanager", ministack()) as keeper:
        await keeper.create_secret(Name="prod/wire", SecretString='{"token": "t1"}')
    secrets = SecretsManagerSecrets(aws, CLOCK)

    assert await secrets.read("secretsmanager://prod/wire#token") == "t1"
    assert await secrets.read("secretsmanager://prod/nothing#token") is None


async def test_a_serverless_run_is_followed_and_found_by_its_name() -> None:
    async with admin("emr-serverless", moto()) as emr:
        made = await emr.create_application(name="a", releaseLabel="emr-7.0.0", type="SPARK")
        await emr.start_application(applicationId=made["applicationId"])
    config: Config = {
        "applicationId": made["applicationId"],
        "jobName": "etl",
        "executionRoleArn": ROLE,
        "jobDriver": {"sparkSubmit": {"entryPoint": "s3://code/etl.py"}},
    }
    async with aws_at(moto().proxy.url) as aws:
        runner = EmrServerlessRunner(aws, CLOCK)

        handle = await started(runner, config)

        assert isinstance(await ended(runner, handle, config), Succeeded)
        assert await runner.find(TOKEN, config) == handle
