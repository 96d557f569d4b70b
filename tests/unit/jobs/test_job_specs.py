"""`job.config` of every target: what it takes, in which spellings, and what it must have."""

from collections.abc import Mapping

import pytest

from worker.config.load import load_text
from worker.core.model.pipeline import Job, JobType
from worker.core.model.rules import Json
from worker.jobs.specs import JOB_CONFIGS, Auth, JobConfig

HEAD = "pipeline: {id: p}\nschedule: {trigger: {key: a, check: exists}}\n"

SUFFICIENT: dict[JobType, str] = {
    JobType.GLUE: "{jobName: etl}",
    JobType.EMR: "{clusterId: j-1, stepName: s, command: command-runner.jar}",
    JobType.EMR_SERVERLESS: "{applicationId: a, jobName: j, executionRoleArn: arn, jobDriver: {sparkSubmit: {}}}",
    JobType.STEP_FUNCTION: "{stateMachineArn: arn}",
    JobType.DATABRICKS: "{workspaceUrl: 'https://w', jobId: 5}",
    JobType.AIRFLOW: "{url: 'http://a', dagId: d}",
    JobType.LAMBDA: "{functionName: f}",
    JobType.HTTP: "{url: '${INTERLOCK_URL}'}",
    JobType.COMMAND: "{command: [python, -m, x]}",
}


def job(kind: str, config: str) -> Job:
    loaded = load_text(f"{HEAD}job: {{type: {kind}, config: {config}}}\n")
    assert [str(problem) for problem in loaded.problems] == []
    assert loaded.pipeline is not None
    assert loaded.pipeline.job is not None
    return loaded.pipeline.job


def config(kind: str, text: str) -> Mapping[str, Json]:
    return job(kind, text).config


def errors(kind: str, text: str) -> list[tuple[str, str]]:
    loaded = load_text(f"{HEAD}job: {{type: {kind}, config: {text}}}\n")
    return [(problem.path.removeprefix("job.config"), problem.message) for problem in loaded.errors]


def test_every_target_has_a_configuration() -> None:
    assert set(JOB_CONFIGS) == set(JobType) == set(SUFFICIENT)


@pytest.mark.parametrize("kind", JobType)
def test_what_a_target_needs_is_enough(kind: JobType) -> None:
    assert config(kind, SUFFICIENT[kind])


@pytest.mark.parametrize("kind", JobType)
def test_every_key_that_a_target_needs_is_asked_for(kind: JobType) -> None:
    missing = [path for path, message in errors(kind, "{}") if message == f"is required by {kind} jobs"]

    assert missing == [f".{name}" for name in JOB_CONFIGS[kind].required]


@pytest.mark.parametrize("model", [*JOB_CONFIGS.values(), Auth], ids=lambda model: model.__name__)
def test_every_key_is_described(model: type[JobConfig]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("key", ["dagId", "dagID", "dag_id", "DAG-ID", "dagid"])
def test_a_key_is_known_in_every_spelling(key: str) -> None:
    assert config("airflow", f"{{url: 'http://a', {key}: d}}") == {"url": "http://a", "dagId": "d"}


def test_maps_that_belong_to_the_target_are_left_alone() -> None:
    text = "{application_id: a, job_name: j, execution_role_arn: r, job_driver: {spark_submit: {entry_point: x}}}"

    assert config("emr-serverless", text)["jobDriver"] == {"spark_submit": {"entry_point": "x"}}


def test_what_equals_its_default_is_left_out() -> None:
    text = "{url: 'http://a', method: POST, timeout: 30, headers: {}, status_url: ''}"

    assert config("http", text) == {"url": "http://a"}


def test_a_databricks_job_id_may_be_a_number() -> None:
    assert config("databricks", "{workspaceUrl: 'https://w', jobId: 5}")["jobId"] == "5"


def test_the_order_of_arguments_is_kept() -> None:
    text = "{clusterId: j, stepName: s, command: c, arguments: [z, a, m]}"

    assert config("emr", text)["arguments"] == ["z", "a", "m"]


def test_a_poll_interval_of_the_target_is_the_jobs_own() -> None:
    found = job("airflow", "{url: 'http://a', dagId: d, pollInterval: 7}")

    assert (found.poll_interval.total_seconds(), found.config) == (7, {"url": "http://a", "dagId": "d"})


@pytest.mark.parametrize(
    ("kind", "text", "path", "message"),
    [
        ("glue", "{jobName: e, foo: 1}", ".foo", "`foo` is not a key here"),
        ("glue", "{jobName: 5}", ".jobName", "must be text; found the number 5"),
        ("glue", "{jobName: ''}", ".jobName", "is required by glue jobs"),
        ("glue", "{jobName: e, arguments: {--n: 5}}", ".arguments.--n", "must be text; found the number 5"),
        ("http", "{url: 'ftp://x'}", ".url", 'must begin with http:// or https://; found the text "ftp://x"'),
        ("http", "{url: 'http://x', timeout: 0}", ".timeout", "must be between 1 and 900; found 0"),
        ("http", "{url: 'http://x', body: [1]}", ".body", "must be text or a mapping; found a list"),
        ("http", "{url: 'http://x', auth: {type: basic, username: u}}", ".auth.password", "is required for basic"),
        ("http", "{url: 'http://x', auth: {token: t}}", ".auth.type", "is required"),
        ("databricks", "{workspaceUrl: 'https://w'}", "", "databricks jobs need `jobId` or `body`"),
        (
            "databricks",
            "{workspaceUrl: 'https://w', jobId: 1, body: {tasks: []}}",
            ".body",
            "`jobId` and `body` exclude each other",
        ),
        (
            "step-function",
            "{stateMachineArn: a, arguments: {a: b}, input: {c: d}}",
            ".input",
            "`arguments` and `input` exclude each other",
        ),
        (
            "lambda",
            "{functionName: f, invocationType: Event}",
            ".resultSensor",
            "is required where `invocationType` is Event",
        ),
        ("command", "{command: []}", ".command", "is required by command jobs"),
        ("command", "{command: ['']}", ".command", "is required by command jobs"),
        ("command", "{command: '  '}", ".command", "is required by command jobs"),
        ("command", "{command: x, timeout: 1h}", ".timeout", 'must be a whole number; found the text "1h"'),
        ("lambda", "{functionName: f, payload: {a: ['${NOPE}']}}", ".payload.a[0]", "`${NOPE}` is not a variable"),
        ("command", "{command: 'run ${DATE'}", ".command", "`${DATE` is never closed"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_refused_at_its_place(kind: str, text: str, path: str, message: str) -> None:
    assert errors(kind, text) == [(path, message)]
