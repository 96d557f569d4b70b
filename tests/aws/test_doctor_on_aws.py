"""`interlock doctor` on a whole installation, and on one with something missing."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws.emulators import ministack
from tests.support.builders.command_line import interlock, records
from tests.support.worlds.installation import Installation, client, endpoint_of, install
from worker.config.roles import Role
from worker.config.settings import AwsSettings, Settings
from worker.core.errors import RetryLater
from worker.operations.doctor.aws import Cloud
from worker.operations.doctor.aws_calls import AwsRefusal, AwsReply, Unauthenticated
from worker.operations.doctor.aws_resources import PUBLISHED
from worker.operations.doctor.checks import queue_probes, secret_probe, table_probes
from worker.operations.doctor.report import Diagnosis, Health
from worker.runtime.clock import SystemClock
from worker.store.table import TableName

pytestmark = pytest.mark.xdist_group("aws")

NAMES = {table: f"t-{table}" for table in TableName}


@pytest.fixture(scope="module")
def place() -> Installation:
    return asyncio.run(install(endpoint_of(ministack())))


@pytest.fixture(autouse=True)
def environment(place: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.variables("").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("INTERLOCK_ROLES", "engine,scheduler,relay,alerts")


def diagnosed() -> list[dict[str, Any]]:
    result = interlock("doctor", "--json", clock=SystemClock())
    assert result.exit_code in {0, 1}, result.output
    return records(result.stdout)[:-1]


def wrong(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(each["area"], each["subject"], each["finding"]) for each in found if each["health"] == "fail"]


def test_a_whole_installation_is_sound_and_every_right_was_tried(place: Installation) -> None:
    before = asyncio.run(_rows(place))

    found = diagnosed()

    assert wrong(found) == []
    tried = {each["subject"] for each in found if each["area"] == "permissions"}
    assert tried == {
        "dynamodb:GetItem",
        "dynamodb:BatchGetItem",
        "dynamodb:Query",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:DeleteItem",
        "dynamodb:ConditionCheckItem",
        "events:PutEvents",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
    }
    assert {each["area"] for each in found} >= {"credentials", "clock", "store", "streams", "bus", "rules", "queues"}
    assert asyncio.run(_rows(place)) == before


async def _rows(place: Installation) -> int:
    async with client("dynamodb", place.endpoint) as dynamodb:
        counts = [await dynamodb.scan(TableName=name, Select="COUNT") for name in place.names.values()]
    return sum(answer["Count"] for answer in counts)


def test_what_a_rule_or_a_queue_lacks_is_worth_a_look() -> None:
    doubtful = {(each["area"], each["finding"].partition(";")[0]) for each in diagnosed() if each["health"] == "warn"}

    assert ("queues", "it has no dead-letter queue") in doubtful
    assert ("rules", "target alerts has no dead-letter queue: what it refuses is lost") in doubtful


def test_a_bus_and_a_queue_that_are_not_there_fail_and_the_rest_is_still_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INTERLOCK_BUS", "no-such-bus")
    monkeypatch.setenv("INTERLOCK_ALERTS_QUEUE", "http://127.0.0.1:1/000000000000/no-such-queue")

    found = diagnosed()

    assert {"bus", "queues"} <= {area for area, _, _ in wrong(found)}
    assert any(each["subject"] == "sessions" for each in found)


# --- what answers mean, without a service -----------------------------------------------------------------------------


class Answers:
    """Answers each operation as told; all others with nothing in them."""

    def __init__(self, **said: AwsReply | Exception) -> None:
        self._said = said
        self.asked: list[str] = []

    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> AwsReply:
        self.asked.append(operation)
        answer = self._said.get(operation, AwsReply({}, 0.0))
        if isinstance(answer, Exception):
            raise answer
        return answer


def looked(answers: Answers, *roles: Role, **aws: str) -> list[Diagnosis]:
    settings = Settings(store="dynamodb://t", roles=frozenset(roles), aws=replace(AwsSettings(), **aws))

    async def look() -> list[Diagnosis]:
        cloud = Cloud(calls=answers, settings=settings, names=NAMES, told={})
        return [found async for found in cloud.look()]

    return asyncio.run(look())


def test_a_refused_right_fails_and_says_which_to_allow() -> None:
    found = looked(Answers(PutItem=AwsRefusal("AccessDeniedException", "no")), Role.EVENTS)

    refused = [each for each in found if each.health is Health.FAIL]
    assert {each.subject for each in refused} == {"dynamodb:PutItem"}
    assert [each.remedy for each in refused] == [
        "allow dynamodb:PutItem on t-control, or use the role of the worker",
        "allow dynamodb:PutItem on t-events, or use the role of the worker",
    ]


def test_a_condition_that_failed_proves_the_right() -> None:
    found = looked(Answers(PutItem=AwsRefusal("ConditionalCheckFailedException", "")), Role.EVENTS)

    assert [each for each in found if each.health is Health.FAIL] == []


def test_a_clock_that_is_wrong_fails() -> None:
    [_, clock, *_] = looked(Answers(GetCallerIdentity=AwsReply({"Arn": "a", "Account": "1"}, -9.0)), Role.EVENTS)

    assert (clock.area, clock.health) == ("clock", Health.FAIL)
    assert "9.0 s behind" in clock.finding


def test_no_answer_is_no_right() -> None:
    found = looked(Answers(GetItem=RetryLater("nobody there")), Role.EVENTS)

    assert {each.subject for each in found if each.health is Health.FAIL} == {"dynamodb:GetItem"}


def test_without_credentials_nothing_else_is_asked() -> None:
    answers = Answers(GetCallerIdentity=Unauthenticated("Unable to locate credentials"))

    [found] = looked(answers, *Role)

    assert (found.area, found.health) == ("credentials", Health.FAIL)
    assert found.finding == "no usable credentials: Unable to locate credentials"
    assert "AWS_PROFILE" in found.remedy
    assert answers.asked == ["GetCallerIdentity"]


def test_a_service_that_only_relays_needs_its_groups_rows_and_the_list_of_events() -> None:
    probes = list(table_probes(NAMES, frozenset({Role.RELAY})))

    assert {probe.resource for probe in probes} == {"t-control", "t-events/index/GSI1"}
    assert {probe.parameters["Item"]["PK"]["S"] for probe in probes if probe.operation == "PutItem"} == {
        "GROUP#interlock"
    }


def test_no_probe_can_change_anything() -> None:
    writes = {"PutItem", "UpdateItem", "DeleteItem"}
    for probe in table_probes(NAMES, frozenset(Role)):
        if probe.operation in writes:
            assert "attribute_not_exists(PK)" in probe.parameters["ConditionExpression"]
    for probe in queue_probes("alerts", "http://q"):
        assert probe.parameters.get("ReceiptHandle") == "AQEBdoctor" or probe.parameters["VisibilityTimeout"] == 0
    assert secret_probe("slack").operation == "GetSecretValue"


def test_the_page_says_how_each_right_is_tried() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    probes = [*table_probes(NAMES, frozenset(Role)), *queue_probes("alerts", "http://q"), secret_probe("slack")]
    tried = {(probe.action, probe.proof) for probe in probes} | {("events:PutEvents", PUBLISHED)}

    rows = [line for line in page.splitlines() if line.startswith("| `")]
    missing = [(action, proof) for action, proof in tried if not any(action in row and proof in row for row in rows)]
    assert missing == []


# --- jobs -------------------------------------------------------------------------------------------------------------

GLUE = """
pipeline: {{id: doctor-{name}}}
schedule: {{trigger: {{key: landed, check: exists}}}}
job: {{type: glue, config: {{jobName: {name}}}}}
"""


def test_a_glue_job_that_glue_tries_again_by_itself_is_worth_a_look(place: Installation, tmp_path: Path) -> None:
    async def make(name: str, retries: int) -> None:
        async with client("glue", place.endpoint) as glue:
            command = {"Name": "glueetl", "ScriptLocation": "s3://scripts/etl.py"}
            await glue.create_job(Name=name, Role="arn:aws:iam::0:role/x", Command=command, MaxRetries=retries)

    for name, retries in (("steady", 0), ("stubborn", 2)):
        asyncio.run(make(name, retries))
        (tmp_path / f"{name}.yaml").write_text(GLUE.format(name=name))
    (tmp_path / "missing.yaml").write_text(GLUE.format(name="missing"))
    pushed = interlock("pipelines", "push", str(tmp_path), "--yes", clock=SystemClock())
    assert pushed.exit_code == 0, pushed.output

    found = {each["subject"]: each["health"] for each in diagnosed() if each["area"] == "jobs"}

    interlock("pipelines", "remove", "doctor-missing", "--yes", clock=SystemClock())
    assert found == {"Glue job missing": "fail", "Glue job steady": "ok", "Glue job stubborn": "warn"}
