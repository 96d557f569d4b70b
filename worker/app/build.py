"""Builds the worker that the store's URL and the settings ask for."""

from dataclasses import replace

from worker.app.alert_targets import check_webhook, routing_from
from worker.app.aws import AwsPlatform
from worker.app.embedded import EmbeddedPlatform, Options
from worker.app.platforms import Platform
from worker.app.shadow import ShadowPlatform, shadow_settings
from worker.app.telemetry import Telemetry
from worker.app.terminal_output import TerminalLines
from worker.app.web import checked_access
from worker.app.worker import LEASED, Worker
from worker.config.roles import Role
from worker.config.settings import ALERTS_QUEUE, EVENTS_QUEUE, ROLES, SENSORS_QUEUE, Settings
from worker.core.errors import ConfigError
from worker.jobs.secrets import MANAGED
from worker.runtime.clock import Clock
from worker.store.backends.open import require_redis_library
from worker.store.url import DynamoPlace, Place, RedisPlace, SqlitePlace, locate


def make_worker(options: Options, clock: Clock) -> Worker:
    """Return a worker on one machine for a SQLite file, on AWS for DynamoDB, on any machine for Redis.

    Raises `ConfigError` for any other URL, and for roles that have nothing to do there.
    """
    if options.settings.shadow:
        options = replace(options, settings=shadow_settings(options.settings))
    settings = options.settings
    place = locate(settings.store)
    _check_roles(settings, place)
    _check_before_opening(settings, place)
    shares_address = bool(settings.web.listen) and settings.web.listen == settings.telemetry.health
    telemetry = Telemetry(
        replace(settings.telemetry, health="") if shares_address else settings.telemetry,
        options.environment,
        clock,
        options.write_metrics,
        log_lines_lost=options.log_lines_lost,
    )
    platform = _platform(options, clock)
    return Worker(ShadowPlatform(platform, clock) if settings.shadow else platform, settings, clock, telemetry)


def _platform(options: Options, clock: Clock) -> Platform:
    match locate(options.settings.store):
        case SqlitePlace(path, named):
            return EmbeddedPlatform(options, path, clock, named)
        case RedisPlace() as place:
            require_redis_library()
            from worker.app.redis import RedisPlatform  # noqa: PLC0415  its library may not be installed

            return RedisPlatform(options, place, clock)
        case DynamoPlace() as place:
            terminal = TerminalLines(options.write_alert, options.show_line) if options.show_line else None
            return AwsPlatform(
                options.settings, options.environment, place, clock, options.confirm_logged, terminal=terminal
            )


def _check_before_opening(settings: Settings, place: Place) -> None:
    """Raise `ConfigError` for what a worker would refuse later, when its new store exists already."""
    alerts = settings.alerts
    if not (settings.shadow or isinstance(place, DynamoPlace)):
        check_webhook(alerts)
        if alerts.slack_token or any(alerts.targets.values()):
            routing_from(alerts)
    if settings.web.listen and not settings.web.tokens.startswith(MANAGED):  # those are read from AWS first
        checked_access(settings)


def _check_roles(settings: Settings, place: Place) -> None:
    """Refuse roles without work: such a worker would look healthy and do nothing."""
    if settings.roles & LEASED:
        return
    named = ", ".join(sorted(settings.roles))
    if not isinstance(place, DynamoPlace):
        raise ConfigError(
            f"{ROLES} is {named}, and only a worker on AWS has queues; events go to people with the relay: "
            f"add {Role.RELAY}, or leave {ROLES} out"
        )
    aws = settings.aws
    queues = {
        Role.ALERTS: (ALERTS_QUEUE, aws.alerts_queue),
        Role.EVENTS: (EVENTS_QUEUE, aws.events_queue),
        Role.SENSORS: (SENSORS_QUEUE, aws.sensors_queue),
    }
    theirs = [queues[role] for role in sorted(settings.roles)]
    if not any(url for _, url in theirs):
        missing = ", ".join(variable for variable, _ in theirs)
        raise ConfigError(f"{ROLES} is {named}, and there is no queue to take messages from; set {missing}")
