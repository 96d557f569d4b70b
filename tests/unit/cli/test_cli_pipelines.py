"""`interlock pipelines`: what list, show and remove say."""

import asyncio
import io
import json
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.builders.pushed_files import URL, config_log, stored_text, write
from tests.support.clock.manual import ManualClock
from tests.support.fakes.mortal_tables import MortalTables
from worker.cli.commands.pipelines import run_remove
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import StoreAccess
from worker.config.deploy import withdraw
from worker.core.model import keys
from worker.core.model.ids import ScheduleId
from worker.core.model.pipeline import PipelineId
from worker.store.repos.config_log import ConfigChange
from worker.store.repos.deployments import Deployments
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Key, Put, TableName, Tables


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    assert interlock("store", "init").exit_code == 0


# --- list and show ----------------------------------------------------------------------------------------------------


def test_the_list_shows_version_job_schedules_and_owner() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    [record] = records(interlock("pipelines", "list", "--json").stdout)

    result = interlock("pipelines", "list")

    version = str(record.pop("configHash"))
    assert record == {
        "type": "pipeline",
        "id": "orders",
        "job": "command",
        "schedules": ["cron"],
        "owner": "data-team",
        "dryRun": False,
        "paused": None,
        "pausedUntil": None,
    }
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["pipeline", "version", "job", "schedules", "owner"],
        ["orders", version[:12], "command", "cron", "data-team"],
        ["1", "pipeline"],
    ]


def test_the_list_says_which_pipelines_are_paused_and_which_are_in_dry_run() -> None:
    rehearsed = (
        "pipeline: {id: rehearsed}\ndryRun: true\nschedule: {trigger: {key: file, check: exists}}\n"
        "job: {type: command, config: {command: load}}\n"
    )
    write("orders")
    write("rehearsed", rehearsed)
    write("over")
    interlock("pipelines", "push", "files", "--yes")
    interlock("pause", "orders", "--reason", "database upgrade", "--until", "2h")
    interlock("pause", "over", "--reason", "short", "--until", "1m")
    later = ManualClock(TODAY + timedelta(minutes=2))

    lines = interlock("pipelines", "list", clock=later).stdout.splitlines()
    listed = records(interlock("pipelines", "list", "--json", clock=later).stdout)

    assert [line.rpartition("  ")[2] for line in lines[1:-1]] == [
        "paused until 2027-03-22T14:00:00Z: database upgrade",
        "data-team",
        "in dry run",
    ]
    assert [(each["dryRun"], each["paused"], each["pausedUntil"]) for each in listed] == [
        (False, "database upgrade", "2027-03-22T14:00:00Z"),
        (False, None, None),
        (True, None, None),
    ]


def test_a_pause_that_cannot_be_read_hides_nothing() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    damaged = {"PK": "PIPELINE#orders", "SK": "PAUSE", "reason": "upgrade", "untilMillis": "soon"}
    in_store(lambda tables: tables.commit(Put(TableName.CONTROL, damaged)))

    result = interlock("pipelines", "list")

    assert result.exit_code == 0
    assert "paused: its row cannot be read" in result.stdout


def test_one_row_that_cannot_be_read_does_not_hide_the_others() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    in_store(lambda tables: Pipelines(tables).put(PipelineId("broken"), "job: ["))

    result = interlock("pipelines", "list")

    assert result.exit_code == 1
    assert "broken" in result.stdout
    assert "orders" in result.stdout
    assert "2 pipelines, 1 cannot be read" in result.stdout
    [broken, _] = records(interlock("pipelines", "list", "--json").stdout)
    assert broken["errors"]


@pytest.mark.parametrize("form", ["--yaml", "--json"])
def test_what_show_prints_can_be_pushed_again_without_a_change(form: str) -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")

    shown = interlock("pipelines", "show", "orders", form)

    assert shown.exit_code == 0
    write("orders", shown.stdout)
    assert "1 unchanged" in interlock("pipelines", "push", "files").stdout


def test_show_names_the_version_by_default_and_gives_programs_json() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    [record] = records(interlock("pipelines", "list", "--json").stdout)

    assert interlock("pipelines", "show", "orders").stdout.startswith(f"# version {record['configHash']}\npipeline:")
    assert json.loads(interlock("pipelines", "show", "orders", "--json").stdout)["pipeline"]["id"] == "orders"


def test_show_of_a_configuration_that_cannot_be_read_prints_it_and_says_why() -> None:
    in_store(lambda tables: Pipelines(tables).put(PipelineId("broken"), "job: ["))

    result = interlock("pipelines", "show", "broken")

    assert (result.exit_code, result.stdout) == (1, "job: [\n")
    assert "stored/broken:2:1 " in result.stderr


@pytest.mark.parametrize("command", [["show"], ["remove", "--yes"]])
def test_an_unknown_pipeline_exits_with_2_and_a_suggestion(command: list[str]) -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")

    result = interlock("pipelines", *command, "ordres")

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: there is no pipeline ordres in the store",
        "    did you mean `orders`?",
    ]


# --- remove -----------------------------------------------------------------------------------------------------------


def test_remove_takes_the_configuration_out_tells_the_workers_and_keeps_the_rest() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    interlock("sensor", "put", "orders", "export", "rows=1")
    [(_, _, version)] = config_log()
    assert version is not None

    result = interlock("pipelines", "remove", "orders", "--yes")

    assert result.exit_code == 0
    assert result.stdout == "removed orders; its runs, events, sensors and earlier versions stay\n"
    assert records(interlock("pipelines", "list", "--json").stdout) == []
    assert ("orders", ConfigChange.REMOVED, None) in config_log()
    assert in_store(lambda tables: Pipelines(tables).version(PipelineId("orders"), version)) is not None
    assert in_store(lambda tables: tables.get(TableName.CONTROL, Key("PIPELINE#orders", "SENSOR#export"))) is not None


def test_a_removal_interrupted_at_any_write_and_repeated_leaves_nothing_half_done() -> None:
    write("orders")
    struck = False
    for point in range(5):
        interlock("pipelines", "push", "files", "--yes")
        schedule_mark = Key("PIPELINE#orders", keys.schedule_mark_sk(ScheduleId("cron")))
        row = {"PK": schedule_mark.pk, "SK": schedule_mark.sk, "version": 1}
        in_store(lambda tables, row=row: tables.commit(Put(TableName.CONTROL, row)))
        logged = len(config_log())

        struck = in_store(lambda tables, point=point: _withdraw_until(tables, point))
        result = interlock("pipelines", "remove", "orders", "--yes")

        assert result.exit_code == (0 if struck else 2)
        assert stored_text("orders") is None
        assert in_store(lambda tables: Deployments(tables).accepted(PipelineId("orders"))) is None
        assert in_store(lambda tables, key=schedule_mark: tables.get(TableName.CONTROL, key)) is None
        assert config_log()[logged:]
        assert interlock("pipelines", "remove", "orders", "--yes").exit_code == 2
    assert not struck


async def _withdraw_until(tables: Tables, point: int) -> bool:
    """Remove the pipeline as a process that dies at a write; return whether there was such a write."""
    mortal = MortalTables(tables, point, is_applied=False)
    clock = ManualClock(TODAY)
    removal = asyncio.create_task(withdraw(mortal, PipelineId("orders"), clock), name="removal")
    death = asyncio.create_task(mortal.died.wait(), name="death")
    await asyncio.wait([removal, death], return_when=asyncio.FIRST_COMPLETED)
    for task in (removal, death):
        task.cancel()
    return mortal.died.is_set()


def test_without_a_terminal_a_removal_needs_yes() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")

    result = interlock("pipelines", "remove", "orders")

    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert stored_text("orders") is not None


def test_on_a_terminal_a_removal_can_be_declined() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    access, consent = StoreAccess(url=URL, clock=ManualClock(TODAY)), Consent(False, lambda _: "n")
    screen = Screen(out=Console(file=io.StringIO()), err=Console(file=io.StringIO()))

    code = asyncio.run(run_remove(screen, access, PipelineId("orders"), consent=consent, as_json=False))

    assert code == 0
    assert stored_text("orders") is not None
