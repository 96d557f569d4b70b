"""The doctor warns of Glue jobs that Glue tries again by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.builders.values import a_pipeline
from worker.core.errors import RetryLater
from worker.core.model.pipeline import Job, JobType
from worker.operations.doctor.aws_calls import AwsRefusal, AwsReply
from worker.operations.doctor.glue import JOBS_MAX, glue_jobs, look_at_glue
from worker.operations.doctor.report import Diagnosis, Health


@dataclass
class FakeCalls:
    retries: int | None = 0
    problem: Exception | None = None
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> AwsReply:
        self.asked.append(parameters)
        if self.problem is not None:
            raise self.problem
        assert (service, operation) == ("glue", "GetJob")
        return AwsReply({"Job": {"Name": parameters["JobName"], "MaxRetries": self.retries}}, None)


async def found(calls: FakeCalls, *names: str) -> list[Diagnosis]:
    return [each async for each in look_at_glue(calls, list(names))]


async def test_a_job_that_glue_does_not_try_again_is_fine() -> None:
    for retries in (0, None):
        [diagnosis] = await found(FakeCalls(retries), "etl")
        assert diagnosis.health is Health.OK


async def test_a_job_that_glue_tries_again_is_warned_of_with_what_to_do() -> None:
    [diagnosis] = await found(FakeCalls(2), "etl")

    assert diagnosis.health is Health.WARN
    assert "up to 2 times" in diagnosis.finding
    assert "MaxRetries to 0" in diagnosis.remedy


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (AwsRefusal("AccessDeniedException", "no"), "glue:GetJob"),
        (AwsRefusal("EntityNotFoundException", "no such job"), "etl"),
        (RetryLater("no answer"), "glue:GetJob"),
    ],
)
async def test_a_job_that_cannot_be_looked_at_is_wrong(problem: Exception, words: str) -> None:
    [diagnosis] = await found(FakeCalls(problem=problem), "etl")

    assert diagnosis.health is Health.FAIL
    assert words in f"{diagnosis.subject}: {diagnosis.finding}"


async def test_how_many_jobs_are_looked_at_is_bounded_and_said() -> None:
    calls = FakeCalls()

    diagnoses = await found(calls, *(f"job-{number}" for number in range(JOBS_MAX + 3)))

    assert len(calls.asked) == JOBS_MAX
    assert "3 more" in diagnoses[-1].finding


def test_the_jobs_of_pipelines_are_named_once_and_templates_are_left_out() -> None:
    def started(kind: JobType, **config: str) -> Job:
        return Job(type=kind, config=config)

    jobs = [
        started(JobType.GLUE, jobName="b"),
        started(JobType.GLUE, jobName="a"),
        started(JobType.GLUE, jobName="a"),
        started(JobType.GLUE, jobName="etl-${DATE}"),
        started(JobType.COMMAND, jobName="c"),
        None,
    ]

    assert glue_jobs(replace(a_pipeline(), job=job) for job in jobs) == ["a", "b"]
