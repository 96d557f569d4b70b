"""The generated reference pages say what the code says, and leave nothing out."""

import re
from pathlib import Path

import pytest

from tests.support.builders.command_line import loaded_commands
from tests.support.pages import command_reference, event_payloads, event_reference, metric_table, record_reference
from tests.support.pages.event_meanings import FIELDS, WHEN
from tests.support.pages.record_meanings import DOCUMENTS, RECORDS, undocumented
from worker.core.model.events import EventType

CLI = Path(__file__).parents[3] / "worker" / "cli"


def test_the_commands_are_those_of_the_program() -> None:
    page = command_reference.PAGE.read_text(encoding="utf-8")

    assert page == command_reference.with_fresh_commands(page), "run `python -m tests.support.pages.command_reference`"


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = command_reference.PAGE.read_text(encoding="utf-8")

    for name, command in loaded_commands().items():
        for member, leaf in getattr(command, "commands", {"": command}).items():
            path = f"interlock {name} {member}".strip()
            section = page.partition(f"# `{path}`\n")[2].partition("\n#")[0]
            options = [option for param in leaf.params for option in param.opts if option.startswith("-")]
            assert section, path
            assert [option for option in options if option not in section] == [], path


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    page = metric_table.PAGE.read_text(encoding="utf-8")

    assert page == metric_table.with_fresh_table(page), "run `python -m tests.support.pages.metric_table`"


def test_the_tables_of_events_are_those_of_the_code() -> None:
    page = event_reference.PAGE.read_text(encoding="utf-8")

    assert page == event_reference.with_fresh_tables(page), "run `python -m tests.support.pages.event_reference`"


def test_every_event_type_and_every_field_of_a_payload_is_explained() -> None:
    explained = [event for events in WHEN.values() for event in events]
    emitted = event_payloads.payloads()

    assert sorted(explained) == sorted(EventType)
    assert set(FIELDS) == {field for fields in emitted.values() for field in fields}
    assert set(EventType) - set(emitted) == {EventType.DATA_DRIFT, EventType.BASELINE_CAPTURE_FAILED}


def test_the_fields_of_an_event_are_found_wherever_its_detail_is_built() -> None:
    """A sample of each way to build a detail: a literal, a variable, a helper, a parameter, a later assignment."""
    found = event_payloads.payloads()

    assert found["JOB_FAILED"] == {"attempt", "category", "willRetry"}
    assert found["DRY_RUN_RERUN_REJECTED"] == {"reason", "rerunCount", "budget"}
    assert found["SCHEDULE_MISSED"] == {"source", "cron", "expectedTime", "actionHint"}
    assert found["RERUN_REJECTED"] == {"reason", "actionHint"}
    assert found["DRY_RUN_SLA_PROJECTION"] >= {"triggeredAt", "marginSeconds", "deadline"}
    assert found["POST_RUN_DRIFT_INFLIGHT"] >= {"previousCount", "source"}


def test_the_tables_of_records_are_up_to_date() -> None:
    page = record_reference.PAGE.read_text(encoding="utf-8")

    assert page == record_reference.with_fresh_tables(page), "run `python -m tests.support.pages.record_reference`"


def test_every_type_of_record_that_a_command_can_print_is_described() -> None:
    literals = {
        found for path in sorted(CLI.rglob("*.py")) for found in re.findall(r'"type": "([a-z-]+)"', path.read_text())
    }

    assert literals - {record.type for record in RECORDS} == set()


def test_every_command_with_json_output_has_its_records_described() -> None:
    described = {command for record in RECORDS for command in record.commands} | DOCUMENTS
    leaves = {
        f"{name} {member}".strip(): leaf
        for name, command in loaded_commands().items()
        for member, leaf in getattr(command, "commands", {"": command}).items()
    }

    with_json = {path for path, leaf in leaves.items() if any("--json" in param.opts for param in leaf.params)}

    assert with_json == described


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"type": "init", "place": "x"}', "lacks `made`"),
        ('{"type": "init", "place": "x", "made": true, "more": 1}', "has `more`"),
        ('{"type": "initial"}', "of the type 'initial'"),
        ("made x", "printed no JSON"),
    ],
)
def test_the_check_sees_a_record_that_is_not_as_described(line: str, problem: str) -> None:
    [found] = [each for each in undocumented(["store", "init", "--json"], line) if problem in each]

    assert "interlock store init" in found
