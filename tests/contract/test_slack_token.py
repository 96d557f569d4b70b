"""The token for Slack, from the environment or from Secrets Manager: as a worker is wired, on real wires."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import AwsError, AwsFake, an_aws_fake, aws_at
from tests.support.fakes.slack import TOKEN, FakeSlack
from tests.support.worlds.alerts import FAILED
from worker.app.alert_targets import TargetTools
from worker.app.alerts import AlertResources, open_alerting
from worker.config.settings import AlertSettings
from worker.jobs.aws.secrets_manager import SecretsManagerSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.store.sqlite.tables import SqliteTables

MANAGED = "secretsmanager://interlock/slack"


@dataclass
class Place:
    """A fake Slack, and a Secrets Manager that has whatever the test put there."""

    aws: AwsFake
    slack: FakeSlack
    api: str
    clock: ManualClock
    secrets: SecretsManagerSecrets
    stack: AsyncExitStack
    http: HttpClient
    kept: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["SecretId"] not in self.kept:
            raise AwsError("ResourceNotFoundException", "there is no such secret")
        return {"Name": asked["SecretId"], "SecretString": self.kept[asked["SecretId"]]}

    @property
    def reads(self) -> int:
        return self.aws.counted["GetSecretValue"]

    async def alerting(self, token: str) -> AlertResources:
        return await open_alerting(
            self.stack,
            AlertSettings(slack_token=token, slack_channel="#alerts", slack_api=self.api),
            tables=SqliteTables.in_memory(self.clock),
            tools=TargetTools(http=self.http, secrets=self.secrets, clock=self.clock),
            otherwise=AlertResources(deliver=_nobody),
        )


async def _nobody(_: object) -> None:
    raise AssertionError("there is a token")


@pytest.fixture
async def place() -> AsyncGenerator[Place]:
    clock = ManualClock()
    slack = FakeSlack(clock)
    async with an_aws_fake() as fake, aws_at(fake.url) as aws, slack.on_loopback() as api, AsyncExitStack() as stack:
        http = await stack.enter_async_context(HttpClient(AddressPolicy()))
        place = Place(fake, slack, api, clock, SecretsManagerSecrets(aws, clock), stack, http)
        fake.serve("secretsmanager", GetSecretValue=place.get)
        yield place


async def test_a_token_in_the_environment_is_used_as_it_is(place: Place) -> None:
    alerting = await place.alerting(TOKEN)

    await alerting.deliver(FAILED)

    assert (len(place.slack.messages), place.reads) == (1, 0)


@pytest.mark.parametrize(("name", "kept"), [(MANAGED, f" {TOKEN}\n"), (f"{MANAGED}#token", f'{{"token": "{TOKEN}"}}')])
async def test_a_token_in_secrets_manager_is_read_once_for_many_alerts(place: Place, name: str, kept: str) -> None:
    place.kept["interlock/slack"] = kept
    alerting = await place.alerting(name)
    assert place.reads == 0, "a worker starts without it"

    for number in range(3):
        await alerting.deliver(replace(FAILED, id=f"e{number}"))

    assert (len(place.slack.messages), place.reads) == (3, 1)


async def test_a_token_that_was_changed_is_read_again_once_slack_does_not_know_the_old_one(place: Place) -> None:
    place.kept["interlock/slack"] = TOKEN
    alerting = await place.alerting(MANAGED)
    await alerting.deliver(FAILED)

    place.kept["interlock/slack"] = "xoxb-new"
    place.slack.tokens = {"xoxb-new"}
    await alerting.deliver(replace(FAILED, id="e2"))

    assert len(place.slack.messages) == 2
    assert place.reads == 2


async def test_a_secret_that_is_not_there_yet_delays_alerts_and_loses_none(place: Place) -> None:
    alerting = await place.alerting(MANAGED)
    came_late = place.get

    def made_at_the_third_look(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if place.reads >= 3:
            place.kept["interlock/slack"] = TOKEN
        return came_late(asked)

    place.aws.serve("secretsmanager", GetSecretValue=made_at_the_third_look)
    await alerting.deliver(FAILED)

    assert len(place.slack.messages) == 1
    assert alerting.failures() >= 2
