"""Wiring of alerts: to Slack if there is a token, else to lines; and to other targets in addition."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from consumers.alerts.digest import Digests
from consumers.alerts.groups import Groups
from consumers.alerts.measures import AlertMeasures
from consumers.alerts.pace import Admission, SharedPace
from consumers.alerts.probe import Reach, always_reached, answering_probes
from consumers.alerts.rate_limited_chat import RateLimitedChat
from consumers.alerts.retrying_writer import RetryingWriter
from consumers.alerts.routing import Routing, nobody, owners_of
from consumers.alerts.services import AlertServices
from consumers.alerts.slack import API, SlackChat, session_for_slack
from consumers.alerts.threads import ChatAlerts
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.dead_letter_replay import Way
from consumers.outbox.routes import Deliver
from worker.app.alert_targets import (
    BackgroundTask,
    TargetTools,
    alert_targets,
    chat_letter_handler,
    routing_from,
    secret_reader,
    targets_of,
)
from worker.config.roles import Role
from worker.config.settings import SLACK_TOKEN, AlertSettings, AwsSettings, Settings
from worker.config.versions import PipelineVersions
from worker.core.model.events import Event
from worker.store.repos.delivery.alert_probe import AlertPath
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.rates import Rates
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import Events
from worker.store.table import Tables

TARGETS: Final = "targets"


def never_failed() -> int:
    return 0


def never_waiting() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertResources:
    """Holds how alerts reach people: delivery, its tasks, its failures, and whether it waits.

    `reach` proves that an alert would be seen. `targets` is the delivery to the targets besides Slack, if there are
    any; `to_all` is both.
    """

    deliver: Deliver
    background_tasks: Mapping[str, BackgroundTask] = field(default_factory=dict[str, BackgroundTask])
    failures: Callable[[], int] = never_failed
    is_waiting: Callable[[], bool] = never_waiting
    reach: Reach = always_reached
    targets: Deliver | None = None
    dead_letter_handlers: Mapping[str, Way] = field(default_factory=dict[str, Way])
    measures: AlertMeasures = field(default_factory=AlertMeasures)

    async def to_all(self, event: Event) -> None:
        """Deliver an event to the targets, which store it, and then to Slack or as a line."""
        if self.targets is not None:
            await self.targets(event)
        await self.deliver(event)


async def open_alerting(
    stack: AsyncExitStack, settings: AlertSettings, *, tables: Tables, tools: TargetTools, otherwise: AlertResources
) -> AlertResources:
    """Open alerts over Slack, or `otherwise` without a token, and to other targets. Raises `ConfigError`."""
    clock, path = tools.clock, AlertPath(tables)
    targets = targets_of(settings, tools)
    if not (targets or settings.slack_token):
        return replace(otherwise, deliver=answering_probes(otherwise.deliver, path, clock, otherwise.reach))
    routing = routing_from(settings)
    plain = await _over_slack(stack, settings, tables, tools, routing) if settings.slack_token else otherwise
    if not targets:
        return replace(plain, deliver=answering_probes(plain.deliver, path, clock, plain.reach))
    others = alert_targets(
        targets,
        tables=tables,
        clock=clock,
        routing=routing,
        owner_of=owners_of(PipelineVersions(tables)),
        measures=plain.measures,
    )
    deliver, is_waiting = plain.deliver, plain.is_waiting
    tasks, handlers = {**plain.background_tasks, **others.background_tasks}, others.dead_letter_handlers
    if settings.slack_token:
        queued = others.queued(plain.deliver)
        deliver, is_waiting = queued.take, never_waiting
        tasks, handlers = {**tasks, "target-slack": queued.run}, {**handlers, **chat_letter_handler(queued)}
    reach = others.reaching(plain.reach)
    return AlertResources(
        deliver=answering_probes(deliver, path, clock, reach),
        background_tasks=tasks,
        failures=lambda: plain.failures() + others.failures(),
        is_waiting=is_waiting,
        measures=plain.measures,
        reach=reach,
        targets=others.take,
        dead_letter_handlers=handlers,
    )


async def _over_slack(
    stack: AsyncExitStack, settings: AlertSettings, tables: Tables, tools: TargetTools, routing: Routing
) -> AlertResources:
    session = await stack.enter_async_context(session_for_slack())
    token = secret_reader(settings.slack_token, tools.secrets, SLACK_TOKEN)
    chat = SlackChat(token, session, api=settings.slack_api or API)
    rates, clock = Rates(tables), tools.clock
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
        pages=tools.pages,
    )
    return AlertResources(
        measures=telling.measures,
        deliver=ChatAlerts(telling).deliver,
        background_tasks={"digests": Digests(telling).run, "groups": Groups(telling).run},
        failures=lambda: line.failed_tries,
        is_waiting=line.is_waiting,
        reach=chat.reach,
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
