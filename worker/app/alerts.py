"""Wiring of alerts: to Slack if there is a token, else to lines. Both answer the watchdog's probes."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from consumers.alerts.digest import Digests
from consumers.alerts.groups import Groups
from consumers.alerts.pace import Admission, SharedPace
from consumers.alerts.probe import Reach, always_reached, answering_probes
from consumers.alerts.rate_limited_chat import RateLimitedChat
from consumers.alerts.retrying_writer import RetryingWriter
from consumers.alerts.routing import Routing, nobody, one_channel, owners_of, read_routing, routing_of
from consumers.alerts.services import AlertServices
from consumers.alerts.slack import API, SlackChat, session_for_slack
from consumers.alerts.threads import ChatAlerts
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.routes import Deliver
from worker.config.roles import Role
from worker.config.settings import ALERTS, SLACK_CHANNEL, SLACK_TOKEN, AlertSettings, AwsSettings, Settings
from worker.config.versions import PipelineVersions
from worker.core.errors import ConfigError, Rejected
from worker.jobs.secrets import MANAGED, SecretSource
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock
from worker.store.repos.delivery.alert_probe import AlertPath
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.rates import Rates
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import Events
from worker.store.table import Tables

# Runs as long as the process, across its sessions.
BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def never_failed() -> int:
    return 0


def never_waiting() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertResources:
    """Holds how alerts reach people: delivery, its tasks, its failures, and whether it waits.

    `reach` proves that an alert would be seen.
    """

    deliver: Deliver
    background_tasks: Mapping[str, BackgroundTask] = field(default_factory=dict[str, BackgroundTask])
    failures: Callable[[], int] = never_failed
    is_waiting: Callable[[], bool] = never_waiting
    reach: Reach = always_reached


async def open_alerting(
    stack: AsyncExitStack,
    settings: AlertSettings,
    *,
    tables: Tables,
    secrets: SecretSource,
    clock: Clock,
    pages: PublicPages,
    otherwise: AlertResources,
) -> AlertResources:
    """Open alerts over Slack, or return `otherwise` without a token. Raises `ConfigError`."""
    path = AlertPath(tables)
    if not settings.slack_token:
        return replace(otherwise, deliver=answering_probes(otherwise.deliver, path, clock, otherwise.reach))
    routing = routing_from(settings)
    session = await stack.enter_async_context(session_for_slack())
    chat = SlackChat(token_source(settings.slack_token, secrets), session, api=settings.slack_api or API)
    rates = Rates(tables)
    line = RateLimitedChat(chat, clock, SharedPace(rates, clock))
    telling = AlertServices(
        line=line,
        threads=Threads(tables),
        events=Events(tables),
        grouped=GroupedAlerts(tables),
        admission=Admission(rates, clock),
        routing=routing,
        owner_of=owners_of(PipelineVersions(tables)) if routing.owners else nobody,
        tries=RetryPolicy(clock, tables.ping),
        clock=clock,
        pages=pages,
    )
    return AlertResources(
        deliver=answering_probes(ChatAlerts(telling).deliver, path, clock, chat.reach),
        background_tasks={"digests": Digests(telling).run, "groups": Groups(telling).run},
        failures=lambda: line.failed_tries,
        is_waiting=line.is_waiting,
    )


def alerts_by_line(
    deliver: Deliver, line: RetryingWriter, background_tasks: Mapping[str, BackgroundTask] | None = None
) -> AlertResources:
    """Return alerts as lines of a stream, for a worker without Slack."""
    return AlertResources(
        deliver=deliver,
        background_tasks=background_tasks or {},
        failures=lambda: line.failed_tries,
        is_waiting=line.is_down,
        reach=line.reach,
    )


def alerts_come_back(aws: AwsSettings) -> bool:
    """Return whether a queue brings events back from the bus; if not, the relay sends the alerts."""
    return bool(aws.bus and aws.alerts_queue)


def tells_people(settings: Settings) -> bool:
    """Return whether a worker on AWS sends alerts: if so, it also collects their digests."""
    takes_back = Role.ALERTS in settings.roles and bool(settings.aws.alerts_queue)
    return takes_back or (Role.RELAY in settings.roles and not alerts_come_back(settings.aws))


def routing_from(settings: AlertSettings) -> Routing:
    """Return which channel gets which alerts, from the settings. Raises `ConfigError`.

    A text that looks like YAML is the file itself: a container has no files of its own.
    """
    if "\n" in settings.routing or ":" in settings.routing:
        return routing_of(settings.routing, ALERTS)
    if settings.routing:
        return read_routing(Path(settings.routing))
    if not settings.slack_channel:
        raise ConfigError(f"{SLACK_TOKEN} is set, but no channel; name one in {SLACK_CHANNEL}, or give {ALERTS}")
    return one_channel(settings.slack_channel)


def token_source(token: str, secrets: SecretSource) -> Callable[[], Awaitable[str]]:
    """Return a reader of the token, or of the secret it names, which it reads again on each call."""

    async def plain() -> str:
        return token

    async def managed() -> str:
        secrets.forget(token)
        found = await secrets.read(token)
        if found is None:
            raise Rejected(f"{SLACK_TOKEN} names {token}, and there is no such secret")
        return found.strip()

    return managed if token.startswith(MANAGED) else plain
