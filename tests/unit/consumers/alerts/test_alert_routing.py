"""The alerts file: which channel hears of what."""

from datetime import timedelta
from pathlib import Path

import pytest

from consumers.alerts.routing import nobody, one_channel, owners_of, read_routing, routing_of
from consumers.outbox.severities import Severity
from tests.support.clock.manual import ManualClock
from worker.config.versions import PipelineVersions
from worker.core.errors import ConfigError
from worker.core.model.keys import config_mark_sk, pipeline_pk
from worker.core.model.pipeline import PipelineId
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Put, TableName

FILE = """
channel: "#data"
alert: "#oncall"
success: "#quiet"
owners:
  payments:
    channel: "#payments"
    alert: "#payments-oncall"
  loners:
    warning: "#loners"
digestEvery: 1h
"""


@pytest.mark.parametrize(
    ("severity", "owner", "expected"),
    [
        (Severity.ALERT, "", "#oncall"),
        (Severity.WARNING, "", "#data"),
        (Severity.SUCCESS, "", "#quiet"),
        (Severity.NOTE, "nobody-we-know", "#data"),
        (Severity.ALERT, "payments", "#payments-oncall"),
        (Severity.SUCCESS, "payments", "#payments"),
        (Severity.WARNING, "loners", "#loners"),
        (Severity.ALERT, "loners", "#oncall"),
    ],
)
def test_the_owners_channels_come_first_then_the_severitys(severity: Severity, owner: str, expected: str) -> None:
    assert routing_of(FILE).channel(severity, owner) == expected


def test_successes_are_a_digest_unless_each_is_wanted() -> None:
    assert routing_of(FILE).digest_every == timedelta(hours=1)
    assert routing_of('channel: "#a"\ndigestEvery: 1d').digest_every == timedelta(days=1)
    assert routing_of('channel: "#a"').digest_every == timedelta(minutes=15)
    assert routing_of('channel: "#a"\nsuccesses: each').digest_every is None


def test_one_channel_takes_everything() -> None:
    assert {one_channel("#all").channel(severity, "x") for severity in Severity} == {"#all"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alert: '#a'", "channel: is required"),
        ("channel: '#a'\nchanel: '#b'", "did you mean `channel`?"),
        ("channel: '#a'\nsuccesses: daily", "successes"),
        ("channel: '#a'\ndigestEvery: 1s", "at least 1m"),
        ("channel: '#a'\nowners:\n  pay: '#pay'", "alerts.yaml:3:8"),
        ("channel: [", "alerts.yaml:2:1"),
        ("", "must be a mapping"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="the alerts file is wrong") as refusal:
        routing_of(text, "alerts.yaml")
    assert problem in str(refusal.value)


def test_a_file_that_is_not_there_says_who_named_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="INTERLOCK_ALERTS"):
        read_routing(tmp_path / "alerts.yaml")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yaml"
    path.write_text(FILE)

    assert read_routing(path) == routing_of(FILE)


async def test_a_pipelines_owner_is_what_its_configuration_says() -> None:
    tables = SqliteTables.in_memory(ManualClock())
    text = """
    pipeline: {id: orders, owner: payments}
    schedule: {trigger: {key: loaded}}
    validation: {rules: [{key: loaded, check: exists}]}
    job: {type: command, config: {command: "true"}}
    """
    await Pipelines(tables).put(PipelineId("orders"), text)
    owner_of = owners_of(PipelineVersions(tables))

    assert [await owner_of(name) for name in ("orders", "unknown", "")] == ["payments", "", ""]
    assert await nobody("orders") == ""


async def test_a_pipeline_that_cannot_be_read_has_no_owner_and_its_alerts_still_have_a_channel() -> None:
    tables = SqliteTables.in_memory(ManualClock())
    await Pipelines(tables).put(PipelineId("orders"), "pipeline: [")
    damaged = {"PK": pipeline_pk("orders"), "SK": config_mark_sk(), "data": "nonsense"}
    await tables.commit(Put(TableName.CONTROL, damaged))

    assert await owners_of(PipelineVersions(tables))("orders") == ""
