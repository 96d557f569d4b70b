"""The environment, read once. Only the command line and the wiring of the worker call this."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from worker.core.errors import ConfigError
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING, Timing
from worker.core.model.pipeline import JobType
from worker.core.time.durations import parse_duration
from worker.store.url import locate

STORE: Final = "INTERLOCK_STORE"
TIMING: Final = "INTERLOCK_TIMING"  # how fast a dead worker is noticed; all workers of a store must agree
DUTIES: Final = "INTERLOCK_DUTIES"  # what this worker is there for, by name; everything if unset
SHADOW: Final = "INTERLOCK_SHADOW"  # 1: decide everything and do nothing, beside the system that is in charge
JOB_ENVIRONMENT: Final = "INTERLOCK_JOB_ENVIRONMENT"  # variables, by name, that command jobs get of the worker's own
HTTP_ALLOW: Final = "INTERLOCK_HTTP_ALLOW"  # hosts and networks that jobs over HTTP may reach beside public ones
TARGET_RATES: Final = "INTERLOCK_TARGET_RATES"  # calls per second to targets of a kind: glue=2,step-function=5

# --- reading changes
ON_FAILURE: Final = "INTERLOCK_ON_FAILURE"  # of a record: park-key, skip or block; or by table, as in events=skip
ON_LOSS: Final = "INTERLOCK_ON_LOSS"  # of records that are gone: resync or halt; or by table
POLLS: Final = "INTERLOCK_POLLS"  # eco: a shard at rest is asked more rarely

# --- on AWS: where events go, and where they and other news come from
BUS: Final = "INTERLOCK_BUS"  # the event bus
ALERTS_QUEUE: Final = "INTERLOCK_ALERTS_QUEUE"  # URLs of queues
EVENTS_QUEUE: Final = "INTERLOCK_EVENTS_QUEUE"
SENSORS_QUEUE: Final = "INTERLOCK_SENSORS_QUEUE"
CHANGES: Final = "INTERLOCK_CHANGES"  # how changes come: kinesis:STREAM, or by the tables' own streams if unset
INBOX: Final = "INTERLOCK_INBOX"  # the inbox rules: a file, or their own text

# --- people
SLACK_TOKEN: Final = "INTERLOCK_SLACK_TOKEN"  # noqa: S105 - the name of a variable; or secretsmanager://NAME#KEY
SLACK_CHANNEL: Final = "INTERLOCK_SLACK_CHANNEL"
SLACK_API: Final = "INTERLOCK_SLACK_API"  # another address than Slack's own, for tests
ALERTS: Final = "INTERLOCK_ALERTS"  # who hears of what: a file, or its own text
REPEAT_ALERTS: Final = "INTERLOCK_REPEAT_ALERTS"  # after how long what is still missing is told again, as in 6h
HEARTBEAT_URL: Final = "INTERLOCK_HEARTBEAT_URL"  # called while all is well; whoever watches it notices the silence

# Credentials of the worker itself, which no job is given, although their names are those of jobs' secrets.
OWN_SECRETS: Final = frozenset({SLACK_TOKEN, HEARTBEAT_URL})

# --- being watched
SERVICE: Final = "INTERLOCK_SERVICE"  # what metrics are told apart by
HEALTH: Final = "INTERLOCK_HEALTH"  # HOST:PORT to serve health and metrics on
METRICS: Final = "INTERLOCK_METRICS"  # emf: metrics as lines in the log
OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"  # a collector for metrics; the name is OpenTelemetry's

PREFIX: Final = "INTERLOCK_"
NAMES: Final = (
    STORE, TIMING, DUTIES, SHADOW, JOB_ENVIRONMENT, HTTP_ALLOW, TARGET_RATES, ON_FAILURE, ON_LOSS, POLLS, BUS,
    ALERTS_QUEUE, EVENTS_QUEUE, SENSORS_QUEUE, CHANGES, INBOX, SLACK_TOKEN, SLACK_CHANNEL, SLACK_API, ALERTS,
    REPEAT_ALERTS, HEARTBEAT_URL, SERVICE, HEALTH, METRICS,
)  # fmt: skip
GROUP: Final = "interlock"  # all workers of a store are one group; their rows are found under this name
DEFAULT_STORE: Final = "sqlite:///interlock.db"
DEFAULT_SERVICE: Final = "interlock"
_TIMINGS: Final = {"default": DEFAULT_TIMING, "fast": FAST_TIMING}
_METRICS: Final = ("", "emf")
_POLLS: Final = ("default", "eco")
# What the changes of a table may be read with; the first is what is done without a word.
FOLLOWED: Final = ("control", "joblog", "events")
FAILURE_POLICIES: Final = ("park-key", "skip", "block")
LOSS_POLICIES: Final = ("resync", "halt")
_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
CLOSE: Final = 0.75  # how much of two names must agree for one to be taken for the other
RATE_MAX: Final = 10_000
REPEATED_MIN: Final = timedelta(minutes=1)


class Role(StrEnum):
    """What a worker may be there for. One that does everything has them all."""

    ENGINE = "engine"  # facts in, jobs started and followed
    SCHEDULER = "scheduler"  # cron and the watchdog; it acts through the engine beside it
    RELAY = "relay"  # events out
    ALERTS = "alerts"  # the queue of alerts, to people
    EVENTS = "events"  # the queue of others' events, to the events table
    SENSORS = "sensors"  # the queue of news about data, to sensors


EVERYTHING: Final = frozenset(Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """How changes are read. Policies are by table; one that is not named has the first of them."""

    on_failure: Mapping[str, str] = field(default_factory=dict[str, str])
    on_loss: Mapping[str, str] = field(default_factory=dict[str, str])
    is_eco: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Where events go and news come from; what is empty is not there."""

    bus: str = ""
    alerts_queue: str = ""
    events_queue: str = ""
    sensors_queue: str = ""
    inbox: str = ""
    changes_stream: str = ""  # of Kinesis; empty: the tables' own streams


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    slack_token: str = field(default="", repr=False)
    slack_channel: str = ""
    slack_api: str = ""
    alerts: str = ""
    heartbeat_url: str = field(default="", repr=False)  # whoever knows it can give our sign of life
    repeat_alerts: timedelta | None = None  # None: what was told once is never told again


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogSettings:
    service: str = DEFAULT_SERVICE
    health: str = ""
    metrics: str = ""
    otlp_endpoint: str = field(default="", repr=False)  # may hold credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    store: str  # a URL that `worker.store.backends.open` understands
    timing: Timing = DEFAULT_TIMING
    duties: frozenset[Role] = EVERYTHING
    shadow: bool = False
    job_environment: tuple[str, ...] = ()
    http_allow: tuple[str, ...] = ()
    target_rates: Mapping[JobType, float] = field(default_factory=dict[JobType, float])
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    aws: AwsSettings = AwsSettings()
    people: AlertSettings = AlertSettings()
    watched: WatchdogSettings = WatchdogSettings()


def mistyped(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are no setting and yet nearly called like one, with the one that was probably meant.

    They are not errors: any name of ours that is no setting may be a secret of a job.
    """
    known = [name.removeprefix(PREFIX) for name in NAMES]
    others = sorted(name for name in environment if name.startswith(PREFIX) and name not in NAMES)
    found = {name: get_close_matches(name.removeprefix(PREFIX), known, 1, CLOSE) for name in others}
    return {name: f"{PREFIX}{close[0]}" for name, close in found.items() if close}


def read_settings(environment: Mapping[str, str], *, store: str | None = None) -> Settings:
    """Read what the environment says; `store` was said on the command line and wins.

    An empty variable counts as unset, as shells and container files make them. Raises `ConfigError`.
    """
    said = {name: value for name, value in environment.items() if value}
    url = store or said.get(STORE) or DEFAULT_STORE
    locate(url)
    return Settings(
        store=url,
        timing=_timing(said.get(TIMING, "default")),
        duties=_duties(_listed(said.get(DUTIES, ""))),
        shadow=_switch(SHADOW, said.get(SHADOW, "0")),
        job_environment=_listed(said.get(JOB_ENVIRONMENT, "")),
        http_allow=_listed(said.get(HTTP_ALLOW, "")),
        target_rates=dict(_rate(given) for given in _listed(said.get(TARGET_RATES, ""))),
        reading=ReadingSettings(
            on_failure=_policies(ON_FAILURE, said.get(ON_FAILURE, ""), FAILURE_POLICIES),
            on_loss=_policies(ON_LOSS, said.get(ON_LOSS, ""), LOSS_POLICIES),
            is_eco=_polls(said.get(POLLS, "default")) == "eco",
        ),
        aws=AwsSettings(
            bus=said.get(BUS, ""),
            alerts_queue=said.get(ALERTS_QUEUE, ""),
            events_queue=said.get(EVENTS_QUEUE, ""),
            sensors_queue=said.get(SENSORS_QUEUE, ""),
            inbox=said.get(INBOX, ""),
            changes_stream=_changes_stream(said.get(CHANGES, "")),
        ),
        people=AlertSettings(
            slack_token=said.get(SLACK_TOKEN, ""),
            slack_channel=said.get(SLACK_CHANNEL, ""),
            slack_api=said.get(SLACK_API, ""),
            alerts=said.get(ALERTS, ""),
            heartbeat_url=_address(HEARTBEAT_URL, said.get(HEARTBEAT_URL, "")),
            repeat_alerts=_duration(REPEAT_ALERTS, said.get(REPEAT_ALERTS)),
        ),
        watched=WatchdogSettings(
            service=said.get(SERVICE, DEFAULT_SERVICE),
            health=said.get(HEALTH, ""),
            metrics=_metrics(said.get(METRICS, "")),
            otlp_endpoint=said.get(OTLP_ENDPOINT, ""),
        ),
    )


def _timing(name: str) -> Timing:
    if name not in _TIMINGS:
        raise ConfigError(f"{TIMING} is {name!r}; use {' or '.join(_TIMINGS)}")
    return _TIMINGS[name]


def _duties(names: tuple[str, ...]) -> frozenset[Role]:
    unknown = [name for name in names if name not in set(Role)]
    if unknown:
        raise ConfigError(f"{DUTIES} names {unknown[0]!r}; a duty is one of {', '.join(Role)}")
    duties = frozenset(Role(name) for name in names) or EVERYTHING
    if Role.SCHEDULER in duties and Role.ENGINE not in duties:
        raise ConfigError(f"{DUTIES} has scheduler without engine; whoever creates a run also starts its job: add it")
    return duties


def _address(name: str, said: str) -> str:
    """What is wrong with it is said without it: whoever knows the address can give our sign of life."""
    if said and not said.startswith(("http://", "https://")):
        raise ConfigError(f"{name} is no address; begin it with https://")
    return said


def _switch(name: str, said: str) -> bool:
    """A mistyped switch must not be taken for off: here that would start jobs."""
    if said not in {"0", "1"}:
        raise ConfigError(f"{name} is {said!r}; use 1 for on, 0 or nothing for off")
    return said == "1"


def _duration(name: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    duration = parse_duration(text)
    if duration is None or duration < REPEATED_MIN:
        raise ConfigError(f"{name} is {text!r}; use a duration of at least 1m, such as 6h, or leave it out")
    return duration


def _rate(given: str) -> tuple[JobType, float]:
    kind, _, number = given.partition("=")
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if kind not in set(JobType) or not 0 < rate <= RATE_MAX:
        wanted = f"a kind of target ({', '.join(JobType)}), = and calls per second up to {RATE_MAX}"
        raise ConfigError(f"{TARGET_RATES} has {given!r}; write {wanted}, such as glue=2")
    return JobType(kind), rate


def _policies(name: str, text: str, known: tuple[str, ...]) -> dict[str, str]:
    """One policy for all tables, or one for each that is named: the last word counts."""
    chosen: dict[str, str] = {}
    for given in _listed(text):
        table, is_named, policy = given.rpartition("=")
        if policy not in known or (is_named and table not in FOLLOWED):
            raise ConfigError(
                f"{name} has {given!r}; use {_or(known)}, or say for which of the tables {_or(FOLLOWED)}, as in "
                f"events={known[-1]}"
            )
        chosen |= dict.fromkeys([table] if is_named else FOLLOWED, policy)
    return chosen


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _polls(kind: str) -> str:
    if kind not in _POLLS:
        raise ConfigError(f"{POLLS} is {kind!r}; use {_or(_POLLS)}")
    return kind


def _changes_stream(text: str) -> str:
    kind, _, name = text.partition(":")
    if text and (kind != "kinesis" or not _STREAM_NAME.fullmatch(name)):
        raise ConfigError(
            f"{CHANGES} is {text!r}; use kinesis:STREAM with the name of a Kinesis stream, or leave it out to read the "
            "tables' own streams"
        )
    return name


def _metrics(kind: str) -> str:
    if kind not in _METRICS:
        raise ConfigError(f"{METRICS} is {kind!r}; use emf, or leave it out")
    return kind


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
