"""`interlock explain` on a store: what is loaded, which period is meant, and what is printed."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import (
    ORDERS,
    PERIOD,
    a_store,
    a_stored_run,
    in_store,
    key_of,
    version_hash,
)
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.fakes.remote_store import FaultyTables, Operation
from worker.config.versions import Version
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import DryRun, DryState, Pause, State
from worker.operations.explain.load import SnapshotLoader
from worker.store.repos import dry_runs
from worker.store.repos.marks import once_write
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Key, Put, TableName, Tables, Update

CRON = """\
pipeline: {id: report}
schedules:
  - {id: early, cron: "0 6 * * *"}
  - {id: late, cron: "0 18 * * *"}
job: {type: command, config: {command: load}}
"""


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, ORDERS, CRON)


def gates(*arguments: object) -> dict[str, dict[str, object]]:
    [record] = records(interlock("explain", *arguments, "--json").stdout)
    return {gate["gate"]: gate for gate in record["gates"]}


def test_the_answer_names_the_gate_and_the_smallest_change() -> None:
    interlock("sensor", "put", "orders", "ready", "status=done")
    interlock("sensor", "put", "orders", f"export#{PERIOD}", "rows=950", "updatedAt=2027-03-22T10:00:00Z")

    lines = interlock("explain", "orders", PERIOD).stdout.splitlines()

    assert lines[0] == f"orders/{PERIOD}"
    assert lines[1].startswith("  Blocked by rules: 0 of 1 conditions hold")
    assert any(f"(read from export#{PERIOD}; written 2027-03-22T10:00:00Z)" in line for line in lines)
    assert lines[-2] == f"  1.  write export.rows >= 1000 for {PERIOD}"


def test_json_has_every_gate_and_the_values_seen_and_wanted() -> None:
    interlock("sensor", "put", "orders", "export", "rows=950")

    found = gates("orders", PERIOD)

    assert list(found) == ["config", "schedule", "calendar", "pause", "trigger", "run", "rules", "budgets", "sla"]
    assert found["rules"]["conditions"] == [
        {
            "subject": "export.rows",
            "passed": False,
            "seen": 950,
            "wanted": "at least 1000",
            "reason": "export.rows is 950, which is not at least 1000",
            "sensor": "export",
            "changedAt": None,
            "changedSinceStart": None,
        }
    ]


def test_everything_that_is_stored_about_the_run_is_looked_at() -> None:
    async def fill(tables: Tables) -> None:
        await Pauses(tables).put(PipelineId("orders"), Pause("upgrade"))
        await Runs(tables).save(a_stored_run(State.POLLING, await version_hash(tables)))

    in_store(fill)
    found = gates("orders", PERIOD)

    assert found["pause"]["sentence"] == "paused until someone resumes it: upgrade"
    assert str(found["run"]["sentence"]).startswith("running since 2027-03-22 12:00 UTC")


def test_an_active_run_is_explained_by_the_version_it_began_under() -> None:
    async def fill(tables: Tables) -> None:
        await Runs(tables).save(a_stored_run(State.EVALUATING, await version_hash(tables)))

    in_store(fill)
    Path("p0.yaml").write_text(ORDERS.replace("1000", "5"))
    assert interlock("pipelines", "push", "p0.yaml", "--yes").exit_code == 0

    found = gates("orders", PERIOD)

    assert "with which the run started" in str(found["config"]["sentence"])
    assert found["rules"]["changes"] == [f"write export.rows >= 1000 for {PERIOD}"]


def test_a_signal_that_was_consumed_is_found_by_its_mark() -> None:
    interlock("sensor", "put", "orders", "ready", "status=done")

    async def consume(tables: Tables) -> None:
        sensor = await Sensors(tables).get(PipelineId("orders"), "ready")
        assert sensor is not None
        data = {"hash": sensor.content_hash, "period": "2027-03-20"}
        await tables.commit(once_write(PipelineId("orders"), keys.signal_mark_sk("ready"), data, TODAY))

    in_store(consume)

    assert "has already triggered the run of 2027-03-20" in str(gates("orders", PERIOD)["trigger"]["sentence"])


def test_of_a_pipeline_in_dry_run_the_rehearsal_is_shown() -> None:
    Path("p0.yaml").write_text(ORDERS + "dryRun: true\n")
    assert interlock("pipelines", "push", "p0.yaml", "--yes").exit_code == 0

    async def rehearse(tables: Tables) -> None:
        dry = DryRun(key=key_of(), config_hash="c", since=TODAY, window_ends_at=TODAY + timedelta(hours=1))
        await tables.commit(dry_runs.save_write(dry))

    in_store(rehearse)

    assert "dry run: waiting for its rules" in str(gates("orders", PERIOD)["run"]["sentence"])


def test_what_is_read_does_not_grow_with_what_is_stored() -> None:
    async def calls(tables: Tables) -> dict[Operation, int]:
        counting = FaultyTables(tables)
        looking = SnapshotLoader(counting)
        version = await looking.version(PipelineId("orders"))
        assert isinstance(version, Version)
        await looking.at(key_of(), version, TODAY)
        return dict(counting.calls)

    few = in_store(calls)
    for number in range(20):
        interlock("sensor", "put", "orders", f"other-{number}", "rows=1")
    many = in_store(calls)

    assert few == many
    assert Operation.QUERY not in few


# --- which run --------------------------------------------------------------------------------------------------------


def test_without_a_period_the_one_that_has_begun_is_meant() -> None:
    [record] = records(interlock("explain", "orders", "--json").stdout)

    assert record["period"] == PERIOD


@pytest.mark.parametrize(("state", "meant"), [(State.EVALUATING, "2027-03-21"), (State.COMPLETED, PERIOD)])
def test_without_a_period_a_run_that_is_under_way_is_meant_and_one_that_has_ended_is_not(
    state: State, meant: str
) -> None:
    async def fill(tables: Tables) -> None:
        key = key_of("2027-03-21")
        await Runs(tables).save(a_stored_run(state, await version_hash(tables), key=key))

    in_store(fill)

    assert records(interlock("explain", "orders", "--json").stdout)[0]["period"] == meant


def test_without_a_period_the_last_run_is_meant_if_it_is_later() -> None:
    async def fill(tables: Tables) -> None:
        key = key_of("2027-03-23")
        await Runs(tables).save(a_stored_run(State.EVALUATING, await version_hash(tables), key=key))

    in_store(fill)

    assert records(interlock("explain", "orders", "--json").stdout)[0]["period"] == "2027-03-23"


def put_runs(*runs: tuple[str, State]) -> None:
    async def fill(tables: Tables) -> None:
        for period, state in runs:
            await Runs(tables).save(a_stored_run(state, await version_hash(tables), key=key_of(period)))

    in_store(fill)


@pytest.mark.parametrize("command", ["explain", "history"])
@pytest.mark.parametrize(
    ("state", "days_after"),
    [(State.EVALUATING, 1), (State.TRIGGERING, 2), (State.POLLING, 110), (State.STOPPING, 1)],
)
def test_without_a_period_the_active_run_is_meant_whatever_ended_after_it(
    command: str, state: State, days_after: int
) -> None:
    first = date(2026, 9, 1)
    later = [str(first + timedelta(days=number)) for number in range(1, days_after + 1)]
    put_runs((str(first), state), *((period, State.COMPLETED) for period in later))

    result = interlock(command, "orders")
    found = records(interlock(command, "orders", "--json").stdout)

    assert {record["period"] for record in found} == {"2026-09-01"}
    assert "No period given; showing the active run, 2026-09-01.\n" in result.stderr


@pytest.mark.parametrize(("active", "named"), [(2, "2026-09-01"), (4, "2026-09-03, 2026-09-02, 2026-09-01")])
def test_of_several_active_runs_the_newest_is_meant_and_the_others_are_named(active: int, named: str) -> None:
    days = [f"2026-09-{number:02d}" for number in range(1, active + 1)]
    put_runs(*((day, State.POLLING) for day in days), ("2026-10-01", State.FAILED_FINAL))

    [record] = records(interlock("explain", "orders", "--json").stdout)

    moments = records(interlock("history", "orders", "--json").stdout)
    assert moments
    for each in (record, *moments):
        assert (each["period"], each["otherActivePeriods"]) == (days[-1], days[-2::-1])
    said = f"No period given; showing the newest of {active} active runs, {days[-1]}; also {named}.\n"
    assert said in interlock("explain", "orders").stderr
    assert said in interlock("history", "orders").stderr


def test_of_very_many_active_runs_some_are_named_and_the_rest_counted() -> None:
    put_runs(*((f"2026-09-{number:02d}", State.POLLING) for number in range(1, 9)))

    assert "showing the newest of 8 active runs, 2026-09-08; also 2026-09-07, 2026-09-06, 2026-09-05, 2026-09-04, " in (
        remark := interlock("explain", "orders").stderr
    )
    assert "2026-09-03 and 2 more.\n" in remark


def test_where_no_run_is_active_that_is_said() -> None:
    put_runs(("2027-03-21", State.COMPLETED))

    said = f"No period given and no run is active; showing the last that ran or was expected, {PERIOD}.\n"
    assert said in interlock("explain", "orders").stderr


def test_a_period_that_was_named_needs_no_words() -> None:
    assert "period" not in interlock("explain", "orders", PERIOD).stderr
    assert records(interlock("explain", "orders", PERIOD, "--json").stdout)[0]["otherActivePeriods"] == []


def test_an_active_run_of_another_schedule_or_pipeline_is_not_meant() -> None:
    put_runs(("2026-09-01", State.POLLING))

    explained = records(interlock("explain", "report", "--json").stdout)

    assert [each["period"] for each in explained] == [PERIOD, "2027-03-21"]


def test_what_another_system_runs_is_active() -> None:
    row = {"PK": "PIPELINE#orders", "SK": "TRIGGER#stream#2027-03-20", "status": "RUNNING", "ttl": 9_999_999_999}
    in_store(lambda tables: tables.commit(Put(TableName.CONTROL, row)))

    assert "showing the active run, 2027-03-20.\n" in interlock("explain", "orders").stderr


def test_a_rehearsal_that_waits_is_active() -> None:
    Path("p0.yaml").write_text(ORDERS + "dryRun: true\n")
    assert interlock("pipelines", "push", "p0.yaml", "--yes").exit_code == 0

    async def rehearse(tables: Tables) -> None:
        for period, state in (("2026-09-01", DryState.EVALUATING), ("2026-10-01", DryState.WOULD_TRIGGER)):
            dry = DryRun(key=key_of(period), config_hash="c", since=TODAY, window_ends_at=TODAY, state=state)
            await tables.commit(dry_runs.save_write(dry))

    in_store(rehearse)

    assert records(interlock("explain", "orders", "--json").stdout)[0]["period"] == "2026-09-01"


def test_a_run_that_the_index_still_calls_active_has_ended_if_its_row_says_so() -> None:
    put_runs(("2026-09-01", State.COMPLETED), ("2026-08-01", State.POLLING))

    async def lag(tables: Tables) -> None:
        pk, sk = keys.pipeline_pk(key_of().pipeline), keys.trigger_sk(key_of("2026-09-01"))
        stale = {"active": keys.active_bucket_of(pk, sk)}
        await tables.commit(Update(table=TableName.CONTROL, key=Key(pk, sk), set=stale))

    in_store(lag)

    assert records(interlock("explain", "orders", "--json").stdout)[0]["period"] == "2026-08-01"


def test_without_a_schedule_each_is_explained_for_its_own_last_time() -> None:
    explained = records(interlock("explain", "report", "--json").stdout)

    assert [(each["schedule"], each["period"]) for each in explained] == [("early", PERIOD), ("late", "2027-03-21")]


def test_one_schedule_can_be_chosen() -> None:
    [record] = records(interlock("explain", "report", "--schedule", "late", "--json").stdout)

    assert record["schedule"] == "late"


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["ordres"], 2, "did you mean `orders`?"),
        (["orders", "yesterday"], 2, "write 2026-03-03"),
        (["report", "--schedule", "noon"], 2, "it has early, late"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(arguments: list[str], code: int, hint: str) -> None:
    result = interlock("explain", *arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert hint in result.stderr


# --- configurations that cannot be used -------------------------------------------------------------------------------


def deploy_nonsense() -> None:
    in_store(lambda tables: Pipelines(tables).put(PipelineId("orders"), "pipeline: {id: orders"))


def test_a_pipeline_that_never_had_a_usable_configuration_is_a_problem() -> None:
    deploy_nonsense()

    result = interlock("explain", "orders")

    assert result.exit_code == 1
    assert "the deployed configuration is invalid" in result.stdout
    assert "correct the file of orders and push it" in result.stdout


def test_a_bad_deployment_leaves_the_last_good_version_in_force() -> None:
    async def remember(tables: Tables) -> None:
        good = {"good": await version_hash(tables)}
        await tables.commit(once_write(PipelineId("orders"), keys.config_mark_sk(), good, TODAY))

    in_store(remember)
    deploy_nonsense()

    found = gates("orders", PERIOD)

    assert found["config"]["passage"] == "open"
    assert "the configuration deployed since is invalid" in str(found["config"]["sentence"])
