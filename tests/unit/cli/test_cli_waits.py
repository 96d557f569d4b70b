"""What `plan`, `explain` and `status` say of a run that waits for other pipelines."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import TODAY, interlock
from tests.support.clock.manual import ManualClock
from tests.support.worlds.dependencies import after, root
from worker.core.run.state import Outcome, State
from worker.store.repos.runs import Runs
from worker.store.table import Tables

DUE = "sla: {deadline: '09:00', dayOffset: 0}\n"
HOURLY = root("hourly", "grain: hour")
RATES = root("rates", "exclude: {weekends: true}")
DAILY = after("daily", ["hourly", "{pipeline: rates, periods: latest, within: 3d}"], "grain: day") + DUE
BELOW = after("below", ["rates"]) + DUE
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def files(here: Path) -> Path:
    folder = here / "files"
    folder.mkdir()
    for name, text in {"hourly": HOURLY, "rates": RATES, "daily": DAILY, "below": BELOW}.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def store(here: Path) -> None:
    a_store(here, HOURLY, RATES, DAILY, BELOW)


def put_runs(**states: State) -> None:
    """Each name is a pipeline and, for an hourly one, the hour: `hourly_07`."""

    async def put(tables: Tables) -> None:
        for name, state in states.items():
            pipeline, _, hour = name.partition("_")
            key = key_of(f"{PERIOD}T{hour}" if hour else PERIOD, pipeline)
            run = a_stored_run(state, await version_hash(tables, pipeline), key=key)
            outcome = {State.COMPLETED: Outcome.SUCCEEDED, State.FAILED_FINAL: Outcome.FAILED}.get(state)
            await Runs(tables).save(replace(run, outcome=outcome))

    in_store(put)


def planned(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in interlock("plan", *arguments, "--json").stdout.splitlines()][:-1]


def line_of(pipeline: str, shown: str) -> str:
    return next(line for line in shown.splitlines() if f"  {pipeline}/stream  " in line)


def test_a_plan_names_the_upstream_periods_that_a_run_waits_for(files: Path) -> None:
    shown = interlock("plan", files, "--days", 6).stdout
    [first, *_] = planned(files, "--days", 1, "--pipeline", "daily")

    assert line_of("daily", shown) == (
        "  on upstreams  daily/stream  2027-03-22  due 09:00 UTC; "
        "after hourly 2027-03-22T00 to 2027-03-22T23 (24 hours); "
        "after the newest rates up to 2027-03-22, at most 3d earlier"
    )
    assert line_of("below", shown).endswith("2027-03-22  due 09:00 UTC; after rates 2027-03-22")
    assert "2027-03-27  due 09:00 UTC; not after rates: Saturday; weekends are excluded" in shown
    assert [(each["pipeline"], each["periods"], each["runs"], each["state"]) for each in first["waitsFor"]] == [
        ("hourly", "all", 24, None),
        ("rates", "latest", 1, None),
    ]


def test_a_plan_of_one_file_says_which_upstreams_it_does_not_know(files: Path) -> None:
    shown = interlock("plan", files / "below.yaml", "--days", 1).stdout

    assert line_of("below", shown).endswith("due 09:00 UTC; after rates (not among these files)")


def test_a_plan_of_a_schedule_without_a_deadline_says_what_it_starts_after(files: Path) -> None:
    (files / "below.yaml").write_text(after("below", ["rates"]))

    assert "below/stream: starts after rates; without a deadline" in interlock("plan", files).stdout


@pytest.mark.usefixtures("store")
def test_a_plan_with_states_shows_how_far_the_upstream_runs_are(files: Path) -> None:
    put_runs(hourly_00=State.COMPLETED, hourly_07=State.POLLING, hourly_08=State.FAILED_FINAL, rates=State.COMPLETED)

    shown = interlock("plan", files, "--days", 1, "--states").stdout
    [daily] = planned(files, "--days", 1, "--states", "--pipeline", "daily")

    state = (
        "waits for hourly 2027-03-22: 1 of 24 hours completed; T07 running, T08 failed, T01 not started, "
        "T02 not started, T03 not started, and 18 more"
    )
    assert line_of("daily", shown).endswith(f"due 09:00 UTC; {state}; rates: 2027-03-22 completed")
    assert line_of("below", shown).endswith("due 09:00 UTC; rates: 2027-03-22 completed")
    assert (daily["status"], [each["state"] for each in daily["waitsFor"]]) == (
        "not started",
        [state, "rates: 2027-03-22 completed"],
    )


@pytest.mark.usefixtures("store")
def test_a_plan_with_states_shows_the_state_of_a_run_that_waits_for_nothing_any_more(files: Path) -> None:
    put_runs(rates=State.COMPLETED, below=State.POLLING)

    assert line_of("below", interlock("plan", files, "--days", 1, "--states").stdout).endswith("UTC; running")


def test_a_plan_with_states_needs_a_store_and_no_comparison(files: Path) -> None:
    assert interlock("plan", files, "--states", "--store", "sqlite:///missing.db").exit_code == 2
    assert interlock("plan", files, "--states", "--against", files).exit_code == 2


@pytest.mark.usefixtures("store")
def test_explain_and_status_name_what_a_run_waits_for() -> None:
    put_runs(rates=State.FAILED_FINAL, below=State.EVALUATING)

    explained = interlock("explain", "below", PERIOD).stdout
    [listed] = [json.loads(line) for line in interlock("status", "below", "--json").stdout.splitlines()]

    assert "waits for rates 2027-03-22: 2027-03-22 failed" in explained
    assert "interlock rerun rates 2027-03-22" in explained
    assert listed["waitsFor"] == "rates"


@pytest.mark.usefixtures("store")
def test_explain_says_what_to_do_about_an_upstream_that_is_paused_until_its_pause_is_over() -> None:
    interlock("pause", "rates", "--reason", "migration", "--until", "2027-03-22T13:00:00Z")
    during = interlock("explain", "below", PERIOD).stdout
    afterwards = interlock("explain", "below", PERIOD, clock=ManualClock(TODAY + timedelta(hours=2))).stdout

    assert "2027-03-22 not started (rates is paused: migration)" in during
    assert "resume it: `interlock resume rates`" in during
    assert "paused: migration" not in afterwards


@pytest.mark.usefixtures("store")
def test_whoever_removes_an_upstream_is_told_who_waits_and_so_is_who_asks_later() -> None:
    removed = interlock("pipelines", "remove", "rates", "--yes")
    record = json.loads(interlock("pipelines", "remove", "hourly", "--yes", "--json").stdout)
    explained = interlock("explain", "below", PERIOD).stdout

    assert "below, daily will wait for rates" in removed.stderr
    assert (record["downstreams"], record["downstreamsTotal"]) == (["daily"], 1)
    assert "after     blocked  rates: there is no pipeline rates" in explained
    assert "deploy rates, or remove it from `after` (there is no pipeline rates)" in explained


def test_the_examples_hand_over_by_after() -> None:
    [day] = planned(EXAMPLES, "--days", 1, "--pipeline", "clickstream-daily")
    [report] = planned(EXAMPLES, "--days", 1, "--from", "2027-03-26", "--pipeline", "treasury-report")

    assert [(each["pipeline"], each["runs"]) for each in day["waitsFor"]] == [("clickstream-hourly", 24)]
    assert [(each["pipeline"], each["periods"], each["runs"]) for each in report["waitsFor"]] == [
        ("payment-files", "all", 40),
        ("trade-positions", "latest", 1),
    ]
