"""Defines the `job.config` of each job target.

Keys match in any spelling that differs only in case, `_` and `-` (`dagId`, `dagID`, `dag_id`). The result uses
lowerCamelCase and omits values that equal their default. Maps that belong to the target (arguments, headers, a job
driver) are passed on unchanged.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.alias_generators import to_camel

from worker.core.model.pipeline import JobType
from worker.yaml.document import loose


def shape_tag(value: object) -> str:
    """Return the tag by which a union of shapes is told apart."""
    match value:
        case dict():
            return "<mapping>"
        case list():
            return "<list>"
        case _:
            return "<text>"


def _job_number(value: object) -> object:
    """Return a job id as text: Databricks ids are numbers, and files write them with or without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# A template may supply the whole address, so only the form is checked, and only if the address is written out.
Url: TypeAlias = Annotated[str, Field(pattern=r"^(https?://|\$)")]
TextMap: TypeAlias = dict[str, str]
JsonMap: TypeAlias = dict[str, object]
Body: TypeAlias = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[JsonMap, Tag("<mapping>")],
    Discriminator(shape_tag),
]
# In the given order, because many programs depend on it.
Arguments: TypeAlias = Annotated[
    Annotated[TextMap, Tag("<mapping>")] | Annotated[list[str], Tag("<list>")],
    Discriminator(shape_tag),
]
FailureSignal: TypeAlias = Annotated[str, Field(min_length=3, max_length=200)]
TimeoutSeconds: TypeAlias = Annotated[int, Field(ge=1, le=900)]


class LooseSection(BaseModel):
    """Accepts keys in several spellings that differ in case, `_` and `-`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _spell_keys(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        known = {loose(name): to_camel(name) for name in cls.model_fields}
        members = cast("dict[str, object]", data)
        return {known.get(loose(key), key): value for key, value in members.items() if value is not None}


class Auth(LooseSection):
    """How requests to an HTTP target are authenticated; polls use it as starts do."""

    type: Literal["bearer", "basic", "oauth"] = Field(description="The scheme.")
    token: str = Field(default="", description="Bearer token; refer to a secret: `${INTERLOCK_TOKEN}`.")
    username: str = Field(default="", description="User name, for basic.")
    password: str = Field(default="", description="Password, for basic; refer to a secret.")
    token_url: str = Field(default="", description="Where an OAuth client gets its token.")
    client_id: str = Field(default="", description="OAuth client id.")
    client_secret: str = Field(default="", description="OAuth client secret; refer to a secret.")
    scope: str = Field(default="", description="OAuth scope.")
    client_in: Literal["body", "header"] = Field(
        default="body", description="Where id and secret of an OAuth client are sent; Databricks wants the header."
    )


AUTH_NEEDS: Mapping[str, tuple[str, ...]] = {
    "bearer": ("token",),
    "basic": ("username", "password"),
    "oauth": ("tokenUrl", "clientId", "clientSecret"),
}


class JobConfig(LooseSection):
    """JobConfig is the configuration of one target.

    The loader checks `required` keys, because it reports all problems at once.
    """

    required: ClassVar[tuple[str, ...]] = ()
    # A configuration must have exactly one of these keys.
    either: ClassVar[tuple[str, ...]] = ()
    # A configuration may have at most one of these keys.
    conflicting: ClassVar[tuple[str, ...]] = ()
    # Keys that a value of another key requires: the key, the value, and the required key.
    needing: ClassVar[tuple[tuple[str, str, str], ...]] = ()


class GlueConfig(JobConfig):
    required = ("jobName",)

    job_name: str = Field(default="", description="Name of the Glue job.")
    arguments: TextMap = Field(default_factory=dict, description="Job arguments; `--par_day`, `--par_hour` are added.")
    worker_type: str = Field(default="", description="Worker type of this run, for example G.1X.")
    number_of_workers: int | None = Field(default=None, ge=1, le=1000, description="Number of workers of this run.")
    execution_class: Literal["", "STANDARD", "FLEX"] = Field(default="", description="Execution class of this run.")
    timeout_minutes: int | None = Field(default=None, ge=1, le=10080, description="Glue's own limit for this run.")
    success_check: bool = Field(default=True, description="Look for signs of failure before a success is believed.")
    failure_signals: list[FailureSignal] = Field(
        default_factory=list, max_length=5, description="Texts in the driver's log that mean failure all the same."
    )


class EmrConfig(JobConfig):
    required = ("clusterId", "stepName", "command")

    cluster_id: str = Field(default="", description="The running cluster, `j-…`.")
    step_name: str = Field(default="", description="Name of the step; the attempt's token is appended.")
    command: str = Field(default="", description="The JAR, for example command-runner.jar.")
    arguments: Arguments = Field(default_factory=list, description="Arguments in order, or a map written as k=v.")
    main_class: str = Field(default="", description="Main class, if the JAR does not name it.")
    action_on_failure: Literal["CONTINUE", "CANCEL_AND_WAIT"] = Field(
        default="CONTINUE", description="What the cluster does with the steps behind a failed one."
    )


class EmrServerlessConfig(JobConfig):
    required = ("applicationId", "jobName", "executionRoleArn", "jobDriver")

    application_id: str = Field(default="", description="The application.")
    job_name: str = Field(default="", description="Name of the job run; the attempt's token is appended.")
    execution_role_arn: str = Field(default="", description="Role the job runs under.")
    job_driver: JsonMap = Field(
        default_factory=dict, description="As the API takes it: {sparkSubmit: {entryPoint: …}}."
    )
    configuration_overrides: JsonMap = Field(default_factory=dict, description="Overrides, as the API takes them.")
    arguments: Arguments = Field(default_factory=list, description="Appended to the driver's entry point arguments.")
    timeout_minutes: int | None = Field(default=None, ge=1, le=43200, description="EMR's own limit for this run.")


class StepFunctionConfig(JobConfig):
    required = ("stateMachineArn",)
    conflicting = ("arguments", "input")

    state_machine_arn: str = Field(default="", description="The state machine.")
    arguments: TextMap = Field(default_factory=dict, description="Input of the execution, texts only.")
    input: JsonMap = Field(default_factory=dict, description="Input of the execution, any JSON; instead of arguments.")


class DatabricksConfig(JobConfig):
    required = ("workspaceUrl",)
    either = ("jobId", "body")
    conflicting = ("body", "arguments")

    workspace_url: Url = Field(default="", description="Address of the workspace.")
    job_id: Annotated[str, BeforeValidator(_job_number)] = Field(
        default="", description="A job to run now; or give `body`."
    )
    body: JsonMap = Field(default_factory=dict, description="A one-time run, as runs/submit takes it: {tasks: […]}.")
    arguments: TextMap = Field(default_factory=dict, description="Parameters of the job to run now.")
    arguments_as: Literal["notebook_params", "job_parameters"] = Field(
        default="notebook_params", description="What run-now calls them; jobs that declare parameters need the second."
    )
    headers: TextMap = Field(default_factory=dict, description="Extra request headers.")
    auth: Auth | None = Field(default=None, description="How requests are authenticated.")
    api_version: Literal["2.1", "2.2"] = Field(default="2.2", description="Version of the jobs API.")
    timeout: TimeoutSeconds = Field(default=30, description="Seconds for one request.")


class AirflowConfig(JobConfig):
    required = ("url", "dagId")

    url: Url = Field(default="", description="Address of the Airflow web server or API server.")
    dag_id: str = Field(default="", description="The DAG.")
    body: Body = Field(default="", description="`conf` of the DAG run: a mapping, or JSON text.")
    arguments: TextMap = Field(default_factory=dict, description="Merged into `conf`.")
    logical_date: str = Field(
        default="", description="Logical date of the DAG run, such as ${DATE}T00:00:00Z; a DAG takes each one once."
    )
    headers: TextMap = Field(default_factory=dict, description="Extra request headers.")
    auth: Auth | None = Field(default=None, description="How requests are authenticated.")
    api_version: Literal["auto", "v1", "v2"] = Field(default="auto", description="v1 is Airflow 2, v2 is Airflow 3.")
    timeout: TimeoutSeconds = Field(default=30, description="Seconds for one request.")
    poll_interval: int | None = Field(default=None, ge=1, le=3600, description="The same as job.pollIntervalSeconds.")


class LambdaConfig(JobConfig):
    required = ("functionName",)
    needing = (("invocationType", "Event", "resultSensor"),)

    function_name: str = Field(default="", description="Name or ARN of the function.")
    payload: Body = Field(default="", description="What the function gets: a mapping, or JSON text.")
    arguments: TextMap = Field(default_factory=dict, description="Merged into the payload.")
    invocation_type: Literal["RequestResponse", "Event"] = Field(
        default="RequestResponse", description="Wait for the answer, or hand over and wait for `resultSensor`."
    )
    result_sensor: str = Field(default="", description="Sensor by which an asynchronous function reports its end.")
    qualifier: str = Field(default="", description="Version or alias.")
    timeout: TimeoutSeconds = Field(default=900, description="Seconds to wait for a synchronous answer.")


class HttpConfig(JobConfig):
    required = ("url",)

    url: Url = Field(default="", description="Where the job is started.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field(
        default="POST", description="The request's method."
    )
    headers: TextMap = Field(default_factory=dict, description="Request headers.")
    body: Body = Field(default="", description="Request body: text, or a mapping sent as JSON.")
    arguments: TextMap = Field(default_factory=dict, description="Query parameters.")
    auth: Auth | None = Field(default=None, description="How requests are authenticated.")
    timeout: TimeoutSeconds = Field(default=30, description="Seconds for one attempt.")
    status_url: str = Field(
        default="", description="Polled for the job's state; without it the answer itself is the end."
    )
    status_path: str = Field(default="", description="Dotted path to the state in the status answer.")
    succeeded_values: list[str] = Field(default_factory=list, description="States that mean success.")
    failed_values: list[str] = Field(default_factory=list, description="States that mean failure.")
    id_path: str = Field(
        default="", description="Dotted path to the job's id in the start answer; `{id}` in the other URLs."
    )
    stop_url: str = Field(default="", description="Called to stop the job.")
    callback: bool = Field(default=False, description="The job's end is reported in the job log instead of polled.")


class CommandConfig(JobConfig):
    required = ("command",)

    command: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>")],
        Discriminator(shape_tag),
    ] = Field(default="", description="The program and its arguments: a list, or text split at spaces. No shell.")
    arguments: Arguments = Field(default_factory=list, description="Further arguments, in order.")
    environment: TextMap = Field(default_factory=dict, description="Further environment variables.")
    working_directory: str = Field(default="", description="Where the program runs.")
    timeout: int | None = Field(default=None, ge=1, le=604800, description="Seconds after which it is stopped.")


JOB_CONFIGS: Mapping[JobType, type[JobConfig]] = {
    JobType.GLUE: GlueConfig,
    JobType.EMR: EmrConfig,
    JobType.EMR_SERVERLESS: EmrServerlessConfig,
    JobType.STEP_FUNCTION: StepFunctionConfig,
    JobType.DATABRICKS: DatabricksConfig,
    JobType.AIRFLOW: AirflowConfig,
    JobType.LAMBDA: LambdaConfig,
    JobType.HTTP: HttpConfig,
    JobType.COMMAND: CommandConfig,
}
