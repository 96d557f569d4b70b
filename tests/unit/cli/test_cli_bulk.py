"""`interlock runs rerun`, `cancel` and `delete`: what is selected, asked, requested, and said about it."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import TODAY, interlock, records
from worker.core.run.state import Outcome, State
from worker.store.repos.bulk_operations import BulkAction, BulkOperation, BulkOperations
from worker.store.repos.deletions import Deletions
from worker.store.repos.requests import CancelRequest, Requests, RerunRequest
from worker.store.repos.runs import Runs
from worker.store.table import Tables

RERUN = ("runs", "rerun", "--reason", "network is back", "--as", "ann")
DAYS = ("2027-03-20", "2027-03-21", PERIOD)


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here)

    async def put(tables: Tables) -> None:
        config = await version_hash(tables)
        for number, day in enumerate(DAYS):
            run = a_stored_run(State.FAILED_FINAL, config, key=key_of(day), since=TODAY - timedelta(hours=number + 1))
            await Runs(tables).save(replace(run, outcome=Outcome.FAILED, reason="connection refused"))

    in_store(put)


def asked(day: str) -> RerunRequest | None:
    return in_store(lambda tables: Requests(tables).rerun_of(key_of(day)))


def test_failed_runs_are_rerun_by_a_filter() -> None:
    result = interlock(*RERUN, "--state", "failed", "--error", "Connection", "--yes")

    assert result.exit_code == 0, result.stderr
    assert "3 runs selected: 3 would be accepted, 0 rejected" in result.stdout
    assert "3 reruns requested, 0 rejected (bulk " in result.stdout
    assert "if it is interrupted: interlock runs rerun --resume " in result.stderr
    requests = [asked(day) for day in DAYS]
    assert [(each.reason, each.by, each.via) for each in requests if each] == [("network is back", "ann", "cli")] * 3


def test_a_dry_run_requests_nothing_and_lists_the_forecasts() -> None:
    result = interlock(*RERUN, "--state", "failed", "--since", "90m", "--dry-run", "--json")

    [forecast, end] = records(result.stdout)
    assert result.exit_code == 0
    assert (forecast["period"], forecast["prospect"]) == ("2027-03-20", "accepted")
    assert end == {"type": "end", "count": 1, "accepted": 1, "complete": True}
    assert asked("2027-03-20") is None


def test_keys_come_by_standard_input_as_words_or_records() -> None:
    record = json.dumps({"type": "run", "pipeline": "orders", "schedule": "stream", "period": "2027-03-21"})
    typed = f"orders stream 2027-03-20\n\n{record}\n" + json.dumps({"type": "end", "count": 1}) + "\n"

    result = interlock(*RERUN, "--yes", "--json", typed=typed)

    found = records(result.stdout)
    assert result.exit_code == 0, result.stderr
    assert [each["type"] for each in found] == ["bulk", "rerun", "rerun", "end"]
    assert [each["period"] for each in found[1:3]] == ["2027-03-20", "2027-03-21"]
    assert asked(PERIOD) is None


@pytest.mark.parametrize("typed", ["orders stream\n", "orders stream someday\n", '{"pipeline": \n', '{"a": 1}\n'])
def test_a_line_that_names_no_run_is_an_error_with_its_number(typed: str) -> None:
    result = interlock(*RERUN, "--yes", typed=f"orders stream {PERIOD}\n{typed}")

    assert result.exit_code == 2
    assert "line 2 of standard input" in result.stderr
    assert asked(PERIOD) is None


def test_without_a_terminal_consent_must_be_given_beforehand() -> None:
    result = interlock(*RERUN, "--state", "failed")

    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert asked(PERIOD) is None


def test_a_state_that_does_not_exist_is_rejected_before_anything_is_read() -> None:
    result = interlock(*RERUN, "--state", "broken", "--yes")

    assert result.exit_code == 2
    assert "'broken' is not a state of a run" in result.stderr


def test_runs_that_are_rejected_are_counted_by_reason() -> None:
    typed = f"orders stream {PERIOD}\nnothing stream {PERIOD}\nnothing stream 2027-03-21\n"

    result = interlock(*RERUN, "--yes", typed=typed)

    assert result.exit_code == 1
    assert "2 runs  rejected: there is no pipeline nothing in the store" in result.stdout
    assert "1 rerun requested, 2 rejected" in result.stdout


def test_an_interrupted_operation_is_continued_by_its_id() -> None:
    async def put(tables: Tables) -> None:
        operation = BulkOperation(
            id="abc",
            command="c",
            action=BulkAction.RERUN,
            reason="earlier",
            by="ann",
            via="cli",
            runs=[key_of(day) for day in DAYS],
            created_at=TODAY,
        )
        await BulkOperations(tables).start(operation)

    in_store(put)

    wrong = interlock("runs", "cancel", "--reason", "x", "--resume", "abc", "--yes")
    result = interlock("runs", "rerun", "--resume", "abc", "--yes")  # as the command itself says
    silent = interlock("runs", "rerun", "--state", "failed", "--yes")
    again = interlock(*RERUN, "--resume", "abc", "--yes")

    assert wrong.exit_code == 2
    assert "there is no bulk cancel 'abc'" in wrong.stderr
    assert "3 reruns requested" in result.stdout
    assert "3 reruns requested" in again.stdout
    assert (silent.exit_code, "a reason has 1 to 500 characters" in silent.stderr) == (2, True)
    assert [each.reason for day in DAYS if (each := asked(day))] == ["earlier"] * 3


def test_active_runs_are_cancelled_by_a_filter() -> None:
    async def put(tables: Tables) -> None:
        run = a_stored_run(State.EVALUATING, await version_hash(tables), key=key_of("2027-03-19"))
        await Runs(tables).save(run)

    in_store(put)

    result = interlock("runs", "cancel", "--pipeline", "ord*", "--reason", "no data", "--yes", "--json")

    [_, cancelled, end] = records(result.stdout)
    request: CancelRequest | None = in_store(lambda tables: Requests(tables).cancel_of(key_of("2027-03-19")))
    assert result.exit_code == 0, result.stderr
    assert (cancelled["period"], cancelled["result"]) == ("2027-03-19", "requested")
    assert end["requested"] == 1
    assert request is not None
    assert request.reason == "no data"


# --- delete -----------------------------------------------------------------------------------------------------------


def test_an_ended_run_is_deleted_with_who_and_why() -> None:
    result = interlock("runs", "delete", "orders", PERIOD, "--reason", "test data", "--as", "ann", "--yes")

    deletion = in_store(lambda tables: Deletions(tables).load(key_of()))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"Deleted orders/{PERIOD} (1 row).")
    assert deletion is not None
    assert (deletion.by, deletion.reason) == ("ann", "test data")


def test_a_run_that_does_not_exist_cannot_be_deleted() -> None:
    result = interlock("runs", "delete", "orders", "2027-01-01", "--reason", "x", "--yes")

    assert result.exit_code == 2
    assert "there is no run orders/2027-01-01" in result.stderr


def test_a_dry_deletion_and_one_without_consent_delete_nothing() -> None:
    dry = interlock("runs", "delete", "orders", PERIOD, "--reason", "x", "--dry-run", "--json")
    silent = interlock("runs", "delete", "orders", PERIOD, "--reason", "x")

    assert records(dry.stdout)[0]["deleted"] is False
    assert silent.exit_code == 2
    assert in_store(lambda tables: Runs(tables).load(key_of())) is not None
