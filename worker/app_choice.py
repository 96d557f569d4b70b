"""Which kind of worker a store's URL asks for."""

from worker.app import Worker
from worker.app_aws import AwsKind
from worker.app_embedded import EmbeddedKind, Options
from worker.app_kinds import Kind
from worker.app_telemetry import Telemetry
from worker.clock import Clock
from worker.store.open import DynamoPlace, SqlitePlace, locate


def make_worker(options: Options, clock: Clock) -> Worker:
    """A worker on one machine for a file, on AWS for tables there. Raises `ConfigError` for a URL that is neither."""
    settings = options.settings
    telemetry = Telemetry(settings.watched, options.environment, clock, options.write_metrics)
    return Worker(_kind(options, clock), settings, clock, telemetry)


def _kind(options: Options, clock: Clock) -> Kind:
    match locate(options.settings.store):
        case SqlitePlace(path):
            return EmbeddedKind(options, path, clock)
        case DynamoPlace() as place:
            return AwsKind(options.settings, options.environment, place, clock)
