"""`interlock probe test` and `probe list`, and `doctor --probes`: results, failures, exit codes and records."""

import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, in_store
from tests.support.builders.command_line import TODAY, interlock, records
from worker.core.model.ids import PipelineId
from worker.core.probes.trait import ProbeFailure, Trait
from worker.core.time.periods import Period
from worker.store.repos.probes.traits import ProbeTraits
from worker.store.table import Tables

TOKEN = "sesame-9000"
FILE = f"""\
pipeline: {{id: fx}}
schedule: {{cron: "0 6 * * *", timezone: UTC}}
probes:
  - key: rows
    type: sql
    config: {{engine: sqlite, path: warehouse.db, query: "select rows, day from loads where day = '${{DATE}}'"}}
  - key: rates
    type: command
    config:
      command: [{sys.executable}, -c, "import os, sys; sys.exit('no rates for ' + os.environ['TOKEN'])"]
      environment: {{TOKEN: "${{INTERLOCK_RATES_TOKEN}}"}}
validation:
  rules:
    - {{key: rows, check: gte, field: rows, value: 10}}
    - {{key: rates, check: passes}}
job: {{type: command, config: {{command: load}}}}
"""


@pytest.fixture(autouse=True)
def warehouse(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_RATES_TOKEN", TOKEN)
    with closing(sqlite3.connect("warehouse.db")) as connection, connection:
        connection.execute("create table loads (day text, rows integer)")
        connection.execute(f"insert into loads values ('{PERIOD}', 12), ('2027-03-21', 3)")
    a_store(here, FILE)


def put(*traits: Trait) -> None:
    async def work(tables: Tables) -> None:
        for trait in traits:
            await ProbeTraits(tables).put(PipelineId("fx"), trait, TODAY)

    in_store(work)


def a_trait(number: int = 0, **more: object) -> Trait:
    period = Period((TODAY - timedelta(days=number)).date())
    checked_at = TODAY - timedelta(minutes=3)
    known = {"data": {"rows": 12}, "checked_at": checked_at, "changed_at": checked_at}
    return Trait(key="rows", period=period, **{**known, "stale_at": TODAY + timedelta(minutes=27), **more})  # pyright: ignore[reportArgumentType]


def nothing_is_stored() -> bool:
    return {each["result"] for each in records(interlock("probe", "list", "fx", "--json").stdout)} == {None}


# --- test -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["p0.yaml", "fx"], ids=["a file", "a pipeline of the store"])
def test_a_result_is_shown_with_what_the_rules_make_of_it_and_nothing_is_stored(here: Path, source: str) -> None:
    (here / "p0.yaml").write_text(FILE)

    shown = interlock("probe", "test", source, "rows")
    [record] = records(interlock("probe", "test", source, "rows", "--json").stdout)

    assert shown.exit_code == 0, shown.output
    assert f"probe rows (sql) for {PERIOD}: result after" in shown.stdout
    assert "rule holds: rows.rows is 12" in shown.stdout
    assert record["result"] == {"exists": True, "rows": 12, "day": PERIOD}
    assert (record["failure"], [rule["passed"] for rule in record["rules"]]) == (None, [True])
    assert nothing_is_stored()


def test_another_period_may_have_another_result() -> None:
    result = interlock("probe", "test", "fx", "rows", "--period", "2027-03-21")

    assert result.exit_code == 0
    assert "rule does not hold: rows.rows is 3, which is not at least 10" in result.stdout


def test_a_probe_that_shows_nothing_is_unknown_with_exit_code_1_and_no_secret() -> None:
    shown = interlock("probe", "test", "fx", "rates")
    told = interlock("probe", "test", "fx", "rates", "--json")

    assert shown.exit_code == told.exit_code == 1
    assert "unknown after" in shown.stdout
    assert "no rates for ***" in shown.stdout
    [record] = records(told.stdout)
    assert (record["result"], record["rules"]) == (None, [])
    assert "no rates for ***" in record["failure"]
    assert TOKEN not in shown.output + told.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fx", "raets"], "did you mean `rates`"),
        (["fy", "rates"], "fy"),
        (["missing.yaml", "rates"], "there is no file missing.yaml"),
        (["broken.yaml", "rates"], "broken.yaml"),
        (["fx", "rates", "--period", "yesterday"], "yesterday"),
        (["fx", "rates", "--store", "sqlite:///nowhere/no.db"], "nowhere"),
    ],
)
def test_a_wrong_name_period_file_or_store_has_exit_code_2(here: Path, arguments: list[str], words: str) -> None:
    (here / "broken.yaml").write_text(FILE.replace("every", "evry").replace("type: sql", "type: sqk"))

    result = interlock("probe", "test", *arguments)

    assert result.exit_code == 2, result.output
    assert words in result.stderr


# --- list -------------------------------------------------------------------------------------------------------------


def test_results_are_listed_with_their_age_and_failures_and_probes_without_a_result_too() -> None:
    failure = ProbeFailure(kind="http-503", reason="the response was 503", since=TODAY - timedelta(minutes=9))
    put(a_trait(), a_trait(1, stale_at=TODAY - timedelta(minutes=12), failure=failure))

    shown = interlock("probe", "list", "fx")
    stale, valid, never = records(interlock("probe", "list", "fx", "--json").stdout)

    assert shown.exit_code == 0
    assert "valid  " in shown.stdout
    assert "3m old" in shown.stdout
    assert "since 12m" in shown.stdout
    assert "failing since 2027-03-22T11:51:00Z: the response was 503" in " ".join(shown.stdout.split())
    assert shown.stdout.endswith("3 probe results\n")
    assert (valid["valid"], valid["period"], valid["result"]) == (True, PERIOD, {"rows": 12})
    assert (stale["valid"], stale["failure"]) == (False, "the response was 503")
    assert (never["key"], never["result"], never["checkedAt"]) == ("rates", None, None)


def test_a_list_that_is_cut_says_so() -> None:
    put(*(a_trait(number) for number in range(4)))

    shown = interlock("probe", "list", "fx", "--limit", "3")
    told = records(interlock("probe", "list", "fx", "--limit", "3", "--json").stdout)

    assert "use a larger --limit" in shown.stderr
    assert [record["type"] for record in told] == [*["probeResult"] * 4, "truncated"]


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_sends_each_probe_once_if_asked_to_and_stores_nothing(here: Path) -> None:
    result = interlock("doctor", "--probes", "--json")

    found = {each["subject"]: each for each in records(result.stdout) if each.get("area") == "probes"}
    assert result.exit_code == 1
    assert found["fx rows (sql)"]["health"] == "ok"
    assert found["fx rows (sql)"]["finding"] == "it returns exists, rows, day"
    assert found["fx rates (command)"]["health"] == "fail"
    assert found["fx rates (command)"]["finding"] == "the program ended with 1: no rates for ***"
    assert "interlock probe test fx rates" in found["fx rates (command)"]["remedy"]
    assert nothing_is_stored()


def test_doctor_says_why_it_sends_no_probe_unless_it_is_asked_to() -> None:
    result = interlock("doctor")

    assert result.exit_code == 0, result.output
    assert "probes       requests: 2 probes are defined by 1 pipeline; --probes sends each once" in result.stdout
