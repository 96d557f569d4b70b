"""The vectors about job targets, put to the runners themselves; only the far end of the wire is played.

What the reference called *metadata* is a handle here, with other names. Its fixed search of Glue's logs for errors is
a setting here, `failureSignals`; a poll of something that is never polled is one of a job whose end is not known yet.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.builders.runners import TOKEN, a_request
from tests.support.clock.manual import ManualClock
from tests.support.fakes.job_targets import NO_SECRETS
from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period
from worker.jobs.aws.client import Aws
from worker.jobs.aws.emr import EmrRunner
from worker.jobs.aws.emr_serverless import EmrServerlessRunner
from worker.jobs.aws.errors import declined
from worker.jobs.aws.glue import GlueRunner
from worker.jobs.aws.glue_runs import TOKEN_ARGUMENT
from worker.jobs.aws.lambda_ import LambdaRunner
from worker.jobs.aws.step_functions import StepFunctionRunner
from worker.jobs.command.exit_status import judge
from worker.jobs.command.files import EXITED, CommandResult
from worker.jobs.command.processes import identify
from worker.jobs.command.runner import CommandRunner
from worker.jobs.http.runner import HttpRunner
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import Failed, Handle, JobStatus, Runner, Running, StartAnswer, Started, StartRequest, Unknown
from worker.net.address_policy import AddressPolicy, AddressRefused
from worker.net.http_client import HttpAnswer, HttpClient, NotSent, Reply, Request
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

Case: TypeAlias = Mapping[str, Any]

CLOCK = ManualClock()
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:etl"

# What each target needs besides what a case gives, and what a case gives that is not of the form it has to have.
CONFIGS: Mapping[str, dict[str, Json]] = {
    "glue": {"jobName": "etl", "failureSignals": [" ERROR ", " FATAL "]},
    "emr": {"clusterId": "j-1", "stepName": "etl", "command": "command-runner.jar"},
    "emr-serverless": {"jobName": "etl", "executionRoleArn": "arn:role", "jobDriver": {"sparkSubmit": {}}},
    "step-function": {},
    "databricks": {"workspaceUrl": "https://w", "jobId": "7"},
    "airflow": {"url": "https://a", "dagId": "d", "apiVersion": "v1"},
    "lambda": {},
    "http": {},
    "command": {"command": "true"},
}
HANDLES: Mapping[str, Handle] = {
    "glue": {"jobName": "etl", "runId": "jr_1"},
    "emr": {"clusterId": "j-1", "runId": "s-1"},
    "emr-serverless": {"applicationId": "app", "runId": "r-1"},
    "step-function": {"runId": "arn:x"},
    "databricks": {"token": TOKEN, "runId": "7"},
    "airflow": {"token": TOKEN, "dagRunId": TOKEN},
    "lambda": {"token": TOKEN, "pipeline": "orders", "period": "2026-03-03"},
}
# What the reference called the parts of a handle.
METADATA: Mapping[str, Mapping[str, str]] = {
    "glue": {"jobName": "glue_job_name", "runId": "glue_job_run_id"},
    "emr-serverless": {"applicationId": "emr_sl_application_id", "runId": "emr_sl_job_run_id"},
    "step-function": {"runId": "sfn_execution_arn"},
    "airflow": {"dagRunId": "airflow_dag_run_id"},
}


def classify(case: Case) -> dict[str, object]:
    """What this program says to a case, as far as the case asks."""
    answers: Mapping[str, Callable[[Case], dict[str, object]]] = {
        "status": _status,
        "execute": _execute,
        "addressGuard": _guard,
        "injectDate": _injection,
    }
    got = answers[case["op"]](case)
    return {name: value for name, value in got.items() if name in case["expect"] or name == "error"}


# --- the far end ------------------------------------------------------------------------------------------------------


class PlayedAws(Aws):
    """Answers each operation as the case says, and keeps what it was asked."""

    def __init__(self, response: Case) -> None:
        super().__init__()
        self._response = response
        self.asked: dict[str, Mapping[str, object]] = {}

    async def start(
        self, service: str, operation: str, parameters: Mapping[str, object], *_: object, **_limits: object
    ) -> Mapping[str, Any]:
        return await self.call(service, operation, parameters)

    async def call(self, service: str, operation: str, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        self.asked[operation] = parameters
        said = self._response
        match service, operation:
            case "glue", "GetJobRun":
                return {"JobRun": {"JobRunState": said.get("jobRunState")}}
            case "emr", _:
                return {"Step": {"Status": {"State": said.get("stepState")}}}
            case "emr-serverless", "GetJobRun":
                return {"jobRun": {"state": said.get("state")}}
            case "logs", _:
                return self._logged(str(parameters["logStreamNames"]))
            case "lambda", _:
                return {"FunctionError": said.get("functionError"), "Payload": Payload(said.get("payload", ""))}
            case _:
                return {**said, "JobRunId": said.get("jobRunId")}

    def _logged(self, streams: str) -> Mapping[str, Any]:
        kind = "rca" if "job-insights-rca-driver" in streams else "driverLog"
        if f"{kind}Error" in self._response:
            raise declined(self._response[f"{kind}Error"], "as played", "logs FilterLogEvents")
        return {"events": [{"message": message} for message in self._response.get(f"{kind}Events", [])]}


class Payload:
    def __init__(self, text: str) -> None:
        self._text = text

    async def read(self) -> bytes:
        return self._text.encode()


class PlayedHttp(HttpClient):
    """Gives every request the same reply, and keeps the last one."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(AddressPolicy())
        self._reply = reply
        self.last: Request | None = None

    async def send(self, request: Request) -> Reply:
        self.last = request
        return self._reply


def _reply(response: Case) -> Reply:
    if problem := response.get("networkError"):
        is_late = "deadline" in problem
        return NotSent(FailureCategory.TIMEOUT if is_late else FailureCategory.TRANSIENT, problem)
    body = response.get("body", "")
    text = body if isinstance(body, str) else json.dumps(body)
    return HttpAnswer(status=response.get("httpStatus", 200), headers={}, body=text.encode())


def _runner(kind: str, aws: PlayedAws, http: PlayedHttp) -> Runner:
    runners: Mapping[str, Callable[[], Runner]] = {
        "glue": lambda: GlueRunner(aws, CLOCK),
        "emr": lambda: EmrRunner(aws, CLOCK),
        "emr-serverless": lambda: EmrServerlessRunner(aws, CLOCK),
        "step-function": lambda: StepFunctionRunner(aws),
        "databricks": lambda: DatabricksRunner(http, CLOCK, NO_SECRETS),
        "airflow": lambda: AirflowRunner(http, CLOCK, NO_SECRETS),
        "lambda": lambda: LambdaRunner(aws, CLOCK, NO_SECRETS, Sensors(SqliteTables.in_memory(CLOCK))),
        "http": lambda: HttpRunner(http, CLOCK, NO_SECRETS),
        "command": lambda: CommandRunner(root=Path("/nowhere"), clock=CLOCK, secrets=NO_SECRETS, environment={}),
    }
    return runners[kind]()


# --- polls ------------------------------------------------------------------------------------------------------------


def _status(case: Case) -> dict[str, object]:
    try:
        return _told(asyncio.run(_asked(case)))
    except (RetryLater, KeyError):  # a handle without the id is none, and does not come out of a store of ours
        return {"error": True}


async def _asked(case: Case) -> JobStatus:
    kind = case["type"]
    async with PlayedHttp(_reply(case["response"])) as http:
        runner = _runner(kind, PlayedAws(case["response"]), http)
        config: dict[str, Json] = {**CONFIGS[kind]}
        if kind == "lambda":
            config |= {"functionName": "f", "invocationType": "Event", "resultSensor": "done"}
        return await runner.status(_handle(case), config)


def _handle(case: Case) -> Handle:
    kind, metadata = case["type"], case.get("metadata", {})
    if kind == "command":
        here = identify(os.getpid())
        assert here is not None
        return {"token": TOKEN, "host": "here", **here._asdict()}
    is_incomplete = "metadata" in case and not metadata.get("completedSync")
    return {} if is_incomplete else HANDLES[kind]


def _told(status: JobStatus) -> dict[str, object]:
    match status:
        case Running(message):
            return {"state": "running", "category": "", "message": message}
        case Failed(category, message):
            return {"state": "failed", "category": category.value, "message": message}
        case _:
            return {"state": "succeeded", "category": ""}


# --- starts -----------------------------------------------------------------------------------------------------------


def _execute(case: Case) -> dict[str, object]:
    if case["type"] == "command":
        ended = judge(CommandResult(case["response"]["exitCode"], EXITED), "")
        return _outcome(ended, case) if isinstance(ended, Failed) else {"ok": True}
    answer, end = asyncio.run(_started(case))
    return _outcome(end if isinstance(end, Failed) else answer, case)


async def _started(case: Case) -> tuple[StartAnswer, JobStatus | None]:
    """The answer to a start, and how the job is if it was over with it."""
    async with PlayedHttp(_reply(case["response"])) as http:
        runner = _runner(case["type"], PlayedAws(case["response"]), http)
        request = _request(case)
        answer = await runner.start(request)
        if isinstance(answer, Started) and "endedAt" in answer.handle:
            return answer, await runner.status(answer.handle, request.config)
        return answer, None


def _request(case: Case) -> StartRequest:
    config: dict[str, Json] = {**CONFIGS[case["type"]], **case["config"]}
    if case["type"] == "step-function":
        config["stateMachineArn"] = MACHINE
    period = Period.parse(case.get("date", "2026-03-03"))
    assert period is not None
    # The reference let Airflow name the run; here it is named by whoever asks.
    is_named = case["id"] == "airflow-start-ok"
    token = str(case["response"]["body"]["dag_run_id"]) if is_named else TOKEN
    return a_request(config, token=token, period=period)


def _outcome(answer: StartAnswer | Failed, case: Case) -> dict[str, object]:
    match answer:
        case Started(handle) if "endedAt" in handle:
            return {"ok": True, "metadata": {"completedSync": True}, "runId": "sync"}
        case Started(handle):
            names = METADATA[case["type"]]
            of_config = {"airflow_url": "https://a", "airflow_dag_id": "d"} if case["type"] == "airflow" else {}
            metadata = {told: handle[name] for name, told in names.items()} | of_config
            return {"ok": True, "metadata": metadata, "runId": handle.get("runId", handle.get("dagRunId"))}
        case Unknown():
            return {"ok": False, "category": "unknown"}
        case _:
            return {"ok": False, "category": answer.category.value}


# --- what a job is told -----------------------------------------------------------------------------------------------


def _injection(case: Case) -> dict[str, object]:
    return asyncio.run(_injected(case))


async def _injected(case: Case) -> dict[str, object]:
    async with PlayedHttp(_reply({})) as http:
        aws = PlayedAws({"jobRunId": "jr_1", "executionArn": "arn:x"})
        await _runner(case["type"], aws, http).start(_request(case))
        if http.last:
            return {"bodyJson": json.loads(http.last.body)}
    match case["type"]:
        case "glue":
            arguments: Any = aws.asked["StartJobRun"]["Arguments"]
            return {"arguments": {name: value for name, value in arguments.items() if name != TOKEN_ARGUMENT}}
        case "lambda":
            payload: Any = aws.asked["Invoke"]["Payload"]
            return {"unchanged": json.loads(payload) == {}}
        case _:
            return {"unchanged": json.loads(str(aws.asked["StartExecution"]["input"])) == {}}


def _guard(case: Case) -> dict[str, object]:
    try:
        AddressPolicy().check_host(case["ip"])
    except AddressRefused:
        return {"blocked": True}
    return {"blocked": False}
