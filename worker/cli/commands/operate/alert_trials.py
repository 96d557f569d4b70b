"""Sends a test message to each configured alert target, as a worker would, without a store."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from consumers.alerts import text
from consumers.alerts.slack import API, SlackChat, session_for_slack
from worker.app.alert_targets import TargetTools, lane_of, routing_from, secret_reader, targets_of
from worker.app.probes import job_secrets
from worker.config.settings import SLACK_TOKEN, Settings
from worker.jobs.aws.client import Aws
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock

# Sends the test message, which contains a time as text. Raises `RetryLater` and `Rejected`.
SendTest: TypeAlias = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def open_trials(
    settings: Settings, environment: Mapping[str, str], clock: Clock
) -> AsyncGenerator[dict[str, SendTest]]:
    """Open a test of each target, by the name of its lane. Raises `ConfigError`."""
    alerts = settings.alerts
    async with (
        HttpClient(AddressPolicy.parse(settings.http_allow)) as http,
        Aws(None) as cloud,
        session_for_slack() as session,
    ):
        tools = TargetTools(
            http=http,
            secrets=job_secrets(environment, cloud, clock),
            clock=clock,
            pages=PublicPages(settings.web.public_url),
            service=settings.telemetry.service,
        )
        trials: dict[str, SendTest] = {}
        routing = routing_from(alerts)
        if alerts.slack_token:
            token = secret_reader(alerts.slack_token, tools.secrets, SLACK_TOKEN)
            chat = SlackChat(token, session, api=alerts.slack_api or API)
            trials["slack"] = _posting(chat, routing.usual)
        for name, by_owner in targets_of(alerts, tools).items():
            for owner, target in by_owner.items():
                trials[lane_of(name, owner)] = target.send_test
        yield trials


def _posting(chat: SlackChat, channel: str) -> SendTest:
    async def post(at_text: str) -> None:
        await chat.post(channel, text.trial(at_text))

    return post
