"""Defines the settings as one table of environment variables; reading, checks and docs derive from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from worker.config import setting_values as values
from worker.config.environment import read_environment, setting, settings_of
from worker.config.roles import Role
from worker.config.store_setting import DEFAULT_STORE, STORE, checked_store_url
from worker.core.membership.liveness import Timing
from worker.core.model.pipeline import JobType
from worker.store.archive_url import ArchiveUrl, parse_archive

# Names that messages in other modules use.
TIMING: Final = "INTERLOCK_TIMING"
ROLES: Final = "INTERLOCK_ROLES"
SHADOW: Final = "INTERLOCK_SHADOW"
JOB_ENVIRONMENT: Final = "INTERLOCK_JOB_ENVIRONMENT"
HTTP_ALLOW: Final = "INTERLOCK_HTTP_ALLOW"
TARGET_RATES: Final = "INTERLOCK_TARGET_RATES"
ON_FAILURE: Final = "INTERLOCK_ON_FAILURE"
ON_LOSS: Final = "INTERLOCK_ON_LOSS"
POLLS: Final = "INTERLOCK_POLLS"
BUS: Final = "INTERLOCK_BUS"
ALERTS_QUEUE: Final = "INTERLOCK_ALERTS_QUEUE"
EVENTS_QUEUE: Final = "INTERLOCK_EVENTS_QUEUE"
JOB_EVENTS: Final = "INTERLOCK_JOB_EVENTS"
SENSORS_QUEUE: Final = "INTERLOCK_SENSORS_QUEUE"
CHANGES: Final = "INTERLOCK_CHANGES"
INBOX: Final = "INTERLOCK_INBOX"
SLACK_TOKEN: Final = "INTERLOCK_SLACK_TOKEN"  # noqa: S105 - the name of a variable
SLACK_CHANNEL: Final = "INTERLOCK_SLACK_CHANNEL"
SLACK_API: Final = "INTERLOCK_SLACK_API"
WEBHOOK_URL: Final = "INTERLOCK_WEBHOOK_URL"
WEBHOOK_SECRET: Final = "INTERLOCK_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
PAGERDUTY_KEY: Final = "INTERLOCK_PAGERDUTY_KEY"
PAGERDUTY_API: Final = "INTERLOCK_PAGERDUTY_API"
TEAMS_URL: Final = "INTERLOCK_TEAMS_URL"
ALERTS: Final = "INTERLOCK_ALERTS"
REPEAT_ALERTS: Final = "INTERLOCK_REPEAT_ALERTS"
HEARTBEAT_URL: Final = "INTERLOCK_HEARTBEAT_URL"
SERVICE: Final = "INTERLOCK_SERVICE"
HEALTH: Final = "INTERLOCK_HEALTH"
METRICS: Final = "INTERLOCK_METRICS"
WEB: Final = "INTERLOCK_WEB"
WEB_AUTH: Final = "INTERLOCK_WEB_AUTH"
WEB_TOKENS: Final = "INTERLOCK_WEB_TOKENS"
WEB_READONLY: Final = "INTERLOCK_WEB_READONLY"
WEB_READS: Final = "INTERLOCK_WEB_READS"
NAME: Final = "INTERLOCK_NAME"
WEB_SESSION_KEY: Final = "INTERLOCK_WEB_SESSION_KEY"
WEB_OPERATORS: Final = "INTERLOCK_WEB_OPERATORS"
WEB_ALB: Final = "INTERLOCK_WEB_ALB"
WEB_ALB_CLIENT: Final = "INTERLOCK_WEB_ALB_CLIENT"
WEB_PROXIES: Final = "INTERLOCK_WEB_PROXIES"
WEB_PROXY_SECRET: Final = "INTERLOCK_WEB_PROXY_SECRET"  # noqa: S105 - the name of a variable
PUBLIC_URL: Final = "INTERLOCK_PUBLIC_URL"
ARCHIVE: Final = "INTERLOCK_ARCHIVE"
ARCHIVE_TYPES: Final = "INTERLOCK_ARCHIVE_TYPES"
SUMMARIES: Final = "INTERLOCK_SUMMARIES"
# OpenTelemetry's own names. Its SDK reads these and its other variables too, such as those of certificates.
OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
OTLP_TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
OTLP_METRICS_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
OTLP_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
OTLP_TRACES_HEADERS: Final = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
OTLP_METRICS_HEADERS: Final = "OTEL_EXPORTER_OTLP_METRICS_HEADERS"
OTLP_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
OTLP_TRACES_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
OTLP_METRICS_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
OTLP_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
OTEL_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
OTEL_TRACES: Final = "OTEL_TRACES_EXPORTER"
OTEL_METRICS: Final = "OTEL_METRICS_EXPORTER"
OTEL_DISABLED: Final = "OTEL_SDK_DISABLED"

PREFIX: Final = "INTERLOCK_"
CLOSE: Final = 0.75  # how similar a name must be to count as a typo of another

_NO_QUEUES: Final = "only a worker on AWS has a bus and queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """AwsSettings name the AWS resources of a worker; empty means none."""

    bus: str = setting(
        BUS, values.plain_text, "EventBridge bus to publish events to.", used_by="relay", no_effect_off_aws=_NO_QUEUES
    )
    alerts_queue: str = setting(
        ALERTS_QUEUE,
        values.plain_text,
        "URL of the queue whose events become alerts.",
        used_by="alerts",
        no_effect_off_aws=_NO_QUEUES,
    )
    events_queue: str = setting(
        EVENTS_QUEUE,
        values.plain_text,
        "URL of the queue whose events, from other systems and alarms, go into the events table.",
        used_by="events",
        no_effect_off_aws=_NO_QUEUES,
    )
    job_events: frozenset[JobType] = setting(
        JOB_EVENTS,
        values.announced_types,
        "Job types whose state changes arrive in the events queue, such as `glue,step-function`: polled rarely.",
        used_by="engine, events",
        see="jobs.md#ends-announced-by-events",
        no_effect_off_aws=_NO_QUEUES,
    )
    sensors_queue: str = setting(
        SENSORS_QUEUE,
        values.plain_text,
        "URL of the inbox queue, whose messages become sensors.",
        used_by="sensors",
        see="inbox.md",
        no_effect_off_aws=_NO_QUEUES,
    )
    changes_stream: str = setting(
        CHANGES,
        values.changes_stream,
        "`kinesis:STREAM` reads table changes from one Kinesis stream; unset: from the tables' own streams.",
        used_by="engine, relay",
        see="streams.md",
        no_effect_off_aws=_NO_QUEUES,
    )
    inbox: str = setting(
        INBOX,
        values.plain_text,
        "Rules that turn inbox messages into sensors: the path of a file, or its text.",
        used_by="sensors; `interlock inbox`",
        see="inbox.md",
        may_name_file=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """ReadingSettings say how workers read table changes.

    Policies are per table; a table without one has the default.
    """

    on_failure: Mapping[str, str] = setting(
        ON_FAILURE,
        values.failure_policies,
        "What to do with a change that fails: `park-key`, `skip` or `block`; for one table: `events=skip`.",
        default=values.FAILURE_POLICIES[0],
        used_by="engine, relay",
        see="streams.md#what-goes-wrong-with-a-record",
    )
    on_loss: Mapping[str, str] = setting(
        ON_LOSS,
        values.loss_policies,
        "What to do if changes expired before they were read: `resync` or `halt`; for one table: `events=halt`.",
        default=values.LOSS_POLICIES[0],
        used_by="engine, relay",
        see="streams.md",
    )
    is_eco: bool = setting(
        POLLS,
        values.is_eco,
        "`eco` polls an idle shard every 5 seconds instead of 2, which costs fewer calls.",
        default="default",
        used_by="engine, relay",
        no_effect_off_aws="readers are woken",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """AlertSettings say how alerts reach people."""

    slack_token: str = setting(
        SLACK_TOKEN,
        values.plain_text,
        "Slack bot token, or `secretsmanager://NAME#KEY`; unset: alerts are lines of text.",
        used_by="alerts, relay",
        see="alerts.md",
        is_secret=True,
    )
    slack_channel: str = setting(
        SLACK_CHANNEL,
        values.plain_text,
        f"Slack channel for alerts that `{ALERTS}` does not route elsewhere.",
        used_by="alerts, relay",
        see="alerts.md",
        needs=SLACK_TOKEN,
    )
    slack_api: str = setting(
        SLACK_API, values.plain_text, "Address to use instead of Slack's, for tests.", used_by="alerts, relay"
    )
    routing: str = setting(
        ALERTS,
        values.plain_text,
        "Rules that choose channels and targets of alerts: the path of a file, or its text.",
        used_by="alerts, relay",
        see="alerts.md",
        may_name_file=True,
        needs=SLACK_TOKEN,  # or any other target
    )
    webhook_urls: Mapping[str, str] = setting(
        WEBHOOK_URL,
        values.owned_addresses,
        "Address to post signed alerts to, or `secretsmanager://NAME#KEY`; of one owner: `OWNER=ADDRESS`.",
        used_by="alerts, relay",
        see="how-to/alert-targets.md",
        is_secret=True,
        needs=WEBHOOK_SECRET,
    )
    webhook_secret: str = setting(
        WEBHOOK_SECRET,
        values.plain_text,
        "Secret that signs the webhook's requests, or `secretsmanager://NAME#KEY`.",
        used_by="alerts, relay",
        see="how-to/alert-targets.md",
        is_secret=True,
        needs=WEBHOOK_URL,
    )
    pagerduty_keys: Mapping[str, str] = setting(
        PAGERDUTY_KEY,
        values.owned_secrets,
        "Integration key of a PagerDuty service, or `secretsmanager://NAME#KEY`; of one owner: `OWNER=KEY`.",
        used_by="alerts, relay",
        see="how-to/alert-targets.md",
        is_secret=True,
    )
    pagerduty_api: str = setting(
        PAGERDUTY_API,
        values.http_address,
        "Address of PagerDuty's Events API, for its EU region and for tests.",
        default="https://events.pagerduty.com/v2/enqueue",
        used_by="alerts, relay",
        needs=PAGERDUTY_KEY,
    )
    teams_urls: Mapping[str, str] = setting(
        TEAMS_URL,
        values.owned_addresses,
        "Webhook address of a Teams workflow, or `secretsmanager://NAME#KEY`; of one owner: `OWNER=ADDRESS`.",
        used_by="alerts, relay",
        see="how-to/alert-targets.md",
        is_secret=True,
    )
    heartbeat_url: str = setting(
        HEARTBEAT_URL,
        values.http_address,
        "Address to call while everything works, for a service that alerts when the calls stop.",
        used_by="scheduler",
        see="watchdog.md",
        is_secret=True,  # anyone who knows it can send our heartbeat
    )
    repeat_alerts: timedelta | None = setting(  # noqa: RUF009  it makes a dataclass field, as `field` does
        REPEAT_ALERTS,
        values.optional_duration,
        "Interval after which to repeat the alert about a run that is still missing, such as `6h`; unset: never.",
        used_by="scheduler",
        see="watchdog.md",
    )

    @property
    def targets(self) -> Mapping[str, Mapping[str, str]]:
        """Return the secrets of the targets besides Slack, by variable and owner; only variables that are set."""
        found = {WEBHOOK_URL: self.webhook_urls, PAGERDUTY_KEY: self.pagerduty_keys, TEAMS_URL: self.teams_urls}
        return {name: secrets for name, secrets in found.items() if secrets}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """CollectorSettings say where metrics and traces are sent; the names are OpenTelemetry's."""

    endpoint: str = setting(
        OTLP_ENDPOINT,
        values.plain_text,
        "Address of a collector to send metrics and traces to, as OTLP.",
        used_by="every worker",
        see="reference/metrics.md",
        is_secret=True,  # may contain credentials
    )
    traces_endpoint: str = setting(
        OTLP_TRACES_ENDPOINT,
        values.plain_text,
        "Whole address for traces, in place of the one above.",
        used_by="every worker",
        is_secret=True,
    )
    metrics_endpoint: str = setting(
        OTLP_METRICS_ENDPOINT,
        values.plain_text,
        "Whole address for metrics, in place of the one above.",
        used_by="every worker",
        is_secret=True,
    )
    headers: str = setting(
        OTLP_HEADERS,
        values.plain_text,
        "Headers for that collector, `name=value,name=value`, as OpenTelemetry defines them.",
        used_by="every worker",
        is_secret=True,
    )
    traces_headers: str = setting(
        OTLP_TRACES_HEADERS,
        values.plain_text,
        "Headers for traces, in place of those above.",
        used_by="every worker",
        is_secret=True,
    )
    metrics_headers: str = setting(
        OTLP_METRICS_HEADERS,
        values.plain_text,
        "Headers for metrics, in place of those above.",
        used_by="every worker",
        is_secret=True,
    )
    protocol: str = setting(
        OTLP_PROTOCOL,
        values.plain_text,
        "`http/protobuf` or `grpc`.",
        default="http/protobuf",
        used_by="every worker",
    )
    traces_protocol: str = setting(
        OTLP_TRACES_PROTOCOL, values.plain_text, "Protocol for traces, in place of that.", used_by="every worker"
    )
    metrics_protocol: str = setting(
        OTLP_METRICS_PROTOCOL, values.plain_text, "Protocol for metrics, in place of that.", used_by="every worker"
    )
    temporality: str = setting(
        OTLP_TEMPORALITY,
        values.plain_text,
        "`delta` sends what was counted since the last report in place of totals.",
        default="cumulative",
        used_by="every worker",
    )
    resource: str = setting(
        OTEL_RESOURCE,
        values.plain_text,
        "Attributes of the resource, `name=value,name=value`, for example `service.namespace=data`.",
        used_by="every worker",
    )
    traces: str = setting(
        OTEL_TRACES, values.plain_text, "`none` sends no traces.", default="otlp", used_by="every worker"
    )
    metrics: str = setting(
        OTEL_METRICS, values.plain_text, "`none` sends no metrics.", default="otlp", used_by="every worker"
    )
    disabled: str = setting(
        OTEL_DISABLED, values.plain_text, "`true` sends neither traces nor metrics.", used_by="every worker"
    )

    @property
    def sends_traces(self) -> bool:
        return bool(self.endpoint or self.traces_endpoint) and self._is_wanted(self.traces)

    @property
    def sends_metrics(self) -> bool:
        return bool(self.endpoint or self.metrics_endpoint) and self._is_wanted(self.metrics)

    @property
    def is_delta(self) -> bool:
        return self.temporality.strip().lower() in {"delta", "lowmemory"}

    def _is_wanted(self, exporters: str) -> bool:
        # Other programs read these variables too, so a value for another one is not an error.
        is_listed = "otlp" in {each.strip().lower() for each in exporters.split(",")}
        return is_listed and self.disabled.strip().lower() != "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """TelemetrySettings say where a worker serves its health and sends its metrics."""

    service: str = setting(
        SERVICE, values.plain_text, "Service name on metrics.", default="interlock", used_by="every worker"
    )
    health: str = setting(
        HEALTH,
        values.plain_text,
        "`HOST:PORT` to serve `/healthz`, `/readyz` and `/metrics` on; unset: not served.",
        used_by="every worker",
    )
    metrics: str = setting(
        METRICS,
        values.metrics_format,
        "`emf` writes metrics to the log once a minute, in CloudWatch's embedded metric format.",
        used_by="every worker",
    )
    collector: CollectorSettings = field(default_factory=CollectorSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """WebSettings say where the console and the HTTP API are served, and who may use it."""

    listen: str = setting(
        WEB,
        values.plain_text,
        "`HOST:PORT` to serve the console and the HTTP API on; unset: not served.",
        used_by="every worker; `interlock web`",
        see="how-to/http-api.md",
    )
    auth: str = setting(
        WEB_AUTH,
        values.web_auth,
        "Who may use it: `local` (who reaches a loopback address reads), `token`, `alb` or `proxy`.",
        default=values.WEB_AUTH[0],
        used_by="every worker; `interlock web`",
        see="how-to/http-api.md",
    )
    tokens: str = setting(
        WEB_TOKENS,
        values.plain_text,
        "Tokens, `NAME:ROLE:SHA256`, roles `viewer`, `operator` and `producer`; or `secretsmanager://NAME#KEY`.",
        used_by="every worker; `interlock web`",
        see="how-to/http-api.md",
        is_secret=True,
    )
    session_key: str = setting(
        WEB_SESSION_KEY,
        values.plain_text,
        "Secret that signs the cookies of browsers, the same for all processes of one address; unset: one for each.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
        is_secret=True,
        needs=WEB_TOKENS,
    )
    operators: str = setting(
        WEB_OPERATORS,
        values.plain_text,
        "Who may act in the modes `alb` and `proxy`: `user:NAME` and `group:NAME`, compared in full.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
    )
    alb: str = setting(
        WEB_ALB,
        values.plain_text,
        "Mode `alb`: ARN of the load balancer whose signed tokens are trusted.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
    )
    alb_client: str = setting(
        WEB_ALB_CLIENT,
        values.plain_text,
        "Mode `alb`: id of the OIDC client for which the tokens must be issued.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
        needs=WEB_ALB,
    )
    proxies: tuple[str, ...] = setting(
        WEB_PROXIES,
        values.comma_list,
        "Mode `proxy`: networks of the proxies whose `X-Forwarded-User` and `-Groups` are trusted.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
    )
    proxy_secret: str = setting(
        WEB_PROXY_SECRET,
        values.plain_text,
        "Mode `proxy`: SHA-256 of the secret that the proxy sends in `X-Interlock-Proxy`.",
        used_by="every worker; `interlock web`",
        see="how-to/web-access.md",
        is_secret=True,
        needs=WEB_PROXIES,
    )
    public_url: str = setting(
        PUBLIC_URL,
        values.http_address,
        "Public address of the console and the HTTP API, for links and for the check of a request's host.",
        used_by="every worker; `interlock web`",
        see="how-to/http-api.md",
    )
    name: str = setting(
        NAME,
        values.plain_text,
        "Name of the installation, in the console's header and titles; unset: the store's file or table prefix.",
        used_by="every worker; `interlock web`",
        see="how-to/console.md",
    )
    is_read_only: bool = setting(
        WEB_READONLY,
        values.switch,
        "`1` rejects every request that would change something.",
        default="0",
        used_by="every worker; `interlock web`",
        see="how-to/http-api.md",
    )
    reads_per_s: int = setting(
        WEB_READS,
        values.web_reads,
        "Read units per second that the console's lists may use on DynamoDB; where they cost more, they are older.",
        default="20",
        used_by="every worker; `interlock web`",
        see="how-to/console.md",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """ArchiveSettings say where history is kept beyond the store's retention."""

    target: ArchiveUrl | None = setting(  # noqa: RUF009  as above
        ARCHIVE,
        parse_archive,
        "`s3://BUCKET/PREFIX` or `file:DIRECTORY` to archive events and ended runs in; unset: no archive.",
        used_by="scheduler; `interlock archive`",
        see="how-to/archive.md",
    )
    types: tuple[str, ...] = setting(
        ARCHIVE_TYPES,
        values.comma_list,
        "Event types of other systems to archive besides Interlock's own.",
        used_by="scheduler; `interlock archive`",
        see="how-to/archive.md",
        needs=ARCHIVE,
    )
    summaries: ArchiveUrl | None = setting(  # noqa: RUF009  as above
        SUMMARIES,
        parse_archive,
        "`s3://BUCKET/PREFIX` or `file:DIRECTORY` for one small object per ended run; unset: none.",
        used_by="scheduler",
        see="how-to/archive.md#summaries-as-objects",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    store: str = setting(
        STORE,
        checked_store_url,
        "Store URL, the same as `--store`.",
        default=DEFAULT_STORE,
        used_by="every command",
        see="store.md",
    )
    timing: Timing = setting(  # noqa: RUF009  as above
        TIMING,
        values.timing,
        "How soon a dead worker is noticed: `default` or `fast`; the same for all workers of a store.",
        default="default",
        used_by="every worker",
    )
    roles: frozenset[Role] = setting(
        ROLES,
        values.roles,
        "Roles of this worker; `scheduler` requires `engine`.",
        default=",".join(Role),
        used_by="every worker",
        old_name="INTERLOCK_DUTIES",
    )
    shadow: bool = setting(
        SHADOW,
        values.switch,
        "`1` runs this worker in shadow mode: it decides and records, and starts nothing.",
        default="0",
        used_by="every worker",
        see="migration.md#run-in-shadow-mode",
    )
    job_environment: tuple[str, ...] = setting(
        JOB_ENVIRONMENT,
        values.comma_list,
        "Names of the worker's variables to pass to command jobs, in addition to `PATH`, `HOME` and the like.",
        used_by="engine",
        see="jobs/command.md",
    )
    http_allow: tuple[str, ...] = setting(
        HTTP_ALLOW,
        values.comma_list,
        "Hosts, `*.suffixes` and networks that HTTP, Databricks and Airflow jobs may call besides public addresses.",
        used_by="engine, scheduler; `interlock validate`",
        see="jobs.md",
    )
    target_rates: Mapping[JobType, float] = setting(
        TARGET_RATES,
        values.target_rates,
        "Calls per second from this worker to each target of a kind, such as `glue=2,step-function=5`.",
        used_by="engine",
        see="limits.md",
    )
    aws: AwsSettings = field(default_factory=AwsSettings)
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    web: WebSettings = field(default_factory=WebSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)


SETTINGS: Final = tuple(settings_of(Settings))
NAMES: Final = tuple(each.name for each in SETTINGS)
OLD_NAMES: Final = {each.old_name: each.name for each in SETTINGS if each.old_name}
# The worker's own credentials. No job gets them, although job configurations may name other variables with the prefix.
OWN_SECRETS: Final = frozenset(each.name for each in SETTINGS if each.is_secret)


def read_settings(environment: Mapping[str, str], *, store: str | None = None) -> Settings:
    """Read all settings; `store`, from the command line, overrides its variable. Raises `ConfigError`.

    An empty variable counts as unset, because shells and container files produce empty ones.
    """
    return read_environment(Settings, {**environment, STORE: store or environment.get(STORE, "")})


def mistyped(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables whose names nearly match settings, each with the setting probably meant.

    They are not errors: any other name with the prefix may be a job's secret.
    """
    known = [name.removeprefix(PREFIX) for name in NAMES if name.startswith(PREFIX)]
    others = sorted(name for name in environment if name.startswith(PREFIX) and name not in {*NAMES, *OLD_NAMES})
    found = {name: get_close_matches(name.removeprefix(PREFIX), known, 1, CLOSE) for name in others}
    return {name: f"{PREFIX}{close[0]}" for name, close in found.items() if close}


def renamed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that give a setting under its earlier name alone, each with the setting's name."""
    return {old: new for old, new in OLD_NAMES.items() if environment.get(old) and not environment.get(new)}


def without_effect(settings: Settings, *, is_aws: bool) -> Iterator[tuple[str, str]]:
    """Yield the name of each setting that is set and has no effect on this worker, and the reason."""
    defaults = Settings()
    changed = {each.name: each for each in SETTINGS if each.value_in(settings) != each.value_in(defaults)}
    for name, each in changed.items():
        if not is_aws and each.no_effect_off_aws:
            yield name, each.no_effect_off_aws
        elif each.needs and each.needs not in changed and not (name == ALERTS and settings.alerts.targets):
            yield name, f"there is no {each.needs}"
