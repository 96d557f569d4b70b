"""The page of each target on AWS tells the truth: its rights are those in use, its states are all there are."""

import json
import re
from pathlib import Path

import pytest

from worker.core.model.pipeline import JobType
from worker.jobs.aws import emr, emr_serverless, glue_runs, step_functions
from worker.jobs.aws.states import States
from worker.jobs.runner import Guarantee

ROOT = Path(__file__).parents[3]
SOURCES = {
    "glue": ("glue.py", "glue_logs.py", "glue_retries.py", "glue_runs.py"),
    "emr": ("emr.py",),
    "emr-serverless": ("emr_serverless.py",),
    "step-function": ("step_functions.py",),
    "lambda": ("lambda_.py",),
}
# What IAM calls an operation, where that is not its service and its name.
IAM_SERVICES = {"emr": "elasticmapreduce", "stepfunctions": "states"}
IAM_NAMES = {"lambda:Invoke": "lambda:InvokeFunction"}
BESIDES = {"emr-serverless": {"iam:PassRole"}}
TABLES = {
    "glue": glue_runs.STATES,
    "emr": emr.STATES,
    "emr-serverless": emr_serverless.STATES,
    "step-function": step_functions.STATES,
}
_CALL = re.compile(r'"(?P<service>[a-z-]+)",\s*"(?P<operation>[A-Z][A-Za-z]+)"')


def page_of(target: str) -> str:
    return (ROOT / "docs" / "jobs" / f"{target}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def rights_used(target: str) -> set[str]:
    """The IAM actions that a runner's calls need, read from its source."""
    source = "".join((ROOT / "worker" / "jobs" / "aws" / name).read_text() for name in SOURCES[target])
    calls = _CALL.findall(source)
    actions = {f"{IAM_SERVICES.get(service, service)}:{operation}" for service, operation in calls}
    return {IAM_NAMES.get(action, action) for action in actions} | BESIDES.get(target, set())


def rights_told(page: str) -> set[str]:
    [policy] = [json.loads(block) for block in blocks(page, "json") if "Statement" in block]
    actions: list[str | list[str]] = [statement["Action"] for statement in policy["Statement"]]
    return {name for action in actions for name in ([action] if isinstance(action, str) else action)}


@pytest.mark.parametrize("target", SOURCES)
def test_a_page_asks_for_the_rights_that_are_used_and_for_no_others(target: str) -> None:
    assert rights_told(page_of(target)) == rights_used(target)


@pytest.mark.parametrize(("target", "states"), TABLES.items(), ids=TABLES)
def test_a_page_says_what_every_state_means(target: str, states: States) -> None:
    page = page_of(target)

    assert [state for state in sorted(states.known) if f"`{state}`" not in page] == []


@pytest.mark.parametrize("target", SOURCES)
def test_a_page_claims_one_guarantee(target: str) -> None:
    claims = [claim for claim in Guarantee if f"**{claim.capitalize()}.**" in page_of(target)]

    assert len(claims) == 1


def test_every_aws_target_has_a_page() -> None:
    assert set(SOURCES) == set(JobType) - {"databricks", "airflow", "http", "command"}
    assert all(page_of(target).startswith("# ") for target in SOURCES)
