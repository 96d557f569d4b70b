"""`interlock rerun`, `replay`, `cancel`, `pause` and `resume`: what is asked, and what is said about it."""

from dataclasses import replace
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
from tests.support.clock.manual import ManualClock
from tests.support.fakes.remote_store import FaultyTables
from worker.config.versions import PipelineVersions, Version
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.values import Json
from worker.core.run.state import Pause, Spent, State
from worker.operations.runs.requests import RerunSpec, RunRequests
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import CancelRequest, Requests, RerunRequest
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Put, StaleWrite, TableName, Tables, Write

TWO = """\
pipeline: {id: report}
schedules:
  - {id: early, cron: "0 6 * * *"}
  - {id: late, cron: "0 18 * * *"}
job: {type: command, config: {command: load}}
"""


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, ORDERS, TWO)


def put_run(state: State, *, spent: Spent | None = None, sensor: dict[str, Json] | None = None) -> None:
    """Store a run that was started on the sensor as it is."""

    async def put(tables: Tables) -> None:
        started_on: dict[str, str] = {}
        if sensor is not None:
            await Sensors(tables).put(PipelineId("orders"), "export", sensor)
            stored = await Sensors(tables).get(PipelineId("orders"), "export")
            assert stored is not None
            started_on = {"export": stored.content_hash}
        run = a_stored_run(state, await version_hash(tables), spent=spent)
        await Runs(tables).save(replace(run, started_on=started_on))

    in_store(put)


def asked_rerun(period: str = PERIOD) -> RerunRequest | None:
    return in_store(lambda tables: Requests(tables).rerun_of(key_of(period)))


def asked_cancel() -> CancelRequest | None:
    return in_store(lambda tables: Requests(tables).cancel_of(key_of()))


def current_pause() -> Pause | None:
    return in_store(lambda tables: Pauses(tables).load(PipelineId("orders")))


# --- rerun ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "is_odd"),
    [
        (["orders", PERIOD], False),
        (["orders", "2027-03-01"], False),
        (["orders", "2027-03-24"], True),
        (["report", "--schedule", "early", PERIOD], False),
        (["report", "--schedule", "late", PERIOD], True),
        (["report", "--schedule", "early", "2027-03-22T06"], True),
    ],
)
def test_a_first_run_of_a_period_that_nobody_expects_yet_gets_a_warning(arguments: list[str], is_odd: bool) -> None:
    result = interlock("rerun", *arguments, "--dry-run")

    assert result.exit_code == 0
    assert ("expects no run of" in result.stderr) == is_odd


def test_a_run_that_is_there_is_run_again_without_a_warning() -> None:
    async def put(tables: Tables) -> None:
        key = key_of("2028-03-22")
        await Runs(tables).save(a_stored_run(State.FAILED_FINAL, await version_hash(tables), key=key))

    in_store(put)

    assert interlock("rerun", "orders", "2028-03-22", "--dry-run").stderr == ""


def test_a_rerun_is_asked_for_by_a_row_and_its_future_is_told() -> None:
    put_run(State.FAILED_FINAL)

    result = interlock("rerun", "orders", PERIOD, "--reason", "fixed the export")

    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        f'Rerun requested for orders/{PERIOD} ("fixed the export"); attempt 2 starts when its rules pass.',
    ]
    request = asked_rerun()
    assert request is not None
    assert (request.reason, request.requested_at, request.supersede) == (
        "fixed the export",
        "2027-03-22T12:00:00Z",
        False,
    )


def test_a_rerun_without_a_period_lists_the_last_three_and_asks_for_one() -> None:
    async def put(tables: Tables) -> None:
        version = await version_hash(tables)
        states = {"2027-03-19": State.COMPLETED, "2027-03-20": State.FAILED_FINAL, "2027-03-21": State.COMPLETED}
        for period, state in {**states, PERIOD: State.POLLING}.items():
            await Runs(tables).save(a_stored_run(state, version, key=key_of(period)))

    in_store(put)

    result = interlock("rerun", "orders", "--reason", "fixed")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "error: `interlock rerun` needs the period of the run",
        f"    for example: interlock rerun orders {PERIOD}",
        "    the last runs of orders:",
        f"      {PERIOD}  running",
        "      2027-03-21  completed",
        "      2027-03-20  failed",
    ]
    assert asked_rerun() is None


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("orders", "orders has no run yet; `interlock explain orders` says what it waits for"),
        ("report", "report has no run yet"),
        ("order", "did you mean `orders`?"),
    ],
)
def test_a_rerun_without_a_period_and_without_a_run_says_so(pipeline: str, said: str) -> None:
    result = interlock("rerun", pipeline)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_rerun_without_a_period_names_the_schedules_where_there_are_several() -> None:
    async def put(tables: Tables) -> None:
        version = await PipelineVersions(tables).deployed(PipelineId("report"))
        assert isinstance(version, Version)
        for schedule in ("early", "late"):
            key = RunKey(PipelineId("report"), ScheduleId(schedule), key_of().period)
            await Runs(tables).save(a_stored_run(State.COMPLETED, version.config_hash, key=key))

    in_store(put)

    said = interlock("rerun", "report").stderr

    assert f"for example: interlock rerun report {PERIOD} --schedule early" in said
    assert f"{PERIOD}  completed  early" in said
    assert f"{PERIOD}  completed  late" in said


def test_two_requests_are_never_the_same() -> None:
    interlock("rerun", "orders", PERIOD)
    first = asked_rerun()
    interlock("rerun", "orders", PERIOD)
    second = asked_rerun()

    assert first is not None
    assert second is not None
    assert first.identity != second.identity


def test_a_rerun_that_would_be_refused_is_not_written_and_its_reason_and_remedy_are_told() -> None:
    put_run(State.COMPLETED, spent=Spent(manual=1))

    result = interlock("rerun", "orders", PERIOD)

    assert result.exit_code == 1
    override = f"To override: `interlock replay orders {PERIOD} {PERIOD}`"
    assert result.stdout == f"Rerun rejected: manual rerun limit reached (1 of 1). {override}\n"
    assert asked_rerun() is None
    assert in_store(lambda tables: Events(tables).latest(PipelineId("orders"), 10)) == []


def test_a_rerun_that_would_be_refused_does_not_replace_one_that_waits_for_its_answer() -> None:
    interlock("rerun", "orders", PERIOD, "--reason", "first")
    put_run(State.POLLING)

    assert interlock("rerun", "orders", PERIOD, "--reason", "second").exit_code == 1

    request = asked_rerun()
    assert request is not None
    assert request.reason == "first"


def test_json_tells_what_helps_against_a_refusal() -> None:
    put_run(State.COMPLETED, spent=Spent(manual=1))

    [record] = records(interlock("rerun", "orders", PERIOD, "--json").stdout)

    assert (record["asked"], record["prospect"]) == (False, "refused")
    assert record["remedy"] == f"to override: `interlock replay orders {PERIOD} {PERIOD}`"


def test_a_run_under_way_is_refused_unless_superseded() -> None:
    put_run(State.POLLING)

    refused = interlock("rerun", "orders", PERIOD)
    accepted = interlock("rerun", "orders", PERIOD, "--supersede")

    assert (refused.exit_code, accepted.exit_code) == (1, 0)
    assert "the running job is stopped first, then attempt 2 starts" in accepted.stdout
    request = asked_rerun()
    assert request is not None
    assert request.supersede


def test_a_success_is_not_repeated_on_the_same_data() -> None:
    put_run(State.COMPLETED, sensor={"rows": 1000, "updatedAt": "2027-03-22T11:00:00Z"})

    same = interlock("rerun", "orders", PERIOD, "--dry-run")
    interlock("sensor", "put", "orders", "export", "rows=1200", "updatedAt=2027-03-22T11:00:00Z")
    other = interlock("rerun", "orders", PERIOD, "--dry-run")

    assert (same.exit_code, other.exit_code) == (1, 0)
    assert "no sensor changed since the run completed" in same.stdout


def test_a_run_that_never_was_can_be_asked_for() -> None:
    result = interlock("rerun", "orders", PERIOD)

    assert result.exit_code == 0
    assert "; the run starts when its rules pass." in result.stdout


def test_a_dry_run_of_the_command_asks_nothing() -> None:
    result = interlock("rerun", "orders", PERIOD, "--dry-run")

    accepted = f"Rerun of orders/{PERIOD} would be accepted: the run starts when its rules pass."
    assert result.stdout == f"{accepted} Nothing was requested (dry run).\n"
    assert asked_rerun() is None


def test_during_a_pause_a_request_waits() -> None:
    interlock("pause", "orders", "--reason", "upgrade")

    result = interlock("rerun", "orders", PERIOD)

    assert result.exit_code == 0
    assert "; the pipeline is paused (upgrade), so the request waits until the pause ends." in result.stdout
    assert asked_rerun() is not None


def test_a_request_that_was_not_answered_is_replaced_with_a_remark() -> None:
    interlock("rerun", "orders", PERIOD, "--reason", "first")

    result = interlock("rerun", "orders", PERIOD, "--reason", "second")

    assert 'it replaces the request of 2027-03-22T12:00:00Z ("first"), which was still waiting\n' in result.stderr


def test_json_tells_what_was_asked_and_what_becomes_of_it() -> None:
    [record] = records(interlock("rerun", "orders", PERIOD, "--json").stdout)

    assert record == {
        "type": "rerun",
        "pipeline": "orders",
        "schedule": "stream",
        "period": PERIOD,
        "asked": True,
        "prospect": "accepted",
        "sentence": "the run starts when its rules pass",
        "remedy": None,
        "reason": "manual",
    }


@pytest.mark.parametrize(("status", "code"), [("RUNNING", 1), ("COMPLETED", 0), ("FAILED_FINAL", 0)])
def test_a_run_of_another_system_is_respected_while_it_runs_and_rerun_after(status: str, code: int) -> None:
    key = key_of()
    row = {"PK": keys.pipeline_pk(key.pipeline), "SK": keys.trigger_sk(key), "status": status}
    in_store(lambda tables: tables.commit(Put(TableName.CONTROL, row)))

    assert interlock("rerun", "orders", PERIOD).exit_code == code
    assert (asked_rerun() is None) is (status == "RUNNING")


def test_a_period_whose_runs_are_no_longer_kept_is_refused() -> None:
    result = interlock("rerun", "orders", "2025-03-03")

    assert result.exit_code == 1
    assert "Rerun rejected: 2025-03-03 is before 2026-02-22; runs of earlier periods" in result.stdout


def test_a_period_far_ahead_is_refused_unless_its_run_is_there() -> None:
    result = interlock("rerun", "orders", "2062-03-22")

    assert result.exit_code == 1
    assert "Rerun rejected: 2062-03-22 begins more than 48h from now; correct the date" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["rerun", "ordres", PERIOD], 2, "did you mean `orders`?"),
        (["rerun", "orders", "yesterday"], 2, "write 2026-03-03"),
        (["rerun", "report", PERIOD], 2, "name one with --schedule"),
        (["rerun", "report", PERIOD, "--schedule", "noon"], 2, "it has early, late"),
        (["rerun", "orders", PERIOD, "--reason", "replay"], 2, "use other words"),
        (["rerun", "orders", PERIOD, "--reason", " "], 2, "state it in a sentence"),
        (["cancel", "orders", PERIOD, "--reason", "x" * 501], 2, "state it in a sentence"),
        (["cancel", "ordres", PERIOD, "--reason", "x"], 2, "did you mean `orders`?"),
        (["replay", "orders", "2027-03-20", "2027-03-10", "--yes"], 2, "comes after"),
        (["replay", "orders", "2027-03-20", "2027-03-21"], 2, "add --yes"),
        (["pause", "ordres", "--reason", "x"], 2, "did you mean `orders`?"),
        (["pause", "orders", "--reason", "x", "--until", "2027-03-01"], 2, "give a later time"),
        (["pause", "orders", "--reason", "x", "--until", "soon"], 2, "write 2h"),
        (["resume", "ordres"], 2, "did you mean `orders`?"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(arguments: list[str], code: int, hint: str) -> None:
    result = interlock(*arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert hint in result.stderr
    assert (asked_rerun(), asked_cancel(), current_pause()) == (None, None, None)


class Overtaken(FaultyTables):
    """Somebody else is quicker by one commit."""

    def __init__(self, tables: Tables, quicker: Put) -> None:
        super().__init__(tables)
        self._quicker = quicker

    async def commit(self, *writes: Write) -> None:
        await super().commit(self._quicker)
        await super().commit(*writes)


def test_someone_who_asks_at_the_same_moment_is_not_overwritten() -> None:
    key = key_of()
    row = {"PK": keys.pipeline_pk(key.pipeline), "SK": keys.rerun_request_sk(key), "reason": "mine", "id": "other"}

    async def ask(tables: Tables) -> None:
        version = await PipelineVersions(tables).current(key.pipeline)
        assert version is not None
        asking = RunRequests(Overtaken(tables, Put(TableName.CONTROL, row)), ManualClock(TODAY))
        with pytest.raises(StaleWrite):
            await asking.rerun(key, version, RerunSpec(reason="again"))

    in_store(ask)

    request = asked_rerun()
    assert request is not None
    assert request.reason == "mine"


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancellation_is_asked_for_by_a_row() -> None:
    put_run(State.POLLING)

    result = interlock("cancel", "orders", PERIOD, "--reason", "wrong export", "--waive-sla")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f'Cancellation requested for orders/{PERIOD} ("wrong export"); the job is stopped first.',
    ]
    request = asked_cancel()
    assert request is not None
    assert (request.reason, request.waive_sla) == ("wrong export", True)


@pytest.mark.parametrize(("state", "code"), [(None, 2), (State.COMPLETED, 1)])
def test_what_cannot_be_cancelled_is_not_asked_for(state: State | None, code: int) -> None:
    if state is not None:
        put_run(state)

    result = interlock("cancel", "orders", PERIOD, "--reason", "wrong export")

    assert result.exit_code == code
    assert "Nothing was requested: " in result.stdout
    assert asked_cancel() is None


def test_a_cancellation_needs_a_reason() -> None:
    assert interlock("cancel", "orders", PERIOD).exit_code == 2


# --- replay -----------------------------------------------------------------------------------------------------------


def test_a_replay_asks_period_by_period_outside_the_budget() -> None:
    put_run(State.COMPLETED, spent=Spent(manual=1))

    result = interlock("replay", "orders", "2027-03-20", PERIOD, "--note", "new rates", "--yes")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "3 reruns requested"
    requests = [asked_rerun(period) for period in ("2027-03-20", "2027-03-21", PERIOD)]
    assert [(request.reason, request.note) for request in requests if request] == [("replay", "new rates")] * 3


def test_a_replay_names_the_periods_that_will_be_refused() -> None:
    put_run(State.POLLING)

    result = interlock("replay", "orders", "2027-03-21", PERIOD, "--yes", "--json")

    assert result.exit_code == 1
    assert [record["prospect"] for record in records(result.stdout)] == ["accepted", "refused"]
    assert [record["asked"] for record in records(result.stdout)] == [True, False]
    assert (asked_rerun("2027-03-21") is None, asked_rerun() is None) == (False, True)


def test_a_replay_can_be_looked_at_first_without_being_asked() -> None:
    result = interlock("replay", "orders", "2027-03-20", PERIOD, "--dry-run")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "nothing was requested"
    assert asked_rerun() is None


# --- pause and resume -------------------------------------------------------------------------------------------------


def test_a_pause_has_a_reason_and_an_end() -> None:
    assert "until 2027-03-24T12:00:00Z" in interlock("pause", "orders", "--reason", "long", "--until", "2d").stdout

    result = interlock("pause", "orders", "--reason", "upgrade", "--until", "2h")

    assert result.exit_code == 0
    assert result.stdout.startswith("paused orders until 2027-03-22T14:00:00Z: upgrade\n")
    assert current_pause() == Pause("upgrade", TODAY.replace(hour=14))


def test_a_second_pause_replaces_the_first_and_says_so() -> None:
    interlock("pause", "orders", "--reason", "first", "--until", "2h")

    result = interlock("pause", "orders", "--reason", "second")

    assert result.stderr == "it was already paused: first\n"
    assert current_pause() == Pause("second")


def test_resuming_takes_the_pause_away() -> None:
    interlock("pause", "orders", "--reason", "upgrade")

    result = interlock("resume", "orders")

    assert result.stdout.startswith("resumed orders, which was paused: upgrade\n")
    assert current_pause() is None


def test_resuming_what_is_not_paused_does_nothing() -> None:
    result = interlock("resume", "orders", "--json")

    assert result.exit_code == 0
    assert records(result.stdout) == [
        {"type": "resume", "pipeline": "orders", "reason": None, "until": None, "wasPaused": False}
    ]


def test_a_pipeline_whose_configuration_is_broken_can_still_be_paused_but_not_rerun() -> None:
    row = {"PK": "PIPELINE#orders", "SK": "CONFIG", "config": "pipeline: {id: orders"}
    in_store(lambda tables: tables.commit(Put(TableName.CONTROL, row)))

    assert interlock("pause", "orders", "--reason", "broken").exit_code == 0
    result = interlock("rerun", "orders", PERIOD)
    assert result.exit_code == 1
    assert "correct its file and push it" in result.stderr


# --- authors ----------------------------------------------------------------------------------------------------------


def actions_of(pipeline: str) -> list[tuple[object, object, object]]:
    async def read(tables: Tables) -> list[tuple[object, object, object]]:
        events = [stored.event for stored in await Events(tables).latest(pipeline)]
        made = [event.detail for event in events if event.type == "OPERATOR_ACTION"]
        return [(detail["action"], detail["requestedBy"], detail["via"]) for detail in made]

    return in_store(read)


def test_the_author_of_a_rerun_and_a_cancellation_is_in_the_request_the_event_and_the_history() -> None:
    put_run(State.EVALUATING)

    assert interlock("cancel", "orders", PERIOD, "--reason", "wrong file", "--as", "ada").exit_code == 0

    request = asked_cancel()
    assert request is not None
    assert (request.by, request.via) == ("ada", "cli")
    assert actions_of("orders") == [("cancel", "ada", "cli")]
    assert "ada requested cancel of" in interlock("history", "orders", PERIOD).stdout


@pytest.mark.parametrize("command", [("rerun", PERIOD), ("replay", PERIOD, PERIOD, "--yes")], ids=["rerun", "replay"])
def test_without_a_name_the_author_is_the_user_of_the_process(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    put_run(State.COMPLETED)
    name, *rest = command

    assert interlock(name, "orders", *rest).exit_code == 0

    request = asked_rerun()
    assert request is not None
    assert (request.by, request.via) == ("grace", "cli")
    assert actions_of("orders") == [(name, "grace", "cli")]


def test_the_author_of_a_pause_and_of_its_end_is_recorded() -> None:
    assert interlock("pause", "orders", "--reason", "upgrade", "--as", "ada").exit_code == 0
    assert interlock("resume", "orders", "--as", "grace").exit_code == 0
    assert interlock("resume", "orders", "--as", "grace").exit_code == 0  # not paused: nothing was done

    assert sorted(actions_of("orders")) == [("pause", "ada", "cli"), ("resume", "grace", "cli")]


def test_a_forecast_records_no_author() -> None:
    put_run(State.EVALUATING)

    interlock("cancel", "orders", PERIOD, "--reason", "wrong file", "--dry-run")

    assert actions_of("orders") == []
