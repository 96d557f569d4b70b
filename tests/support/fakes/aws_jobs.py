"""The job services of AWS, as small as they can be: each keeps its jobs in memory, in the states a test gives them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from tests.support.fakes.aws import AwsError, AwsFake

NOW = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
ENDED = NOW + timedelta(minutes=10)
ROLE = "arn:aws:iam::123456789012:role/job"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:etl"


@dataclass(slots=True)
class Job:
    """One job: what it was started with, its state, and what the service says about it."""

    id: str
    given: Mapping[str, Any]
    state: str
    message: str = ""
    created_at: datetime = NOW
    retry_of: str = ""  # the run that the service tried again by itself
    attempt: int = 0


@dataclass(slots=True)
class JobService:
    """What the services have in common. `begins_as` is the state of a new job."""

    fake: AwsFake
    begins_as: str = ""
    message: str = ""
    jobs: list[Job] = field(default_factory=list[Job])  # the newest last
    page_size: int = 50
    now: datetime = NOW

    def open(self) -> Self:
        """Answer the calls of the service from now on."""
        raise NotImplementedError

    def add(self, job_id: str, given: Mapping[str, Any]) -> Job:
        self.jobs.append(Job(job_id, given, self.begins_as, self.message, self.now))
        return self.jobs[-1]

    def find(self, job_id: str, code: str) -> Job:
        job = next((job for job in self.jobs if job.id == job_id), None)
        if job is None:
            raise AwsError(code, f"{job_id} is not known")
        return job

    def page(self, cursor: str | None, states: Collection[str] = ()) -> tuple[list[Job], str | None]:
        """The newest first, of some states only if they are given, and where the next page begins."""
        first = int(cursor or 0)
        newest = [job for job in self.jobs[::-1] if not states or job.state in states]
        rest = first + self.page_size
        return newest[first:rest], str(rest) if rest < len(newest) else None


class Glue(JobService):
    name = "etl"
    log_group = "/aws-glue/jobs/logs-v2"
    max_retries = 0

    def open(self) -> Self:
        self.fake.serve(
            "glue",
            StartJobRun=self._start,
            GetJobRun=lambda asked: {"JobRun": self._shown(self.find(asked["RunId"], "EntityNotFoundException"))},
            GetJobRuns=self._list,
            BatchStopJobRun=self._stop,
            GetJob=self._describe,
        )
        return self

    def retry(self, state: str = "RUNNING") -> Job:
        """Try the last run again, as Glue does by itself: another run, with the same arguments."""
        last = self.jobs[-1]
        root = last.id.partition("_attempt_")[0]
        retried = self.add(f"{root}_attempt_{last.attempt + 1}", last.given)
        retried.state, retried.retry_of, retried.attempt = state, last.id, last.attempt + 1
        return retried

    def _describe(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["JobName"] != self.name:
            raise AwsError("EntityNotFoundException", f"Entity not found: {asked['JobName']}")
        return {"Job": {"Name": self.name, "MaxRetries": self.max_retries}}

    def _start(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_name(asked)
        return {"JobRunId": self.add(f"jr_{len(self.jobs) + 1}", asked).id}

    def _check_name(self, asked: Mapping[str, Any]) -> None:
        if asked["JobName"] != self.name:
            raise AwsError("EntityNotFoundException", f"Entity not found: {asked['JobName']}")

    def _shown(self, job: Job) -> Mapping[str, Any]:
        return {
            "Id": job.id,
            "JobName": self.name,
            "JobRunState": job.state,
            "Arguments": job.given["Arguments"],
            "StartedOn": job.created_at,
            "LogGroupName": self.log_group,
            "Attempt": job.attempt,
            **({"PreviousRunId": job.retry_of} if job.retry_of else {}),
            **({"ErrorMessage": job.message} if job.message else {}),
            **({"CompletedOn": ENDED} if job.state not in {"RUNNING", "STARTING", "STOPPING", "WAITING"} else {}),
        }

    def _list(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_name(asked)
        jobs, cursor = self.page(asked.get("NextToken"))
        return {"JobRuns": [self._shown(job) for job in jobs], **({"NextToken": cursor} if cursor else {})}

    def _stop(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        [run_id] = asked["JobRunIds"]
        job = self.find(run_id, "InvalidInputException")
        named = {"JobName": self.name, "JobRunId": run_id}
        if job.state != "RUNNING":
            detail = {"ErrorCode": "InvalidInputException", "ErrorMessage": f"the run is {job.state}"}
            return {"Errors": [{**named, "ErrorDetail": detail}]}
        job.state = "STOPPED"
        return {"SuccessfulSubmissions": [named]}


class Emr(JobService):
    cluster = "j-2AXXXXXXGAPLF"

    def open(self) -> Self:
        self.fake.serve(
            "emr",
            AddJobFlowSteps=self._start,
            DescribeStep=lambda asked: {"Step": self._shown(self.find(asked["StepId"], "InvalidRequestException"))},
            ListSteps=self._list,
            CancelSteps=self._stop,
        )
        return self

    def _check_cluster(self, cluster: str, code: str) -> None:
        if cluster != self.cluster:
            raise AwsError(code, f"Cluster id '{cluster}' is not valid.")

    def _start(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_cluster(asked["JobFlowId"], "ValidationException")
        return {"StepIds": [self.add(f"s-{len(self.jobs) + 1}", step).id for step in asked["Steps"]]}

    def _shown(self, job: Job) -> Mapping[str, Any]:
        timeline = {"CreationDateTime": job.created_at, "EndDateTime": ENDED}
        failure = {"FailureDetails": {"Reason": job.message, "LogFile": "s3://logs/stderr.gz"}} if job.message else {}
        return {
            "Id": job.id,
            "Name": job.given["Name"],
            "Status": {"State": job.state, "Timeline": timeline, **failure},
        }

    def _list(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_cluster(asked["ClusterId"], "InvalidRequestException")
        if "StepIds" in asked:
            if len(asked["StepIds"]) > 10:
                raise AwsError("ValidationException", "StepIds has more than 10 members")
            return {"Steps": [self._shown(job) for job in self.jobs if job.id in asked["StepIds"]]}
        jobs, cursor = self.page(asked.get("Marker"), asked.get("StepStates", ()))
        return {"Steps": [self._shown(job) for job in jobs], **({"Marker": cursor} if cursor else {})}

    def _stop(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        [step_id] = asked["StepIds"]
        job = self.find(step_id, "InvalidRequestException")
        is_active = job.state in {"PENDING", "RUNNING"}
        job.state = "CANCELLED" if is_active else job.state
        answer = {"Status": "SUBMITTED"} if is_active else {"Status": "FAILED", "Reason": f"the step is {job.state}"}
        return {"CancelStepsInfoList": [{"StepId": step_id, **answer}]}


class EmrServerless(JobService):
    application = "00f1r3n4k5a6b7c8"

    def open(self) -> Self:
        self.fake.serve(
            "emr-serverless",
            StartJobRun=self._start,
            GetJobRun=lambda asked: {"jobRun": self._shown(self.find(asked["jobRunId"], "ResourceNotFoundException"))},
            ListJobRuns=self._list,
            CancelJobRun=self._stop,
        )
        return self

    def _start(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["applicationId"] != self.application:
            raise AwsError("ResourceNotFoundException", f"Application {asked['applicationId']} does not exist.")
        same = (job for job in self.jobs if job.given["clientToken"] == asked["clientToken"])
        job = next(same, None) or self.add(f"00f{len(self.jobs) + 1:013d}", asked)
        arn = f"arn:aws:emr-serverless:eu-west-1:123456789012:/applications/{self.application}/jobruns/{job.id}"
        return {"applicationId": self.application, "jobRunId": job.id, "arn": arn}

    def _summary(self, job: Job) -> dict[str, Any]:
        return {
            "applicationId": self.application,
            "arn": f"arn:aws:emr-serverless:eu-west-1:123456789012:/applications/{self.application}/jobruns/{job.id}",
            "name": job.given["name"],
            "createdBy": ROLE,
            "createdAt": job.created_at,
            "updatedAt": ENDED,
            "executionRole": ROLE,
            "state": job.state,
            "stateDetails": job.message or f"the run is {job.state}",
            "releaseLabel": "emr-7.9.0",
        }

    def _shown(self, job: Job) -> Mapping[str, Any]:
        ended = {"endedAt": ENDED} if job.state in {"SUCCESS", "FAILED", "CANCELLED"} else {}
        return {**self._summary(job), "jobRunId": job.id, "jobDriver": job.given["jobDriver"], **ended}

    def _list(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["applicationId"] != self.application:
            return {"jobRuns": []}
        jobs, cursor = self.page(asked.get("nextToken"), asked.get("states", ()))
        return {
            "jobRuns": [{**self._summary(job), "id": job.id} for job in jobs],
            **({"nextToken": cursor} if cursor else {}),
        }

    def _stop(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        job = self.find(asked["jobRunId"], "ResourceNotFoundException")
        if job.state in {"SUCCESS", "FAILED", "CANCELLED"}:
            raise AwsError("ValidationException", f"Job run is in {job.state} and cannot be cancelled")
        job.state = "CANCELLED"
        return {"applicationId": self.application, "jobRunId": job.id}


class StepFunctions(JobService):
    def open(self) -> Self:
        self.fake.serve(
            "stepfunctions",
            StartExecution=self._start,
            DescribeExecution=lambda asked: self._shown(self.find(asked["executionArn"], "ExecutionDoesNotExist")),
            ListExecutions=self._list,
            StopExecution=self._stop,
        )
        return self

    def _start(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if not asked["stateMachineArn"].startswith(MACHINE):
            raise AwsError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{asked['stateMachineArn']}'")
        arn = f"{MACHINE.replace('stateMachine', 'execution')}:{asked['name']}"
        same = next((job for job in self.jobs if job.id == arn), None)
        if same is not None and (same.state != "RUNNING" or same.given["input"] != asked["input"]):
            raise AwsError("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
        job = same or self.add(arn, asked)
        return {"executionArn": job.id, "startDate": job.created_at}

    def _shown(self, job: Job) -> Mapping[str, Any]:
        error, _, cause = job.message.partition(": ")
        return {
            "executionArn": job.id,
            "stateMachineArn": MACHINE,
            "name": job.given["name"],
            "status": job.state,
            "startDate": job.created_at,
            **({"stopDate": ENDED} if job.state not in {"RUNNING", "PENDING_REDRIVE"} else {}),
            **({"error": error, "cause": cause} if job.message else {}),
        }

    def _list(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["stateMachineArn"] != MACHINE:
            raise AwsError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{asked['stateMachineArn']}'")
        jobs, cursor = self.page(asked.get("nextToken"), {asked["statusFilter"]})
        told = ("executionArn", "stateMachineArn", "name", "status", "startDate")
        listed = [{name: self._shown(job)[name] for name in told} for job in jobs]
        return {"executions": listed, **({"nextToken": cursor} if cursor else {})}

    def _stop(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        job = self.find(asked["executionArn"], "ExecutionDoesNotExist")
        job.state = "ABORTED" if job.state == "RUNNING" else job.state
        return {"stopDate": ENDED}


class Lambda(JobService):
    """Functions whose answer is `begins_as`: a JSON text; a `message` makes it a failure."""

    function = "etl"

    def open(self) -> Self:
        self.fake.serve("lambda", Invoke=self._invoke)
        return self

    def _invoke(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["FunctionName"] != self.function:
            raise AwsError("ResourceNotFoundException", f"Function not found: {asked['FunctionName']}")
        self.add(str(len(self.jobs)), asked)
        if asked["InvocationType"] == "Event":
            return {"StatusCode": 202, "Payload": b""}
        failed = {"FunctionError": "Unhandled"} if self.message else {}
        return {"StatusCode": 200, "Payload": (self.message or self.begins_as).encode(), **failed}


class Logs:
    """CloudWatch's logs: `streams` by their name; a stream that is not there is not found."""

    def __init__(self, fake: AwsFake, streams: Mapping[str, list[str]] | None = None) -> None:
        self.streams = dict(streams or {})
        self.empty_pages = 0  # before the one with the hits
        fake.serve("logs", FilterLogEvents=self._filter)

    def _filter(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        [stream] = asked["logStreamNames"]
        if stream not in self.streams:
            raise AwsError("ResourceNotFoundException", "The specified log stream does not exist.")
        page = int(asked.get("nextToken", "0"))
        if page < self.empty_pages:
            return {"events": [], "nextToken": str(page + 1)}
        term = asked["filterPattern"].strip('"')
        hits = [line for line in self.streams[stream] if term in line]
        return {"events": [{"logStreamName": stream, "message": line} for line in hits]}
