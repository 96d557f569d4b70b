"""Processor time of one status poll, runner by runner, and of one call that tells of many jobs."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Final

from bench.fixedanswers import fixed_answers
from tests.support.builders.runners import started
from tests.support.fakes.aws import aws_at
from tests.support.fakes.job_targets import NO_SECRETS
from worker.core.model.values import Json
from worker.jobs.aws import emr_serverless, glue, step_functions
from worker.jobs.aws.emr import EmrRunner
from worker.jobs.aws.emr_serverless import EmrServerlessRunner
from worker.jobs.aws.glue import GlueRunner
from worker.jobs.aws.step_functions import StepFunctionRunner
from worker.jobs.command.runner import CommandRunner
from worker.jobs.http.runner import HttpRunner
from worker.jobs.rest import airflow, databricks
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import BatchRunner, Runner, Running, StatusQuery
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.runtime.clock import SystemClock

POLLS: Final = 300
LISTS: Final = 10
AT_ONCE: Final = 16
STEPS: Final = 50  # of EMR, on one page
NAMES: Final = range(step_functions.PAGE)
EXECUTION: Final = "arn:aws:states:eu-west-1:123456789012:execution:etl"
MACHINE: Final = "arn:aws:states:eu-west-1:123456789012:stateMachine:etl"
APPLICATION: Final = "00f1r3n4k5a6b7c8"
CLUSTER: Final = "j-2AXXXXXXGAPLF"
NOW: Final = 1_772_539_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    name: str
    alone_ms: float
    listed: int = 0
    list_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    name: str
    runner: Runner
    questions: list[StatusQuery]  # as many as one call tells of


async def costs(folder: Path) -> list[Cost]:
    with fixed_answers({name: json.dumps(body).encode() for name, body in _answers().items()}) as url:
        async with _cases(url, folder) as cases:
            return [await _measure(case) for case in cases]


async def _measure(case: _Case) -> Cost:
    first = case.questions[0]
    alone = partial(case.runner.status, first.handle, first.config)
    assert isinstance(await alone(), Running), case.name
    alone_ms = await _cpu_ms(alone, POLLS)
    if not isinstance(case.runner, BatchRunner):
        return Cost(name=case.name, alone_ms=alone_ms)
    look = partial(case.runner.look, case.questions)
    seen = len((await look()).seen)
    assert seen == len(case.questions), case.name
    return Cost(name=case.name, alone_ms=alone_ms, listed=seen, list_ms=await _cpu_ms(look, LISTS))


async def _cpu_ms(call: Callable[[], Awaitable[object]], times: int) -> float:
    left = iter(range(times))

    async def one_after_the_other() -> None:
        for _ in left:
            await call()

    cpu = process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(one_after_the_other())
    return (process_time() - cpu) / times * 1e3


@asynccontextmanager
async def _cases(url: str, folder: Path) -> AsyncGenerator[list[_Case]]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        aws = await stack.enter_async_context(aws_at(url))
        http = await stack.enter_async_context(HttpClient(AddressPolicy.parse(["127.0.0.1"])))
        command = CommandRunner(
            root=folder / "jobs", clock=clock, secrets=NO_SECRETS, environment={"PATH": os.environ["PATH"]}
        )
        sleeping: Mapping[str, Json] = {"command": ["sleep", "600"]}
        process = await started(command, sleeping)
        stack.push_async_callback(command.stop, process, sleeping)
        web: Mapping[str, Json] = {"url": f"{url}/start", "statusUrl": f"{url}/status/{{id}}"}
        workspace: Mapping[str, Json] = {"workspaceUrl": url, "jobId": "7"}
        dag: Mapping[str, Json] = {"url": url, "dagId": "etl", "apiVersion": "v2"}
        yield [
            _case("glue", GlueRunner(aws, clock), glue.PAGE, {"jobName": "etl"}, {"jobName": "etl"}),
            _case("emr", EmrRunner(aws, clock), STEPS, {"clusterId": CLUSTER}, {}),
            _case(
                "emr-serverless",
                EmrServerlessRunner(aws, clock),
                emr_serverless.PAGE,
                {"applicationId": APPLICATION},
                {},
            ),
            _case("step-function", StepFunctionRunner(aws), step_functions.PAGE, {}, {}, prefix=f"{EXECUTION}:"),
            _case("databricks", DatabricksRunner(http, clock, NO_SECRETS), databricks.PAGE, {}, workspace),
            _case("airflow", AirflowRunner(http, clock, NO_SECRETS), airflow.PAGE, {}, dag),
            _Case(name="http", runner=HttpRunner(http, clock, NO_SECRETS), questions=[StatusQuery({"id": "0"}, web)]),
            _Case(name="command", runner=command, questions=[StatusQuery(process, sleeping)]),
        ]


def _case(
    name: str, runner: Runner, listed: int, handle: Mapping[str, Json], config: Mapping[str, Json], *, prefix: str = ""
) -> _Case:
    def about(number: int) -> StatusQuery:
        run_id = f"{prefix}{number}"
        return StatusQuery({**handle, "runId": run_id, "dagRunId": run_id}, config)

    return _Case(name=name, runner=runner, questions=[about(number) for number in range(listed)])


def _answers() -> dict[str, Json]:
    """What the targets answer, by operation or path: as much as they really tell."""
    runs = f"/applications/{APPLICATION}/jobruns"
    dags = "/api/v2/dags"
    return {
        "GetJobRun": {"JobRun": _glue(0)},
        "GetJobRuns": {"JobRuns": [_glue(number) for number in NAMES[: glue.PAGE]]},
        "DescribeStep": {"Step": _step(0)},
        "ListSteps": {"Steps": [_step(number) for number in NAMES[:STEPS]]},
        "DescribeExecution": _execution(0),
        "ListExecutions": {"executions": [_execution(number) for number in NAMES]},
        f"{runs}/0": {"jobRun": _serverless("0")},
        runs: {"jobRuns": [_serverless(str(number)) for number in NAMES[: emr_serverless.PAGE]]},
        "/api/2.2/jobs/runs/get": _databricks(0),
        "/api/2.2/jobs/runs/list": {"runs": [_databricks(number) for number in NAMES[: databricks.PAGE]]},
        f"{dags}/etl/dagruns/0": _dag_run(0),
        f"{dags}/~/dagruns/list": {
            "dag_runs": [_dag_run(number) for number in NAMES[: airflow.PAGE]],
            "total_entries": airflow.PAGE,
        },
        "/status/0": {"status": "running", "progress": 0.5},
    }


def _glue(number: int) -> dict[str, Json]:
    arguments: dict[str, Json] = {"--par_day": "20260303", "--interlock_token": "il-" + "0" * 40}
    return {
        "Id": str(number),
        "JobName": "etl",
        "JobRunState": "RUNNING",
        "StartedOn": NOW,
        "Arguments": arguments,
        "WorkerType": "G.1X",
        "NumberOfWorkers": 10,
        "LogGroupName": "/aws-glue/jobs/logs-v2",
    }


def _step(number: int) -> dict[str, Json]:
    status: dict[str, Json] = {"State": "RUNNING", "Timeline": {"CreationDateTime": NOW, "StartDateTime": NOW}}
    jar: dict[str, Json] = {"Jar": "command-runner.jar", "Args": ["spark-submit", "s3://code/etl.py"]}
    return {"Id": str(number), "Name": "etl il-" + "0" * 40, "Config": jar, "Status": status}


def _execution(number: int) -> dict[str, Json]:
    return {
        "executionArn": f"{EXECUTION}:{number}",
        "stateMachineArn": MACHINE,
        "name": str(number),
        "status": "RUNNING",
        "startDate": NOW,
    }


def _serverless(run_id: str) -> dict[str, Json]:
    return {
        "applicationId": APPLICATION,
        "id": run_id,
        "jobRunId": run_id,
        "name": "etl-il-" + "0" * 40,
        "state": "RUNNING",
        "stateDetails": "",
        "createdAt": NOW,
        "updatedAt": NOW,
        "executionRole": "arn:aws:iam::123456789012:role/job",
        "releaseLabel": "emr-7.9.0",
    }


def _databricks(number: int) -> dict[str, Json]:
    task: dict[str, Json] = {"task_key": "load", "state": {"life_cycle_state": "RUNNING"}, "start_time": NOW * 1000}
    return {
        "run_id": number,
        "run_name": "etl",
        "state": {"life_cycle_state": "RUNNING"},
        "start_time": NOW * 1000,
        "tasks": [task],
    }


def _dag_run(number: int) -> dict[str, Json]:
    return {
        "dag_id": "etl",
        "dag_run_id": str(number),
        "state": "running",
        "start_date": "2026-03-03T12:00:00Z",
        "end_date": None,
        "conf": {},
    }
