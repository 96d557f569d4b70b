"""The AWS targets as the suite of all runners wants them: on the fake, with jobs that end as they are told to."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import AwsFake, an_aws_fake, aws_at
from tests.support.fakes.aws_jobs import (
    MACHINE,
    NOW,
    ROLE,
    Emr,
    EmrServerless,
    Glue,
    JobService,
    Lambda,
    Logs,
    StepFunctions,
)
from tests.support.fakes.http_target import WebServer
from tests.support.fakes.job_targets import NO_SECRETS, OpenTarget, Plot
from worker.core.model.pipeline import JobType
from worker.core.model.values import Json
from worker.jobs.aws.client import Aws
from worker.jobs.aws.runners import aws_runners
from worker.jobs.runner import Config, Runner
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

CLOCK = ManualClock(NOW)

SPARK: Json = {"sparkSubmit": {"entryPoint": "s3://code/etl.py"}}
CONFIGS: dict[str, dict[str, Json]] = {
    "glue": {"jobName": Glue.name},
    "emr": {
        "clusterId": Emr.cluster,
        "stepName": "etl",
        "command": "command-runner.jar",
        "arguments": ["spark-submit"],
    },
    "emr-serverless": {
        "applicationId": EmrServerless.application,
        "jobName": "etl",
        "executionRoleArn": ROLE,
        "jobDriver": SPARK,
    },
    "step-function": {"stateMachineArn": MACHINE, "input": {"day": "2026-03-03"}},
    "lambda": {"functionName": Lambda.function, "payload": {"table": "orders"}},
}
# What makes each of them name something that does not exist.
NOWHERE: dict[str, dict[str, Json]] = {
    "glue": {"jobName": "nothing-here"},
    "emr": {"clusterId": "j-NOTHINGHERE"},
    "emr-serverless": {"applicationId": "00nothinghere"},
    "step-function": {"stateMachineArn": MACHINE.replace("etl", "nothing-here")},
    "lambda": {"functionName": "nothing-here"},
}
TIMED_OUT = '{"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 3.00 seconds"}'
# The state in which a job begins, and what its service says about it.
PLOTS: dict[str, dict[Plot, tuple[str, str]]] = {
    "glue": {
        Plot.SUCCEEDS: ("SUCCEEDED", ""),
        Plot.FAILS: ("FAILED", "exit code 1"),
        Plot.TIMES_OUT: ("TIMEOUT", ""),
        Plot.RUNS_ON: ("RUNNING", ""),
    },
    "emr": {
        Plot.SUCCEEDS: ("COMPLETED", ""),
        Plot.FAILS: ("FAILED", "Unknown Error."),
        Plot.TIMES_OUT: ("FAILED", "the cluster has no word for it"),
        Plot.RUNS_ON: ("RUNNING", ""),
    },
    "emr-serverless": {
        Plot.SUCCEEDS: ("SUCCESS", ""),
        Plot.FAILS: ("FAILED", "Job failed, please check complete logs"),
        Plot.TIMES_OUT: ("FAILED", "Job execution timed out after 60 minutes"),
        Plot.RUNS_ON: ("RUNNING", ""),
    },
    "step-function": {
        Plot.SUCCEEDS: ("SUCCEEDED", ""),
        Plot.FAILS: ("FAILED", "Exception: out of memory"),
        Plot.TIMES_OUT: ("TIMED_OUT", ""),
        Plot.RUNS_ON: ("RUNNING", ""),
    },
    "lambda": {
        Plot.SUCCEEDS: ('{"rows": 5}', ""),
        Plot.FAILS: ("", '{"errorType": "KeyError", "errorMessage": "orders"}'),
        Plot.TIMES_OUT: ("", TIMED_OUT),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsTarget:
    """One service of the fake, and a runner for it."""

    kind: str
    fake: AwsFake
    service: JobService
    make_runner: Callable[[], Runner]

    @property
    def server(self) -> WebServer | None:
        return self.fake.server

    @property
    def tells_timeouts(self) -> bool:
        return self.kind not in {"emr", "emr-serverless"}

    def runner(self) -> Runner:
        return self.make_runner()

    def job(self, plot: Plot) -> Config:
        self.service.begins_as, self.service.message = PLOTS[self.kind][plot]
        return CONFIGS[self.kind]

    def broken_job(self) -> Config:
        return {**CONFIGS[self.kind], **NOWHERE[self.kind]}

    def begun(self) -> int:
        return len(self.service.jobs)


SERVICES: dict[str, type[JobService]] = {
    "glue": Glue,
    "emr": Emr,
    "emr-serverless": EmrServerless,
    "step-function": StepFunctions,
    "lambda": Lambda,
}


def runner_of(kind: str, aws: Aws) -> Runner:
    """A runner as the wiring makes it."""
    return aws_runners(aws, CLOCK, NO_SECRETS, Sensors(SqliteTables.in_memory(CLOCK)))[JobType(kind)]


@asynccontextmanager
async def aws_target(kind: str, _folder: Path | None = None) -> AsyncGenerator[AwsTarget]:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        service = SERVICES[kind](fake)
        service.open()
        Logs(fake)
        yield AwsTarget(kind=kind, fake=fake, service=service, make_runner=partial(runner_of, kind, aws))


AWS_TARGETS: dict[str, OpenTarget] = {kind: partial(aws_target, kind) for kind in SERVICES}
