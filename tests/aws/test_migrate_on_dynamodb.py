"""A look at tables exactly as the reference made them: no list of pipelines, no stream of events."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.aws.emulators import (
    assert_nothing_was_scanned,
    ministack,
    new_names,
    use_test_credentials,
)
from tests.support.aws.wire import WireProxy
from tests.support.builders.command_line import interlock, records
from worker.config.store_setting import STORE
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.scan import Size
from worker.store.table import TableName
from worker.store.url import TableNames

pytestmark = pytest.mark.xdist_group("aws")

ORDERS = {"pipeline": {"id": "orders"}, "schedule": {"trigger": {"key": "ready", "check": "exists"}}}
PADDING = "x" * 300_000  # four such sensors are more than one page of a whole table


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireProxy]:
    """Tables of the reference, behind a wire of their own: all others must never see a scan."""
    use_test_credentials()
    names = new_names()
    asyncio.run(_make(names))
    with WireProxy(ministack().port) as wire:
        tables = "&".join(f"{table}={name}" for table, name in names.items())
        monkeypatch.setenv(STORE, f"dynamodb://?{tables}&region=eu-west-1&endpoint={wire.url}")
        yield wire


async def _make(names: TableNames) -> None:
    keys = [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
    kinds = [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")]
    settings = ClientSettings(region="eu-west-1", endpoint=ministack().proxy.url, read_s=20.0)
    async with open_client(settings) as client:
        make: Any = client.create_table
        for table in TableName:
            await make(
                TableName=names[table], KeySchema=keys, AttributeDefinitions=kinds, BillingMode="PAY_PER_REQUEST"
            )
        for pipeline in ("orders", "refunds"):
            await _put(client, names, pipeline, "CONFIG", {"config": {"S": json.dumps(ORDERS)}})
        for number in range(4):
            await _put(client, names, "orders", f"SENSOR#big-{number}", {"data": {"M": {"text": {"S": PADDING}}}})


async def _put(client: Any, names: TableNames, pipeline: str, sk: str, attributes: dict[str, Any]) -> None:  # noqa: ANN401
    item = {"PK": {"S": f"PIPELINE#{pipeline}"}, "SK": {"S": sk}, **attributes}
    await client.put_item(TableName=names[TableName.CONTROL], Item=item)


def test_named_pipelines_are_looked_at_without_a_scan(wire: WireProxy) -> None:
    result = interlock("migrate", "check", "orders", "--json", clock=SystemClock())

    assert result.exit_code == 1, result.output
    assert {record.get("topic") for record in records(result.stdout)} >= {"config", "listed"}
    assert_nothing_was_scanned(wire)


def test_a_whole_table_is_read_to_its_end_only_on_request_and_the_cost_is_said(wire: WireProxy) -> None:
    result = interlock("migrate", "check", "--read-all", "--json", clock=SystemClock())

    assert {record["pipeline"] for record in records(result.stdout)[:-1]} == {"orders", "refunds"}
    [about_refunds] = [r for r in records(result.stdout) if r.get("pipeline") == "refunds" and r["weight"] == "refused"]
    assert "of pipeline orders, but stored as refunds" in about_refunds["what"]
    assert "read units" in result.stderr
    assert wire.operations["Scan"] >= 2


def test_reading_a_table_costs_by_its_size_and_is_rounded_up() -> None:
    assert Size(rows=3, bytes=8193).read_units == 2
    assert Size(rows=0, bytes=0).read_units == 0
