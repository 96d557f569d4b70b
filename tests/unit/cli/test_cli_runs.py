"""`interlock runs`: which runs are found, how a cut list says so, and what one run shows."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import ORDERS, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import TODAY, interlock, records
from worker.core.model.events import Event
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.values import Json
from worker.core.run.state import EarlierAttempt, FailureCategory, Outcome, Run, State
from worker.store.repos.events import event_write
from worker.store.repos.run_data import inputs_write, outputs_write
from worker.store.repos.runs import Runs
from worker.store.table import Tables

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, ORDERS)


def put_runs(*runs: Run) -> None:
    async def put(tables: Tables) -> None:
        config = await version_hash(tables)
        for run in runs:
            await Runs(tables).save(replace(run, config_hash=config))

    in_store(put)


def a_run(state: State, period: str = "2027-03-22", **changes: object) -> Run:
    return replace(a_stored_run(state, "", key=key_of(period)), since=TODAY - HOUR, **changes)


def failed(period: str, ago: timedelta = HOUR, **changes: object) -> Run:
    run = a_run(State.FAILED_FINAL, period, outcome=Outcome.FAILED, reason="Timeout: no answer")
    return replace(run, since=TODAY - ago, **changes)


def listed(*arguments: object) -> list[dict[str, Json]]:
    result = interlock("runs", "list", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [dict(record) for record in records(result.stdout)]


def test_a_list_ends_with_a_record_that_says_it_is_complete() -> None:
    put_runs(failed("2027-03-20"), a_run(State.POLLING, "2027-03-21"))

    *runs, end = listed("--state", "failed", "--since", "7d")

    assert [(run["period"], run["status"], run["state"]) for run in runs] == [("2027-03-20", "failed", "FAILED_FINAL")]
    assert end == {"type": "end", "count": 1, "complete": True, "next": None}


def test_a_cut_list_says_so_and_continues_from_its_cursor() -> None:
    put_runs(*(failed(f"2027-03-{day}", day * HOUR) for day in range(10, 15)))

    *first, cut = listed("--state", "failed", "--limit", 2)
    *rest, end = listed("--state", "failed", "--after", cut["next"])
    shown = interlock("runs", "list", "--state", "failed", "--limit", 2)

    assert (cut["count"], cut["complete"]) == (2, False)
    assert [run["period"] for run in (*first, *rest)] == [f"2027-03-{day}" for day in range(10, 15)]
    assert end["complete"] is True
    assert "2 runs" in shown.stdout
    assert "\norders/2027-03-10  failed" in shown.stdout  # as `status` names it: the pipeline has one schedule
    assert "--after " in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--state", "broken"), "is not a state of a run"),
        (("--outcome", "broken"), "is not an outcome of a run"),
        (("--since", "yesterday"), "is not a time"),
        (("--since", "500d"), "choose a later since"),
        (("--deadline", "late"), "is not a verdict"),
        (("--after", "bm9uc2Vuc2U"), "is no cursor of this list"),
    ],
)
def test_a_filter_that_cannot_be_read_is_a_wrong_command(arguments: tuple[str, ...], complaint: str) -> None:
    result = interlock("runs", "list", *arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_cursor_of_another_filter_is_rejected() -> None:
    put_runs(*(failed(f"2027-03-{day}") for day in range(10, 15)))
    cursor = listed("--state", "failed", "--limit", 1)[-1]["next"]

    result = interlock("runs", "list", "--state", "completed", "--after", cursor)

    assert result.exit_code == 2
    assert "is no cursor of this list" in result.stderr


def test_one_run_is_shown_with_attempts_inputs_outputs_and_events() -> None:
    earlier = EarlierAttempt(
        number=1,
        job_type="command",
        job="jr_1",
        started_at=TODAY - 3 * HOUR,
        ended_at=TODAY - 2 * HOUR,
        outcome="failed",
        category=FailureCategory.TRANSIENT,
        reason="lost host",
    )
    run = replace(failed("2027-03-20"), attempt=2, attempts=(earlier,), started_at=TODAY - 2 * HOUR, origin="sensor")
    put_runs(run)

    async def put(tables: Tables) -> None:
        ready, big = JobInput(content_hash="h1", data={"rows": 1200}), JobInput(content_hash="h2", size=9000)
        outputs = JobOutputs(attempt=2, outputs={"exitCode": 3})
        event = Event(
            id="e1",
            type="JOB_FAILED",
            at=TODAY - HOUR,
            pipeline="orders",
            schedule="stream",
            period="2027-03-20",
            message="orders/stream/2027-03-20: it failed",
        )
        other = replace(event, id="e2", period="2027-03-19")
        await tables.commit(inputs_write(run.key, JobInputs(attempt=2, inputs={"ready": ready, "big": big}), TODAY))
        await tables.commit(outputs_write(run.key, outputs, TODAY))
        await tables.commit(event_write(event), event_write(other))

    in_store(put)

    shown, event, end = records(interlock("runs", "show", "orders", "2027-03-20", "--json").stdout)
    page = interlock("runs", "show", "orders", "2027-03-20")

    assert shown["inputs"] == {
        "ready": {"hash": "h1", "data": {"rows": 1200}, "size": None},
        "big": {"hash": "h2", "data": None, "size": 9000},
    }
    assert shown["outputs"] == {"exitCode": 3}
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["failed", "failed"]
    assert shown["attempts"][0]["job"] == {"type": "command", "id": "jr_1", "url": None}
    assert shown["duration"] == "1h"
    assert (event["type"], event["id"], end["count"]) == ("event", "e1", 2)
    for text in ("lost host", '"rows": 1200', "exitCode", "JOB_FAILED", "Timeout: no answer"):
        assert text in page.stdout


def test_a_run_that_does_not_exist_is_said_to_be_missing() -> None:
    result = interlock("runs", "show", "orders", "2027-03-20")

    assert result.exit_code == 2
    assert "there is no run orders/2027-03-20" in result.stderr


def test_statistics_count_by_group_and_in_total() -> None:
    done = a_run(State.COMPLETED, "2027-03-18", outcome=Outcome.SUCCEEDED, started_at=TODAY - 2 * HOUR)
    put_runs(failed("2027-03-20"), failed("2027-03-21", 30 * HOUR), done)

    *groups, total, end = records(interlock("runs", "stats", "--since", "7d", "--by", "day,outcome", "--json").stdout)
    page = interlock("runs", "stats", "--since", "7d", "--by", "outcome")

    assert [(each["group"], each["runs"]) for each in groups] == [
        ({"day": "2027-03-21", "outcome": "failed"}, 1),
        ({"day": "2027-03-22", "outcome": "failed"}, 1),
        ({"day": "2027-03-22", "outcome": "succeeded"}, 1),
    ]
    assert (total["runs"], total["successRate"], end["complete"]) == (3, 0.3333, True)
    assert "3 runs ended from 2027-03-15T12:00:00Z" in page.stdout
    assert "33.3%" in page.stdout


def test_an_unknown_group_is_a_wrong_command() -> None:
    result = interlock("runs", "stats", "--by", "colour")

    assert result.exit_code == 2
    assert "is no dimension of statistics" in result.stderr


def test_inputs_are_printed_one_run_a_line() -> None:
    run = failed("2027-03-20")
    put_runs(run, failed("2027-03-19", 2 * HOUR))
    inputs = JobInputs(attempt=1, inputs={"ready": JobInput(content_hash="h1", data={"rows": 1})})
    in_store(lambda tables: tables.commit(inputs_write(run.key, inputs, TODAY)))

    first, second, end = records(interlock("runs", "inputs", "--state", "failed").stdout)

    assert (first["type"], first["period"], first["attempt"]) == ("inputs", "2027-03-20", 1)
    assert first["inputs"]["ready"]["data"] == {"rows": 1}
    assert (second["inputs"], end["count"]) == ({}, 2)


def test_a_run_that_ended_while_the_clock_was_ahead_is_found_by_a_later_until_and_by_its_name() -> None:
    put_runs(failed("2027-03-20", ago=-timedelta(days=10)))

    assert [record["type"] for record in listed()] == ["end"]
    assert [record.get("period") for record in listed("--until", "2027-05-01")] == ["2027-03-20", None]
    for command in (
        ("status", "orders"),
        ("runs", "show", "orders", "2027-03-20"),
        ("history", "orders", "2027-03-20"),
    ):
        assert "2027-03-20" in interlock(*command).stdout
