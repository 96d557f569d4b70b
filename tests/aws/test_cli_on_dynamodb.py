"""The command line on DynamoDB, from nothing to a removed pipeline."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.aws.emulators import assert_nothing_was_scanned, ministack, use_test_credentials
from tests.support.builders.command_line import interlock, records
from worker.config.store_setting import STORE
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.clock import SystemClock

pytestmark = pytest.mark.xdist_group("aws")

PIPELINE = """\
pipeline: {id: orders, owner: data-team}
schedule: {cron: "0 6 * * *"}
job: {type: command, config: {command: load}}
"""


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Names of tables that are not there yet, in the store that the environment names."""
    use_test_credentials()
    prefix, server = f"t{secrets.token_hex(6)}", ministack()
    monkeypatch.setenv(STORE, f"dynamodb://{prefix}?region=eu-west-1&endpoint={server.proxy.url}")
    yield prefix
    assert_nothing_was_scanned(server.proxy)


def run(*arguments: object) -> Result:
    """Run a command in real time: an emulator has no other."""
    return interlock(*arguments, clock=SystemClock())


def disable_expiry(table: str) -> None:
    async def disable() -> None:
        settings = ClientSettings(region="eu-west-1", endpoint=ministack().proxy.url)
        async with open_client(settings) as client:
            await client.update_time_to_live(
                TableName=table, TimeToLiveSpecification={"Enabled": False, "AttributeName": "ttl"}
            )

    asyncio.run(disable())


def test_the_command_line_goes_all_the_way_on_dynamodb(prefix: str, tmp_path: Path) -> None:
    files = tmp_path / "orders.yaml"
    files.write_text(PIPELINE)

    missing = run("store", "check")
    assert missing.exit_code == 1
    assert missing.stdout.count("the table does not exist; create it with `interlock store init") == 4
    assert run("pipelines", "list").exit_code == 2

    assert run("store", "init").stdout.startswith(f"made DynamoDB tables {prefix}-control, ")
    assert run("store", "init").stdout.startswith("nothing to do")
    sound = run("store", "check", "--json")
    assert sound.exit_code == 0
    assert len(records(sound.stdout)) == 8, "each of four tables is judged by its shape and by its expiry"
    assert "have no version to migrate" in run("store", "migrate").stdout

    assert run("pipelines", "push", files, "--yes").stdout.endswith("1 new, 0 changed, 0 unchanged; 1 written\n")
    assert run("pipelines", "push", files).stdout.endswith("0 new, 0 changed, 1 unchanged; 0 written\n")
    files.write_text(PIPELINE.replace("0 6", "0 7"))
    assert "+  cron: 0 7 * * *" in run("pipelines", "push", files, "--yes").stdout
    assert [record["id"] for record in records(run("pipelines", "list", "--json").stdout)] == ["orders"]
    assert "cron: 0 7 * * *" in run("pipelines", "show", "orders").stdout

    put = run("sensor", "put", "orders", "export", "rows=1200", "share=0.1", "--period", "2026-03-03")
    assert (put.exit_code, put.stderr) == (0, "")
    assert run("sensor", "get", "orders", "export", "--period", "2026-03-03").stdout == put.stdout
    assert run("sensor", "list", "orders").stdout == put.stdout

    figures = {record["name"]: record for record in records(run("store", "stats", "--json").stdout)}
    assert figures["control rows"]["note"] == "as DynamoDB last counted, some hours ago at most"

    assert run("pipelines", "remove", "orders", "--yes").exit_code == 0
    assert records(run("pipelines", "list", "--json").stdout) == []


def test_check_finds_expiry_that_was_disabled_and_init_enables_it_again(prefix: str) -> None:
    run("store", "init")
    disable_expiry(f"{prefix}-events")

    result = run("store", "check")

    assert result.exit_code == 1
    assert f"{prefix}-events" in result.stdout
    assert "expired rows are never deleted" in result.stdout
    assert run("store", "init").exit_code == 0
    assert run("store", "check").exit_code == 0


@pytest.mark.usefixtures("prefix")
def test_tables_that_may_cost_money_are_made_only_if_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # This address leads to the same emulator, and is none of those we take for this machine.
    endpoint = ministack().proxy.url.replace("127.0.0.1", "0.0.0.0")
    monkeypatch.setenv(STORE, f"dynamodb://t{secrets.token_hex(6)}?region=eu-west-1&endpoint={endpoint}")

    refused = run("store", "init")

    assert refused.exit_code == 2
    assert "add --create-tables" in refused.stderr
    assert run("store", "check").stdout.count("the table does not exist") == 4
    assert run("store", "init", "--create-tables").exit_code == 0
    assert run("store", "check").exit_code == 0
