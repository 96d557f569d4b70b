"""`interlock migrate check|accept`: looking at what another system left, and taking it over."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import a_stored_run, in_store, key_of
from tests.support.builders.command_line import TODAY, interlock, records
from worker.config.store_setting import GROUP
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import State
from worker.core.time.timestamps import format_rfc3339
from worker.store.repos.config_log import ConfigLog
from worker.store.repos.deployments import Deployments
from worker.store.repos.installation import installed_at
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Put, Row, TableName, Tables
from worker.store.tail import Tail

CRON = json.dumps(
    {
        "pipeline": {"id": "nightly"},
        "schedule": {"cron": "0 3 * * *"},
        "job": {"type": "command", "config": {"command": "load"}},
    }
)
SIGNALLED = json.dumps(
    {
        "pipeline": {"id": "orders"},
        "schedule": {"trigger": {"key": "ready", "check": "exists"}},
        "job": {"type": "command", "config": {"command": "load"}},
    }
)
NIGHTLY, ORDERS = PipelineId("nightly"), PipelineId("orders")


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    """Rows as the reference left them: configurations in no list, and what its producers wrote."""
    assert interlock("store", "init").exit_code == 0

    async def leave(tables: Tables) -> None:
        for pipeline, text in (("nightly", CRON), ("orders", SIGNALLED)):
            row: Row = {"PK": f"PIPELINE#{pipeline}", "SK": "CONFIG", "config": text}
            await tables.commit(Put(TableName.CONTROL, row))
        await Sensors(tables).put(ORDERS, "ready", {"status": "done"})
        await Sensors(tables).put(ORDERS, "ready-debug", {"status": "done"})

    in_store(leave)


def test_a_check_tells_what_changes_and_writes_nothing() -> None:
    before = in_store(all_rows)

    result = interlock("migrate", "check", "orders", "nightly", "--json")

    assert result.exit_code == 1, result.output
    *findings, summary = records(result.stdout)
    assert {(finding["pipeline"], finding["topic"]) for finding in findings if finding["weight"] == "changes"} == {
        ("nightly", "cron"),
        ("nightly", "listed"),
        ("orders", "listed"),
        ("orders", "prefix-only"),
        ("orders", "undated-trigger"),
    }
    assert summary == {"type": "summary", "pipelines": 2, "understood": 2, "changes": 5, "refused": 0}
    assert in_store(all_rows) == before


def test_a_quiet_check_shows_only_what_a_person_must_read() -> None:
    result = interlock("migrate", "check", "orders", "--quiet")

    assert "understood  " not in result.stdout
    assert "`ready-debug` only begin with the trigger key `ready`" in result.stdout
    assert "1 pipeline: 1 understood, 3 change, 0 refused; nothing was written" in result.stdout


def test_pipelines_are_found_by_the_names_of_their_files(here: Path) -> None:
    (here / "old").mkdir()
    (here / "old" / "nightly.yaml").write_text("anything: at all")
    (here / "old" / "gone.yml").write_text("")

    result = interlock("migrate", "check", "--files", "old", "--json")

    found = {record["pipeline"]: record["weight"] for record in records(result.stdout)[:-1]}
    assert found["gone"] == "refused"
    assert "nightly" in found


def test_nothing_is_looked_at_unless_it_is_said_which() -> None:
    result = interlock("migrate", "check")

    assert result.exit_code == 2
    assert "--files DIR" in result.output


def test_a_file_is_not_read_as_a_whole_because_it_has_a_list() -> None:
    result = interlock("migrate", "check", "--read-all")

    assert result.exit_code == 2
    assert "use --listed" in result.output


def test_accepted_pipelines_are_listed_and_their_cron_may_start_runs_and_workers_are_told() -> None:
    result = interlock("migrate", "accept", "nightly")

    assert result.exit_code == 0, result.output
    assert "nightly: now listed, its cron may start runs from now on" in result.stdout
    deployed = in_store(lambda tables: Deployments(tables).accepted(NIGHTLY))
    assert deployed is not None
    assert deployed.since == TODAY
    assert in_store(listed) == ["nightly"]
    assert in_store(told) == ["nightly"]


def test_accepting_twice_changes_nothing_the_second_time() -> None:
    interlock("migrate", "accept", "nightly")

    assert "nightly: was accepted already" in interlock("migrate", "accept", "nightly").stdout


def test_cron_stays_silent_where_that_is_wanted() -> None:
    result = interlock("migrate", "accept", "nightly", "--keep-cron-silent")

    assert result.exit_code == 0, result.output
    assert in_store(listed) == ["nightly"]
    assert in_store(lambda tables: Deployments(tables).accepted(NIGHTLY)) is None


def test_a_dry_run_of_accept_writes_nothing() -> None:
    before = in_store(all_rows)

    result = interlock("migrate", "accept", "nightly", "orders", "--dry-run")

    assert "nightly: would be listed, its cron would be let start runs" in result.stdout
    assert in_store(all_rows) == before


def test_one_wrong_name_keeps_all_of_them_from_being_accepted() -> None:
    result = interlock("migrate", "accept", "nightly", "nigthly")

    assert result.exit_code == 2
    assert "there is no pipeline nigthly\n    nothing was changed" in result.output
    assert in_store(listed) == []


async def all_rows(tables: Tables) -> list[Row]:
    pages = [await tables.query(TableName.CONTROL, f"PIPELINE#{name}") for name in ("nightly", "orders")]
    return [row for page in pages for row in page.rows]


async def listed(tables: Tables) -> list[str]:
    return [stored.pipeline async for stored in Pipelines(tables).list()]


async def told(tables: Tables) -> list[str]:
    entries, _ = await ConfigLog(tables).read(Tail.starting(TODAY), TODAY)
    return [entry.pipeline for entry in entries]


@pytest.mark.parametrize(("number", "is_cut"), [(5_000, False), (5_001, True)])
def test_a_check_says_that_it_did_not_look_at_everything_only_if_that_is_so(number: int, is_cut: bool) -> None:
    async def leave(tables: Tables) -> None:
        names = [f"RERUN_REQUEST#stream#{date(2011, 1, 1) + timedelta(days=each)}" for each in range(number)]
        for begin in range(0, number, 100):
            rows = [{"PK": "PIPELINE#orders", "SK": name} for name in names[begin : begin + 100]]
            await tables.commit(*(Put(TableName.CONTROL, row) for row in rows))

    in_store(leave)

    found = records(interlock("migrate", "check", "orders", "--json").stdout)

    assert ("not-all-read" in {each.get("topic") for each in found}) == is_cut


def test_a_check_tells_requests_that_were_answered_from_old_ones() -> None:
    async def answer(tables: Tables) -> None:
        await installed_at(tables, GROUP, TODAY - timedelta(days=2))
        key, asked = key_of(), format_rfc3339(TODAY)
        request = RerunRequest(reason="again", requested_at=asked, id="r1")
        await Requests(tables).ask_rerun(key, request, None)
        await Runs(tables).save(replace(a_stored_run(State.COMPLETED, "c"), handled=(request.identity,)))

    in_store(answer)

    [finding] = [
        each
        for each in records(interlock("migrate", "check", "orders", "--json").stdout)
        if each.get("topic") == "rerun-requests"
    ]

    assert finding["what"] == "1 rerun request is answered, and changes nothing any more"
