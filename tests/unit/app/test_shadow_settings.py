"""`INTERLOCK_SHADOW=1`: which worker that makes, and what it cannot have."""

from pathlib import Path

import pytest

from consumers.outbox.severities import Severity
from tests.support.builders.command_line import interlock
from tests.support.clock.manual import ManualClock
from worker.app.build import make_worker
from worker.app.embedded import Options
from worker.app.shadow import shadow_settings
from worker.config.roles import Role
from worker.config.settings import (
    ALERTS_QUEUE,
    BUS,
    SHADOW,
    SLACK_TOKEN,
    AlertSettings,
    AwsSettings,
    read_settings,
)
from worker.config.store_setting import STORE
from worker.core.errors import ConfigError

TABLES = "dynamodb://interlock?region=eu-west-1"


async def to_nobody(_: Severity, __: str) -> None:
    """Where alerts go in these tests."""


def test_a_shadow_has_no_bus_no_queue_and_nobody_to_tell() -> None:
    given = {STORE: TABLES, SHADOW: "1", BUS: "interlock", ALERTS_QUEUE: "https://queue", SLACK_TOKEN: "xoxb-1"}

    settings = shadow_settings(read_settings(given))

    assert settings.roles == {Role.ENGINE}
    assert settings.aws == AwsSettings()
    assert settings.alerts == AlertSettings()


@pytest.mark.parametrize("store", [TABLES, "sqlite:///interlock.db"])
def test_a_shadow_is_made_for_either_kind_of_store(store: str) -> None:
    options = Options(settings=read_settings({STORE: store, SHADOW: "1"}), environment={}, write_alert=to_nobody)

    make_worker(options, ManualClock())


@pytest.mark.parametrize(("said", "is_on"), [("1", True), ("0", False), ("", False)])
def test_the_switch_is_one_or_zero(said: str, is_on: bool) -> None:
    assert read_settings({SHADOW: said}).shadow is is_on


@pytest.mark.parametrize("said", ["true", "yes", "2", "on"])
def test_a_mistyped_switch_is_refused_because_off_would_start_jobs(said: str) -> None:
    with pytest.raises(ConfigError, match="use 1 for on"):
        read_settings({SHADOW: said})


def test_a_shadow_refuses_to_push_pipelines(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interlock("store", "init")
    (here / "orders.yaml").write_text("pipeline: {id: orders}")
    monkeypatch.setenv(SHADOW, "1")

    result = interlock("run", "--pipelines", "orders.yaml")

    assert result.exit_code == 2
    assert "a shadow changes nothing" in result.output
