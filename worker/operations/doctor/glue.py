"""Checks whether Glue itself retries the runs of the Glue jobs that pipelines start."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from worker.core.errors import WorkerError
from worker.core.model.pipeline import JobType, Pipeline
from worker.operations.doctor.aws_calls import AwsRefusal
from worker.operations.doctor.iam import IamCalls, denied, unanswered
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong

AREA: Final = "jobs"
JOBS_MAX: Final = 100  # each job checked costs a call
_TEMPLATE: Final = "${"  # in a name that is completed only for a run


def glue_jobs(pipelines: Iterable[Pipeline]) -> list[str]:
    """Return the Glue jobs that pipelines name, sorted, each once."""
    jobs = (pipeline.job for pipeline in pipelines)
    names = (job.config.get("jobName") for job in jobs if job is not None and job.type is JobType.GLUE)
    return sorted({name for name in names if isinstance(name, str) and _TEMPLATE not in name})


async def look_at_glue(calls: IamCalls, names: list[str]) -> AsyncIterator[Diagnosis]:
    for name in names[:JOBS_MAX]:
        yield await _look_at(calls, name)
    if len(names) > JOBS_MAX:
        finding = f"{len(names) - JOBS_MAX} more Glue jobs were not checked"
        yield doubtful(AREA, "Glue jobs", finding, "check that their MaxRetries is 0")


async def _look_at(calls: IamCalls, name: str) -> Diagnosis:
    try:
        answer = await calls.call("glue", "GetJob", {"JobName": name})
    except AwsRefusal as refusal:
        if refusal.is_for_lack_of_rights:
            return denied("glue:GetJob", name, refusal, "reads the job")
        return wrong(AREA, f"Glue job {name}", str(refusal), "correct job.config.jobName, or make the job")
    except WorkerError as trouble:
        return unanswered("glue:GetJob", trouble)
    retries = answer.body.get("Job", {}).get("MaxRetries") or 0
    if not retries:
        return fine(AREA, f"Glue job {name}", "Glue does not retry it by itself")
    finding = f"Glue retries each run of it by itself, up to {retries} times; Interlock follows these retries"
    remedy = "set its MaxRetries to 0 and use job.maxRetries, so that each attempt is evaluated, counted and reported"
    return doubtful(AREA, f"Glue job {name}", finding, remedy)
