"""`interlock reruns`, `replays` and `late-data list`, and `interlock logs`."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import TODAY, interlock, records
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json
from worker.core.run.state import EarlierAttempt, Run, State, start_token
from worker.operations.runs.job_output import secrets_of
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs
from worker.store.table import Tables

WITH_SECRET = """\
pipeline: {id: sealed}
schedule: {trigger: {key: ready, check: exists}, timezone: UTC}
job: {type: command, config: {command: load, environment: {KEY: "${INTERLOCK_SECRET_KEY}"}}}
"""
WITH_RUN_VARIABLES = """\
pipeline: {id: named}
schedule: {trigger: {key: ready, check: exists}, timezone: UTC}
job: {type: command, config: {command: [load, "--day", "$INTERLOCK_PERIOD", "--token=${INTERLOCK_TOKEN}"]}}
"""


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here)


def put_events(*events: Event) -> None:
    async def put(tables: Tables) -> None:
        for event in events:
            await tables.commit(event_write(event))

    in_store(put)


def event(kind: EventType, hours: int, message: str, *, pipeline: str = "orders", reason: str = "manual") -> Event:
    return Event(
        id=f"{kind}-{hours}-{pipeline}",
        type=kind,
        at=TODAY - timedelta(hours=hours),
        pipeline=pipeline,
        schedule="stream",
        period=PERIOD,
        message=message,
        detail={"reason": reason},
    )


def some_events() -> None:
    put_events(
        event(EventType.RERUN_ACCEPTED, 1, "first", reason="manual"),
        event(EventType.RERUN_REJECTED, 2, "second", pipeline="other", reason="no budget"),
        event(EventType.RERUN_ACCEPTED, 3, "third", reason="replay"),
        event(EventType.LATE_DATA_ARRIVAL, 4, "late"),
        event(EventType.RERUN_ACCEPTED, 24 * 10, "long ago"),
    )


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("reruns", "list"), ["first", "second", "third"]),
        (("reruns", "list", "--since", "2w"), ["first", "second", "third", "long ago"]),
        (("reruns", "list", "--pipeline", "orders"), ["first", "third"]),
        (("replays", "list"), ["third"]),
        (("replays", "list", "--pipeline", "orders"), ["third"]),
        (("late-data", "list"), ["late"]),
        (("late-data", "list", "--pipeline", "orders", "--since", "3h"), []),
    ],
)
def test_what_happened_to_runs_is_listed_latest_first(arguments: tuple[str, ...], messages: list[str]) -> None:
    some_events()

    result = interlock(*arguments, "--json")

    *found, end = records(result.stdout)
    assert result.exit_code == 0, result.stderr
    assert [each["message"] for each in found] == messages
    assert end == {"type": "end", "count": len(messages), "complete": True, "next": None}


def test_a_list_that_is_cut_says_so() -> None:
    some_events()

    shown = interlock("reruns", "list", "--limit", 2)
    as_json = records(interlock("reruns", "list", "--limit", 2, "--json").stdout)

    assert "there are or may be more" in shown.stderr
    assert "third" not in shown.stdout
    assert as_json[-1]["complete"] is False


def test_an_unknown_pipeline_is_an_error() -> None:
    assert interlock("late-data", "list", "--pipeline", "oders").exit_code == 2


# --- logs -------------------------------------------------------------------------------------------------------------


def put_run(pipeline: str = "orders", **changes: object) -> Run:
    async def put(tables: Tables) -> Run:
        run = a_stored_run(State.FAILED_FINAL, await version_hash(tables, pipeline), key=key_of(pipeline=pipeline))
        return await Runs(tables).save(replace(run, **changes))

    return in_store(put)


def write_output(here: Path, token: str, content: bytes) -> None:
    folder = here / "interlock.db-jobs" / token
    folder.mkdir(parents=True)
    (folder / "output.log").write_bytes(content)


def test_the_output_of_a_command_job_is_shown_without_control_characters(here: Path) -> None:
    run = put_run(job_type="command", job={"token": "x"})
    write_output(here, run.token, b"reading\n\x1b[31mno such table\x07\nlast \xff line")

    result = interlock("logs", "orders", PERIOD)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == ["reading", "[31mno such table", "last \N{REPLACEMENT CHARACTER} line"]


def test_a_command_that_names_its_run_has_an_output_to_show(here: Path) -> None:
    """Such names look like those of secrets, and nobody sets them where the output is looked at."""
    (here / "named.yaml").write_text(WITH_RUN_VARIABLES)
    interlock("pipelines", "push", "named.yaml", "--yes")
    run = put_run("named", job_type="command", job={"token": "x"})
    write_output(here, run.token, b"loading\n")

    result = interlock("logs", "named", PERIOD)

    assert (result.exit_code, result.stdout) == (0, "loading\n"), result.stderr


def test_of_a_job_that_is_no_program_the_same_names_are_secrets() -> None:
    config: dict[str, Json] = {"headers": {"X-Key": "${INTERLOCK_TOKEN}"}}

    assert secrets_of(config, {}, "http").unreadable == ["INTERLOCK_TOKEN"]
    assert secrets_of(config, {"INTERLOCK_TOKEN": "hush"}, "http").values == ["hush"]
    assert secrets_of(config, {}, "command").unreadable == []


def test_a_job_that_has_printed_nothing_is_not_sought_elsewhere(here: Path) -> None:
    run = put_run(job_type="command", job={"token": "x"})
    (here / "interlock.db-jobs" / run.token).mkdir(parents=True)

    result = interlock("logs", "orders", PERIOD)

    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "has printed nothing" in result.stderr


def test_without_a_period_the_output_of_the_last_run_is_shown(here: Path) -> None:
    run = put_run(job_type="command", job={"token": "x"})
    write_output(here, run.token, b"reading\n")

    result = interlock("logs", "orders")

    assert result.exit_code == 0, result.stderr
    assert result.stdout == "reading\n"
    assert f"{PERIOD}." in result.stderr


def test_a_run_that_does_not_exist_has_no_output_and_explain_says_why() -> None:
    result = interlock("logs", "orders", "2027-01-01")

    assert result.exit_code == 2
    assert "there is no run orders/2027-01-01" in result.stderr
    assert "`interlock explain orders 2027-01-01` shows what there is" in result.stderr
    assert interlock("explain", "orders", "2027-01-01").exit_code == 0


def test_an_earlier_attempt_has_its_own_output(here: Path) -> None:
    earlier = EarlierAttempt(number=1, job_type="command", job="x", ended_at=TODAY, outcome="failed")
    run = put_run(job_type="command", attempt=2, attempts=(earlier,))
    write_output(here, start_token(run.run_id, 1), b"first\n")
    write_output(here, run.token, b"second\n")

    first = records(interlock("logs", "orders", PERIOD, "--attempt", 1, "--json").stdout)
    last = interlock("logs", "orders", PERIOD)
    none = interlock("logs", "orders", PERIOD, "--attempt", 7)

    assert first == [{"type": "output", "attempt": 1, "line": "first"}]
    assert last.stdout == "second\n"
    assert none.exit_code == 2


def test_only_the_end_of_a_long_output_is_shown_and_that_is_said(here: Path) -> None:
    run = put_run(job_type="command", job={"token": "x"})
    write_output(here, run.token, b"".join(b"line %07d\n" % number for number in range(50_000)))

    result = interlock("logs", "orders", PERIOD)

    lines = result.stdout.splitlines()
    assert lines[-1] == "line 0049999"
    assert len(result.stdout) <= 262_144
    assert lines[0].startswith("line ")
    assert "earlier output is left out" in result.stderr


def test_secrets_are_hidden_and_an_output_whose_secrets_are_unknown_is_not_shown(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "sealed.yaml").write_text(WITH_SECRET)
    assert interlock("pipelines", "push", "sealed.yaml", "--yes").exit_code == 0
    run = put_run("sealed", job_type="command", job={"token": "x"})
    write_output(here, run.token, b"key is hunter2hunter2\n")

    unknown = interlock("logs", "sealed", PERIOD)
    monkeypatch.setenv("INTERLOCK_SECRET_KEY", "hunter2hunter2")
    known = interlock("logs", "sealed", PERIOD)

    assert unknown.exit_code == 1
    assert "hunter2" not in unknown.output
    assert "set INTERLOCK_SECRET_KEY" in unknown.stderr
    assert known.stdout == "key is ***\n"


def test_the_output_of_another_target_is_named_by_its_place() -> None:
    put_run(job_type="glue", job={"runId": "jr_17"})

    result = interlock("logs", "orders", PERIOD)

    assert result.exit_code == 1
    assert "stream jr_17" in result.stdout


def test_a_run_without_a_job_has_no_output() -> None:
    put_run()

    assert "started no job that is known" in interlock("logs", "orders", PERIOD).stdout
