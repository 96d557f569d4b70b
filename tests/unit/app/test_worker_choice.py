"""Which worker the settings ask for, and which of them would only look as if it worked."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from consumers.outbox.severities import Severity
from tests.support.aws.emulators import use_test_credentials
from tests.support.clock.manual import ManualClock
from worker.app.alerts import tells_people
from worker.app.aws import AwsPlatform
from worker.app.build import make_worker
from worker.app.embedded import EmbeddedPlatform, Options
from worker.config.settings import (
    ALERTS_QUEUE,
    BUS,
    EVENTS_QUEUE,
    ON_FAILURE,
    ON_LOSS,
    POLLS,
    ROLES,
    ReadingSettings,
    read_settings,
)
from worker.config.store_setting import STORE
from worker.core.errors import ConfigError
from worker.store.url import DynamoPlace, locate

TABLES = "dynamodb://interlock?region=eu-west-1"
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/alerts"


async def to_nobody(_: Severity, __: str) -> None:
    """Where alerts go in these tests."""


def make(**environment: str) -> None:
    settings = read_settings({STORE: "sqlite:///interlock.db", **environment})
    make_worker(Options(settings=settings, environment={}, write_alert=to_nobody), ManualClock())


@pytest.mark.parametrize("roles", ["alerts", "events,sensors"])
def test_a_worker_on_a_file_refuses_roles_that_are_about_queues_only(roles: str) -> None:
    with pytest.raises(ConfigError, match=r"only a worker on AWS has queues.*add relay"):
        make(**{ROLES: roles})


def test_a_worker_refuses_to_consume_a_queue_that_it_was_not_given() -> None:
    with pytest.raises(ConfigError, match=r"INTERLOCK_ROLES is alerts, .*set INTERLOCK_ALERTS_QUEUE"):
        make(**{STORE: TABLES, ROLES: "alerts"})


@pytest.mark.parametrize(
    "environment",
    [{}, {ROLES: "relay"}, {ROLES: "relay,alerts"}, {STORE: TABLES, ROLES: "alerts,events", ALERTS_QUEUE: QUEUE}],
)
def test_a_worker_that_has_something_to_do_is_made(environment: dict[str, str]) -> None:
    make(**environment)


@pytest.mark.parametrize(
    ("roles", "with_queue", "without"),
    [("relay", False, True), ("alerts", True, False), ("engine", False, False), ("", True, True)],
)
def test_people_are_told_by_whoever_takes_alerts_back_and_without_a_queue_by_the_relay(
    roles: str, with_queue: bool, without: bool
) -> None:
    bus = {STORE: TABLES, ROLES: roles, BUS: "interlock"}

    assert tells_people(read_settings({**bus, ALERTS_QUEUE: QUEUE})) is with_queue
    assert tells_people(read_settings(bus)) is without


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb"])
async def test_either_kind_of_worker_reads_changes_as_the_settings_say(tmp_path: Path, kind: str) -> None:
    use_test_credentials()
    said = {ON_FAILURE: "events=skip", ON_LOSS: "halt", POLLS: "eco", ROLES: "events", EVENTS_QUEUE: QUEUE}
    settings, clock = read_settings(said), ManualClock()
    options = Options(settings=settings, environment={}, write_alert=to_nobody)
    tables = locate(TABLES)
    assert isinstance(tables, DynamoPlace)
    made = {
        "sqlite": lambda: EmbeddedPlatform(options, tmp_path / "interlock.db", clock),
        "dynamodb": lambda: AwsPlatform(settings, {}, tables, clock),
    }
    async with AsyncExitStack() as stack:
        tuning = (await made[kind]().open(stack)).deps.tuning

    assert tuning.reading == settings.reading != ReadingSettings()
    assert tuning.pace.poll_idle_s == (5.0 if kind == "dynamodb" else 2.0), "readers of a file are woken"
