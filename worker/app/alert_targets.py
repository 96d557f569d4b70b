"""Wiring of alert targets besides Slack: webhook, PagerDuty and Teams, each with its own queue."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from consumers.alerts.measures import AlertMeasures
from consumers.alerts.pace import Admission, SharedPace
from consumers.alerts.probe import Reach
from consumers.alerts.routing import OwnerOf, Routing, one_channel, read_routing, routing_of
from consumers.alerts.targets.decision import TargetRule
from consumers.alerts.targets.http_post import KeptSecret
from consumers.alerts.targets.intake import TargetIntake
from consumers.alerts.targets.pagerduty import PagerDutyTarget
from consumers.alerts.targets.queued_chat import LANE, QueuedChat
from consumers.alerts.targets.sender import LaneSender, TargetServices, letter_source
from consumers.alerts.targets.target import BETWEEN, AlertTarget
from consumers.alerts.targets.teams import TeamsTarget
from consumers.alerts.targets.webhook import WebhookTarget
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.dead_letter_replay import Way, delivered
from consumers.outbox.routes import Deliver
from consumers.outbox.severities import Severity
from worker.config.settings import (
    ALERTS,
    PAGERDUTY_KEY,
    SLACK_CHANNEL,
    SLACK_TOKEN,
    TEAMS_URL,
    WEBHOOK_SECRET,
    WEBHOOK_URL,
    AlertSettings,
)
from worker.core.errors import ConfigError, Rejected
from worker.core.model.events import Event, EventType
from worker.core.model.keys import GROUPED_TARGET_ALERTS
from worker.jobs.secrets import MANAGED, SecretSource
from worker.net.http_client import HttpClient
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.rates import Rates
from worker.store.repos.delivery.target_alerts import TargetAlerts
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import Events
from worker.store.table import Tables

WEBHOOK: Final = "webhook"
PAGERDUTY: Final = "pagerduty"
TEAMS: Final = "teams"

_EVERYTHING: Final = frozenset(Severity)
# What each target gets if the alerts file does not say.
RULES: Final[Mapping[str, TargetRule]] = {
    WEBHOOK: TargetRule(severities=_EVERYTHING, is_grouped=False),
    PAGERDUTY: TargetRule(severities=frozenset({Severity.ALERT}), has_state=True),
    TEAMS: TargetRule(severities=frozenset({Severity.ALERT, Severity.WARNING})),
}

BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTools:
    """TargetTools holds what requests to targets need."""

    http: HttpClient
    secrets: SecretSource
    clock: Clock
    pages: PublicPages = field(default_factory=PublicPages)
    service: str = "interlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTargets:
    """AlertTargets holds the targets besides Slack: how events get there, and what runs in the background."""

    intakes: Sequence[TargetIntake]
    senders: Sequence[LaneSender]
    services: TargetServices

    async def take(self, event: Event) -> None:
        """Take an event for each target that wants it; return once that is stored. Raises `RetryLater`."""
        if event.type == EventType.ALERT_PATH_CHECK:
            return  # a probe is for the watchdog
        for intake in self.intakes:
            await intake.take(event)

    def queued(self, deliver: Deliver) -> QueuedChat:
        """Return delivery to the chat from a queue, so that its outage delays no other target."""
        return QueuedChat(deliver, self.services)

    def failures(self) -> int:
        return sum(each.failed_tries for each in self.senders)

    def reaching(self, first: Reach) -> Reach:
        """Return a check that people can be reached by `first` and by every target."""

        async def reach() -> None:
            await first()
            for sender in self.senders:
                await sender.reach()

        return reach

    @property
    def background_tasks(self) -> dict[str, BackgroundTask]:
        return {f"target-{each.lane}": each.run for each in self.senders}

    @property
    def dead_letter_handlers(self) -> dict[str, Way]:
        return {
            letter_source(lane): delivered(_retaking(intake, lane))
            for intake in self.intakes
            for lane in intake.lanes.values()
        }


def targets_of(settings: AlertSettings, tools: TargetTools) -> dict[str, dict[str, AlertTarget]]:
    """Return the targets that are configured, by name and owner. Raises `ConfigError`."""
    check_webhook(settings)

    def kept(secret: str, setting: str) -> KeptSecret:
        return KeptSecret(secret_reader(secret, tools.secrets, setting), setting)

    made: dict[str, dict[str, AlertTarget]] = {
        WEBHOOK: {
            owner: WebhookTarget(
                tools.http,
                kept(url, WEBHOOK_URL),
                kept(settings.webhook_secret, WEBHOOK_SECRET),
                tools.clock,
                pages=tools.pages,
            )
            for owner, url in settings.webhook_urls.items()
        },
        PAGERDUTY: {
            owner: PagerDutyTarget(
                tools.http,
                kept(key, PAGERDUTY_KEY),
                api=settings.pagerduty_api,
                source=tools.service,
                pages=tools.pages,
            )
            for owner, key in settings.pagerduty_keys.items()
        },
        TEAMS: {
            owner: TeamsTarget(tools.http, kept(url, TEAMS_URL), pages=tools.pages)
            for owner, url in settings.teams_urls.items()
        },
    }
    return {name: by_owner for name, by_owner in made.items() if by_owner}


@dataclass(frozen=True, slots=True)
class DescribedTarget:
    """DescribedTarget says which alerts the target of a lane gets, and what is wrong with its settings."""

    lane: str
    severities: str
    problem: str = ""


def described_targets(settings: AlertSettings) -> Iterator[DescribedTarget]:
    """Describe the targets of these settings. Raises `ConfigError`."""
    check_webhook(settings)
    routing = routing_from(settings)
    names = {WEBHOOK_URL: WEBHOOK, PAGERDUTY_KEY: PAGERDUTY, TEAMS_URL: TEAMS}
    for variable, by_owner in settings.targets.items():
        chosen = rule_of(names[variable], routing).severities
        shown = ", ".join(each.name.lower() for each in Severity if each in chosen)
        for owner, secret in by_owner.items():
            problem = f"{variable} is not encrypted, so anyone on the way reads its alerts"
            yield DescribedTarget(lane_of(names[variable], owner), shown, problem if secret.startswith("http:") else "")


def alert_targets(
    targets: Mapping[str, Mapping[str, AlertTarget]],
    *,
    tables: Tables,
    clock: Clock,
    routing: Routing,
    owner_of: OwnerOf,
    measures: AlertMeasures | None = None,
) -> AlertTargets:
    """Wire the queues and senders of targets on a store."""
    rates = Rates(tables)
    admission = Admission(rates, clock)
    services = TargetServices(
        alerts=TargetAlerts(tables),
        grouped=GroupedAlerts(tables, GROUPED_TARGET_ALERTS),
        claims=Threads(tables),
        letters=DeadLetters(tables),
        admission=admission,
        pace=SharedPace(rates, clock, between=BETWEEN),
        tries=RetryPolicy(clock, tables.ping),
        clock=clock,
        measures=measures or AlertMeasures(),
    )
    senders = {
        lane_of(name, owner): LaneSender(lane_of(name, owner), target, services)
        for name, by_owner in targets.items()
        for owner, target in by_owner.items()
    }
    intakes = [
        TargetIntake(
            rule=rule_of(name, routing),
            lanes={owner: lane_of(name, owner) for owner in by_owner},
            owner_of=owner_of,
            alerts=services.alerts,
            events=Events(tables),
            admission=admission,
            clock=clock,
            wake=lambda lane: senders[lane].wake(),
        )
        for name, by_owner in targets.items()
    ]
    return AlertTargets(intakes=intakes, senders=list(senders.values()), services=services)


def rule_of(name: str, routing: Routing) -> TargetRule:
    """Return which alerts a target gets: the severities of the alerts file, else its own."""
    usual = RULES[name]
    chosen = routing.targets.get(name, usual.severities)
    return TargetRule(severities=chosen, has_state=usual.has_state, is_grouped=usual.is_grouped)


def routing_from(settings: AlertSettings) -> Routing:
    """Return which channel and target gets which alerts, from the settings. Raises `ConfigError`.

    A text that looks like YAML is the file itself: a container has no files of its own.
    """
    has_chat = bool(settings.slack_token)
    if "\n" in settings.routing or ":" in settings.routing:
        return routing_of(settings.routing, ALERTS, has_channels=has_chat)
    if settings.routing:
        return read_routing(Path(settings.routing), has_channels=has_chat)
    if has_chat and not settings.slack_channel:
        raise ConfigError(f"{SLACK_TOKEN} is set, but no channel; name one in {SLACK_CHANNEL}, or give {ALERTS}")
    return one_channel(settings.slack_channel)


def lane_of(name: str, owner: str) -> str:
    return f"{name}.{owner}" if owner else name


def secret_reader(secret: str, secrets: SecretSource, setting: str) -> Callable[[], Awaitable[str]]:
    """Return a reader of a secret; it reads a managed secret again on each call."""

    async def plain() -> str:
        return secret

    async def managed() -> str:
        secrets.forget(secret)
        found = await secrets.read(secret)
        if found is None:
            raise Rejected(f"{setting} names {secret}, and there is no such secret")
        return found.strip()

    return managed if secret.startswith(MANAGED) else plain


def check_webhook(settings: AlertSettings) -> None:
    """Raise `ConfigError` if the webhook has no secret that signs its requests."""
    if settings.webhook_urls and not settings.webhook_secret:
        raise ConfigError(f"{WEBHOOK_URL} is set, but {WEBHOOK_SECRET} is not; set the secret that signs the requests")


def _retaking(intake: TargetIntake, lane: str) -> Deliver:
    async def retake(event: Event) -> None:
        await intake.retake(lane, event)

    return retake


def chat_letter_handler(queued: QueuedChat) -> dict[str, Way]:
    return {letter_source(LANE): delivered(queued.take)}
