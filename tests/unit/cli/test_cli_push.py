"""`interlock pipelines push`: what it shows, asks and writes."""

import asyncio
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.builders.pushed_files import SOUND, URL, config_log, last_position, stored_text, write
from tests.support.clock.manual import ManualClock
from worker.cli.commands.push import PushRequest, refuse_oversized, run_push
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_session import StoreAccess
from worker.config.load import load_text
from worker.config.render import config_hash, to_json
from worker.core.errors import Rejected
from worker.core.model.pipeline import PipelineId
from worker.store.repos.config_log import ConfigChange
from worker.store.repos.pipelines import Pipelines
from worker.store.table import ROW_BYTES_MAX, Put, TableName, Tables


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    assert interlock("store", "init").exit_code == 0


def test_a_push_puts_version_configuration_and_log_entry_into_the_store() -> None:
    path = write("orders")

    result = interlock("pipelines", "push", path, "--yes")

    assert (result.exit_code, result.stdout) == (
        0,
        "new: orders\n1 pipeline: 1 new, 0 changed, 0 unchanged; 1 written\n",
    )
    pipeline = load_text(path.read_text()).pipeline
    assert pipeline is not None
    version = config_hash(pipeline)
    assert stored_text("orders") == to_json(pipeline)
    assert in_store(lambda tables: Pipelines(tables).version(PipelineId("orders"), version)) == to_json(pipeline)
    assert config_log() == [("orders", ConfigChange.CHANGED, version)]


def test_the_second_push_finds_nothing_to_do_and_writes_nothing() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    before = last_position()

    result = interlock("pipelines", "push", "files")

    assert (result.exit_code, result.stdout) == (0, "1 pipeline: 0 new, 0 changed, 1 unchanged; 0 written\n")
    assert last_position() == before


def test_a_change_is_shown_as_a_diff_of_the_canonical_file_and_only_it_is_written() -> None:
    write("orders")
    write("refunds")
    interlock("pipelines", "push", "files", "--yes")
    write("orders", SOUND.replace("0 6", "0 7"))
    kept = stored_text("refunds")

    result = interlock("pipelines", "push", "files", "--yes")

    shown = [line.strip() for line in result.stdout.splitlines()]
    assert shown[:3] == ["changed: orders", "--- stored/orders", "+++ pushed/orders"]
    assert "-  cron: 0 6 * * *" in shown
    assert "+  cron: 0 7 * * *" in shown
    assert shown[-1] == "2 pipelines: 0 new, 1 changed, 1 unchanged; 1 written"
    assert stored_text("refunds") == kept
    assert sorted(name for name, _, _ in config_log()) == ["orders", "orders", "refunds"]


def test_a_comment_or_another_spelling_is_no_change() -> None:
    write("orders")
    interlock("pipelines", "push", "files", "--yes")
    write("orders", "# explained at length\n" + SOUND.replace('"0 6 * * *"', "'0 6 * * *'"))

    assert "1 unchanged" in interlock("pipelines", "push", "files").stdout


def test_a_changed_calendar_is_a_change_of_the_pipelines_that_use_it() -> None:
    write("orders", SOUND.replace('"0 6 * * *"', '"0 6 * * *", exclude: {calendar: bank}'))
    calendar = Path("holidays") / "bank.yaml"
    calendar.parent.mkdir()
    calendar.write_text("name: bank\ndates: [2027-12-25]\n")
    interlock("pipelines", "push", "files", "--calendars", "holidays", "--yes")
    calendar.write_text("name: bank\ndates: [2027-12-25, 2027-12-26]\n")

    result = interlock("pipelines", "push", "files", "--calendars", "holidays", "--dry-run")

    assert "1 changed" in result.stdout
    assert "2027-12-26" in result.stdout


def test_one_bad_file_keeps_all_of_them_out_of_the_store() -> None:
    write("orders")
    write("refunds", SOUND.replace("cron:", "cronn:"))

    result = interlock("pipelines", "push", "files", "--yes")

    assert result.exit_code == 1
    assert "files/refunds.yaml:2:12 schedule.cronn:" in result.stdout
    assert "nothing was written" in result.stderr
    assert last_position() == 0


def test_problems_are_records_with_json() -> None:
    write("refunds", SOUND.replace("cron:", "cronn:"))

    result = interlock("pipelines", "push", "files", "--yes", "--json")

    assert result.exit_code == 1
    assert [record["type"] for record in records(result.stdout)] == ["problem", "summary"]


def test_a_directory_without_files_is_no_clean_push() -> None:
    Path("empty").mkdir()

    assert interlock("pipelines", "push", "empty", "--yes").exit_code == 1


def test_a_dry_run_shows_and_writes_nothing() -> None:
    write("orders")

    result = interlock("pipelines", "push", "files", "--dry-run")

    assert result.exit_code == 0
    assert result.stdout.endswith("1 new, 0 changed, 0 unchanged; nothing written: this was a dry run\n")
    assert last_position() == 0


def test_without_a_terminal_a_push_needs_yes() -> None:
    write("orders")

    result = interlock("pipelines", "push", "files", typed="y\n")

    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert last_position() == 0


@pytest.mark.parametrize(("answer", "written"), [("y", 1), ("YES", 1), ("", 0), ("n", 0), ("what?", 0)])
def test_on_a_terminal_a_push_asks_and_takes_only_yes_for_yes(answer: str, written: int) -> None:
    write("orders")
    out = io.StringIO()
    screen = Screen(out=Console(file=out), err=Console(file=io.StringIO()))
    sources = Sources(paths=[Path("files")], today=TODAY.date())
    request = PushRequest(sources=sources, consent=Consent(False, lambda _: answer))

    code = asyncio.run(run_push(screen, StoreAccess(url=URL, clock=ManualClock(TODAY)), request))

    assert code == 0
    assert f"{written} written" in out.getvalue()
    assert (stored_text("orders") is not None) == bool(written)


def test_a_closed_terminal_is_no_consent() -> None:
    def ask(_: str) -> str:
        raise EOFError

    assert not Consent(False, ask).obtain(Screen(err=Console(file=io.StringIO())), "Go on?")


def test_a_row_that_another_tool_deployed_is_compared_by_meaning_and_listed() -> None:
    path = write("orders")

    async def deploy_elsewhere(tables: Tables) -> None:
        row = {"PK": "PIPELINE#orders", "SK": "CONFIG", "config": path.read_text()}
        await tables.commit(Put(TableName.CONTROL, row))

    in_store(deploy_elsewhere)
    assert records(interlock("pipelines", "list", "--json").stdout) == []

    result = interlock("pipelines", "push", "files")

    assert "1 unchanged; 0 written" in result.stdout
    assert [record["id"] for record in records(interlock("pipelines", "list", "--json").stdout)] == ["orders"]


def test_a_stored_configuration_that_cannot_be_read_is_replaced() -> None:
    write("orders")
    in_store(lambda tables: Pipelines(tables).put(PipelineId("orders"), "job: ["))

    result = interlock("pipelines", "push", "files", "--yes")

    assert "-job: [" in result.stdout
    assert "1 changed, 0 unchanged; 1 written" in result.stdout


def test_a_pipeline_too_large_for_a_row_is_refused_before_anything_is_written() -> None:
    pipeline = load_text(SOUND).pipeline
    assert pipeline is not None
    refuse_oversized([pipeline])

    with pytest.raises(Rejected, match="nothing was written"):
        refuse_oversized([replace(pipeline, description="x" * ROW_BYTES_MAX)])


def test_a_push_tells_programs_what_it_did() -> None:
    write("orders")

    change, summary = records(interlock("pipelines", "push", "files", "--yes", "--json").stdout)

    assert (change["id"], change["status"], change["diff"]) == ("orders", "new", "")
    assert summary == {"type": "summary", "new": 1, "changed": 0, "unchanged": 0, "written": 1}


def test_warnings_of_the_files_are_counted() -> None:
    write("orders", SOUND + 'sla: {deadline: "05:00"}\n')

    result = interlock("pipelines", "push", "files", "--yes")

    assert result.exit_code == 0
    assert "1 warning: `interlock validate` shows them" in result.stderr
