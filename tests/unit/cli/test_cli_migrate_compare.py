"""`interlock migrate compare`: rows of a shadow and of the old system, side by side."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import a_store, in_store, key_of
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.config.store_setting import GROUP
from worker.core.run.state import DryRun, DryState
from worker.store.repos.dry_runs import save_write
from worker.store.repos.installation import installed_at
from worker.store.repos.sensors import Sensors
from worker.store.shadow import ShadowTables
from worker.store.table import Put, TableName, Tables

BEGAN = TODAY - timedelta(days=5)
ORDERS = "PIPELINE#orders"


def a_rehearsal(period: str, state: DryState) -> DryRun:
    return DryRun(key=key_of(period), state=state, config_hash="c", since=TODAY, window_ends_at=TODAY, reason="late")


@pytest.fixture
def beside(here: Path) -> None:
    """Four days: both, ours, theirs by a reason, theirs unseen; and one from before the shadow."""
    a_store(here)

    async def leave(tables: Tables) -> None:
        shadow = ShadowTables(tables, ManualClock(TODAY))
        await installed_at(shadow, GROUP, BEGAN)
        for period, state in (
            ("2027-03-19", DryState.WOULD_TRIGGER),
            ("2027-03-20", DryState.WOULD_TRIGGER),
            ("2027-03-21", DryState.EXHAUSTED),
        ):
            await shadow.commit(save_write(a_rehearsal(period, state)))
        for period in ("2027-03-16", "2027-03-19", "2027-03-21", "2027-03-22"):
            row = {"PK": ORDERS, "SK": f"TRIGGER#stream#{period}", "status": "COMPLETED"}
            await tables.commit(Put(TableName.CONTROL, row))
            line = {"PK": ORDERS, "SK": f"JOB#stream#{period}#1805600000000", "event": "success"}
            await tables.commit(Put(TableName.JOBLOG, line))
        await Sensors(tables).put(
            key_of().pipeline, "first-sensor-arrival#2027-03-16", {"arrivedAt": "2027-03-16T08:00:00Z"}
        )

    in_store(leave)


@pytest.mark.usefixtures("beside")
def test_each_run_is_shown_with_what_became_of_it_on_both_sides() -> None:
    result = interlock("migrate", "compare", "orders", "--json")

    assert result.exit_code == 1, result.output
    *runs, summary = records(result.stdout)
    assert {run["run"]: run["result"] for run in runs} == {
        "orders/stream/2027-03-19": "agreed",
        "orders/stream/2027-03-20": "ours-only",
        "orders/stream/2027-03-21": "theirs-only",
        "orders/stream/2027-03-22": "theirs-only",
    }
    assert (summary["agreed"], summary["ours-only"], summary["theirs-only"]) == (1, 1, 2)


@pytest.mark.usefixtures("beside")
def test_people_see_only_what_is_not_agreed_with_the_reason() -> None:
    result = interlock("migrate", "compare", "--listed")

    assert "2027-03-19" not in result.stdout
    assert "the rules did not hold: late" in result.stdout
    assert "1 pipeline since 2027-03-17T12:00:00Z: 1 agreed, 0 waiting, 1 ours-only, 2 theirs-only" in result.stdout
    assert "2027-03-19" in interlock("migrate", "compare", "orders", "--all").stdout


@pytest.mark.usefixtures("beside")
def test_fewer_days_look_at_fewer_runs() -> None:
    *runs, _ = records(interlock("migrate", "compare", "orders", "--days", "1", "--json").stdout)

    assert [run["run"] for run in runs] == ["orders/stream/2027-03-21", "orders/stream/2027-03-22"]


@pytest.mark.usefixtures("beside")
def test_a_pipeline_that_cannot_be_compared_is_said_and_the_others_are_compared() -> None:
    result = interlock("migrate", "compare", "orders", "unknown", "--json")

    assert result.exit_code == 2
    assert "unknown was left out" in result.stderr
    assert records(result.stdout)[-1]["leftOut"] == 1


def test_without_a_shadow_there_is_nothing_to_compare(here: Path) -> None:
    a_store(here)

    result = interlock("migrate", "compare", "orders")

    assert result.exit_code == 1
    assert "INTERLOCK_SHADOW=1" in result.output
