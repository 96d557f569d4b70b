"""`interlock trigger`: what is asked, and what is said about it."""

import getpass
import json
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import ORDERS, PERIOD, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import interlock, records
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Pause, State
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests, TriggerRequest
from worker.store.repos.runs import Runs
from worker.store.table import Tables

HOURLY = """\
pipeline: {id: clicks}
schedule: {cron: "5 * * * *"}
job: {type: command, config: {command: load}}
"""


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, ORDERS, HOURLY)


def requested() -> TriggerRequest | None:
    async def read(tables: Tables) -> TriggerRequest | None:
        return await Requests(tables).trigger_of(key_of())

    return in_store(read)


def put_run(state: State) -> None:
    async def put(tables: Tables) -> None:
        await Runs(tables).save(a_stored_run(state, await version_hash(tables)))

    in_store(put)


def test_a_run_is_requested_by_a_row_that_says_who_and_why() -> None:
    result = interlock("trigger", "orders", PERIOD, "--reason", "came by mail", "--as", " mia ")

    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        f'Trigger requested for orders/{PERIOD} ("came by mail"); the run starts when its rules pass.\n'
    )
    assert "No worker is running on this store" in result.stderr
    request = requested()
    assert request is not None
    assert (request.reason, request.by, request.requested_at) == ("came by mail", "mia", "2027-03-22T12:00:00Z")


def test_without_a_name_it_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "noor")

    [found] = records(interlock("trigger", "orders", PERIOD, "--reason", "by mail", "--json").stdout)

    assert found == {
        "type": "trigger",
        "pipeline": "orders",
        "schedule": key_of().schedule,
        "period": PERIOD,
        "asked": True,
        "prospect": "accepted",
        "sentence": "the run starts when its rules pass",
        "remedy": None,
        "reason": "by mail",
        "requestedBy": "noor",
    }


def test_a_user_without_a_name_must_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise OSError("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)

    result = interlock("trigger", "orders", PERIOD, "--reason", "by mail")

    assert (result.exit_code, requested()) == (2, None)
    assert "say who you are with --as" in result.stderr


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "two\nlines"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    result = interlock("trigger", "orders", PERIOD, "--reason", "by mail", "--as", name)

    assert (result.exit_code, requested()) == (2, None)
    assert "1 to 100 characters on one line" in result.stderr


@pytest.mark.parametrize("state", [State.COMPLETED, State.POLLING])
def test_a_run_that_exists_is_pointed_to_rerun(state: State) -> None:
    put_run(state)

    result = interlock("trigger", "orders", PERIOD, "--reason", "by mail")

    assert (result.exit_code, requested()) == (1, None)
    assert result.stdout.startswith("Trigger rejected: the run exists and is ")
    assert f"`interlock rerun orders {PERIOD}" in result.stdout


def test_a_dry_run_writes_nothing() -> None:
    result = interlock("trigger", "orders", PERIOD, "--reason", "by mail", "--dry-run")

    assert (result.exit_code, requested()) == (0, None)
    assert "would be accepted" in result.stdout


def test_a_second_request_is_not_written_while_the_first_waits() -> None:
    interlock("trigger", "orders", PERIOD, "--reason", "by mail", "--as", "mia")

    result = interlock("trigger", "orders", PERIOD, "--reason", "again", "--as", "noor")

    assert result.exit_code == 1
    assert result.stdout.startswith('Nothing was requested: mia requested it at 2027-03-22T12:00:00Z ("by mail")')
    request = requested()
    assert request is not None
    assert request.by == "mia"


def test_a_pause_is_said_to_hold_it() -> None:
    async def pause(tables: Tables) -> None:
        await Pauses(tables).put(PipelineId("orders"), Pause("upgrade"))

    in_store(pause)

    result = interlock("trigger", "orders", PERIOD, "--reason", "by mail")

    assert result.exit_code == 0
    assert "the pipeline is paused (upgrade), so the request waits until the pause ends" in result.stdout


def test_a_period_of_another_grain_is_warned_of() -> None:
    result = interlock("trigger", "clicks", "2027-03-22", "--reason", "by mail", "--dry-run")

    assert result.exit_code == 0
    assert "names a day, and the schedule expects an hour; name a period like 2026-03-03T07" in result.stderr


def test_a_period_too_far_ahead_is_rejected_with_a_remedy() -> None:
    result = interlock("trigger", "orders", "2031-01-01", "--reason", "by mail", "--json")

    [found] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, found["prospect"], found["asked"]) == (1, "refused", False)
    assert "maxAhead" in found["remedy"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders", PERIOD], "--reason"),
        (["nothing", PERIOD, "--reason", "x"], "there is no pipeline nothing"),
        (["orders", "soon", "--reason", "x"], "is not a period"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments: list[str], said: str) -> None:
    result = interlock("trigger", *arguments)

    assert result.exit_code == 2
    assert said in result.stderr
