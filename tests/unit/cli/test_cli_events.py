"""`interlock events` and `interlock history`: what was told, and what was recorded, in order."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store, key_of
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.core.errors import Rejected
from worker.core.model import keys
from worker.core.model.events import Event
from worker.core.model.values import Json
from worker.core.run.state import State
from worker.core.sla.state import SlaWatch, Verdict
from worker.operations.runs.events import EventReader
from worker.store.backends.open import open_tables
from worker.store.repos.events import event_write
from worker.store.repos.job_log import JobLine, JobLog
from worker.store.repos.reruns import Rerun, Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Put, TableName, Tables

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here)


def an_event(
    number: int, kind: str = "JOB_FAILED", *, at: datetime = TODAY - MINUTE, pipeline: str = "orders"
) -> Event:
    return Event(
        id=f"e{number}",
        type=kind,
        at=at,
        pipeline=pipeline,
        schedule="stream",
        period=PERIOD,
        message=f"{pipeline}/stream/{PERIOD}: number {number}",
        detail={"attempt": number},
    )


def put_events(*events: Event) -> None:
    async def put(tables: Tables) -> None:
        for event in events:
            await tables.commit(event_write(event))

    in_store(put)


def told(*arguments: object) -> list[Json]:
    return [record["id"] for record in records(interlock("events", *arguments, "--json").stdout)]


def test_events_of_all_pipelines_are_shown_in_order_of_time() -> None:
    put_events(
        an_event(1, "SLA_BREACH", at=TODAY - 2 * MINUTE),
        an_event(2, "JOB_FAILED", at=TODAY - 3 * MINUTE, pipeline="sales"),
        an_event(3, "JOB_TRIGGERED", at=TODAY - MINUTE),
    )

    assert told() == ["e2", "e1", "e3"]


@pytest.mark.parametrize("chosen", [[], ["--pipeline", "orders"]])
def test_events_of_one_time_are_shown_as_they_came_about(chosen: list[str]) -> None:
    decided = [("VALIDATION_PASSED", 2), ("JOB_TRIGGERED", 3), ("JOB_FAILED", 4), ("RETRY_EXHAUSTED", 4)]
    rehearsed = [("DRY_RUN_WOULD_TRIGGER", 5), ("DRY_RUN_SLA_PROJECTION", 5), ("DRY_RUN_COMPLETED", 5)]
    told_at_once = [
        replace(an_event(9 - number, kind), detail={"version": version})
        for number, (kind, version) in enumerate([*decided, *rehearsed])
    ]
    put_events(*told_at_once)

    assert told(*chosen) == [event.id for event in told_at_once]


def test_events_are_chosen_by_pipeline_type_and_time() -> None:
    put_events(
        an_event(1, "SLA_BREACH", at=TODAY - timedelta(hours=5)),
        an_event(2, "JOB_FAILED"),
        an_event(3, "SLA_BREACH", pipeline="sales"),
        an_event(4, "SLA_WARNING"),
    )

    assert told("--pipeline", "sales") == ["e3"]
    assert told("--type", "sla_breach") == ["e1", "e3"]
    assert told("--type", "SLA_BREACH", "--type", "SLA_WARNING", "--pipeline", "orders") == ["e1", "e4"]
    assert told("--since", "2h") == ["e2", "e4", "e3"]
    assert told("--since", "1w") == told("--since", "7d") == ["e1", "e2", "e4", "e3"]
    assert told("--since", "2027-03-22T11:59:30Z") == []


def test_events_of_others_are_found_along_their_pipeline() -> None:
    put_events(an_event(1, "SOMETHING_ELSE"))

    assert told("--pipeline", "orders") == ["e1"]
    assert told("--pipeline", "orders", "--type", "SOMETHING_ELSE") == ["e1"]


def test_a_mistyped_type_is_refused_with_a_suggestion() -> None:
    result = interlock("events", "--type", "SLA_BREECH")

    assert result.exit_code == 2
    assert "did you mean `SLA_BREACH`?" in result.stderr


def test_the_latest_events_are_shown_and_the_others_counted() -> None:
    put_events(*(an_event(number, at=TODAY - (9 - number) * MINUTE) for number in range(5)))

    result = interlock("events", "--limit", 2)

    assert result.stdout.splitlines() == [
        f"2027-03-22T11:54:00.000Z  JOB_FAILED  orders/{PERIOD}: number 3",
        f"2027-03-22T11:55:00.000Z  JOB_FAILED  orders/{PERIOD}: number 4",
        "5 events since 2027-03-21T12:00:00Z, the latest 2 shown",
    ]
    assert "3 earlier events not shown" in result.stderr


@pytest.mark.parametrize("chosen", [[], ["--pipeline", "orders"]])
@pytest.mark.parametrize(("number", "limit"), [(5, 2), (3, 1), (4, 4), (2, 4)])
def test_a_program_is_told_of_the_events_that_are_not_shown(chosen: list[str], number: int, limit: int) -> None:
    put_events(*(an_event(each, at=TODAY - (9 - each) * MINUTE) for each in range(number)))

    found = records(interlock("events", "--limit", limit, "--json", *chosen).stdout)

    cut = [(each["what"], each["shown"], each["total"]) for each in found if each["type"] == "truncated"]
    assert cut == ([("events", limit, number)] if number > limit else [])
    assert len([each for each in found if each["type"] == "event"]) == min(number, limit)


@pytest.mark.parametrize("pipeline", [None, "orders"])
def test_more_events_than_anyone_reads_are_refused(pipeline: str | None) -> None:
    put_events(*(an_event(number) for number in range(3)))

    async def read(tables: Tables) -> None:
        await EventReader(tables, TODAY - 2 * MINUTE, pipeline=pipeline, read_max=3).news(TODAY)
        with pytest.raises(Rejected, match="choose a later --since"):
            await EventReader(tables, TODAY - 2 * MINUTE, pipeline=pipeline, read_max=2).news(TODAY)

    in_store(read)


class Happening(ManualClock):
    """While somebody follows, an event is committed; it may carry a time that has passed already."""

    naps = 0

    async def sleep(self, seconds: float) -> None:
        self.naps += 1
        if self.naps == 4:
            raise KeyboardInterrupt
        await super().sleep(seconds)
        if self.naps == 2:
            tables = open_tables("sqlite:///interlock.db", self)
            await tables.start()
            await tables.commit(event_write(an_event(2, at=TODAY - timedelta(seconds=30))))
            await tables.stop()


@pytest.mark.parametrize("chosen", [[], ["--pipeline", "orders"], ["--type", "JOB_FAILED"]])
def test_following_shows_each_event_once_even_one_that_comes_late(chosen: list[str]) -> None:
    put_events(an_event(1, at=TODAY - timedelta(seconds=10)))

    result = interlock("events", "--follow", *chosen, "--json", clock=Happening(TODAY))

    assert result.exit_code == 0
    assert [record["id"] for record in records(result.stdout)] == ["e1", "e2"]


# --- history ----------------------------------------------------------------------------------------------------------


async def _life(tables: Tables) -> None:
    key = key_of()
    run = a_stored_run(State.COMPLETED, "c", since=TODAY)
    await Runs(tables).save(run)
    for number, event in enumerate(("fail", "success"), start=1):
        line = JobLine(id=f"l{number}", at=TODAY + number * MINUTE, attempt=number, event=event, error="", run_id="j1")
        await JobLog(tables).append(key, line)
    rerun = Rerun(id="r", reason="job-fail-retry", at=TODAY + MINUTE, attempt=2, source_event="fail")
    await Reruns(tables).record(key, rerun)
    await tables.commit(event_write(an_event(1, at=TODAY + MINUTE)))
    await tables.commit(event_write(an_event(2, "SOMETHING", at=TODAY + MINUTE, pipeline="sales")))
    watch = SlaWatch(
        key=key, config_hash="c", since=TODAY + 3 * MINUTE, breach_at=TODAY + 9 * MINUTE, verdict=Verdict.MET
    )
    await SlaWatches(tables).save(watch)


def test_a_history_has_every_record_in_order() -> None:
    in_store(_life)

    found = records(interlock("history", "orders", PERIOD, "--json").stdout)

    assert [(moment["source"], moment["what"], moment["attempt"]) for moment in found] == [
        ("run", "created", None),
        ("run", "COMPLETED", 1),
        ("rerun", "rerun 0", None),
        ("job log", "fail", 1),
        ("event", "JOB_FAILED", 1),
        ("job log", "success", 2),
        ("sla", "met", None),
    ]
    assert found[2]["message"] == "job-fail-retry after fail"


def test_a_history_is_printed_with_times_and_attempts() -> None:
    in_store(_life)

    lines = interlock("history", "orders", PERIOD).stdout.splitlines()

    assert lines[0] == f"orders/{PERIOD}"
    assert lines[4].split() == ["2027-03-22T12:01:00.000Z", "job", "log", "attempt", "1", "fail", "job", "j1"]
    assert lines[3].split()[1:4] == ["rerun", "rerun", "1"]  # its row is number 0
    assert lines[5].endswith("JOB_FAILED  number 1")
    assert lines[-1] == "7 records"


def test_without_a_period_it_is_the_history_of_the_run_under_way_and_that_is_said() -> None:
    under_way = a_stored_run(State.POLLING, "c", key=key_of("2027-03-20"))
    in_store(lambda tables: Runs(tables).save(under_way))

    shown, as_json = interlock("history", "orders"), interlock("history", "orders", "--json")

    assert shown.stdout.splitlines()[0] == "orders/2027-03-20"
    assert shown.stderr.startswith("No period given; showing the active run, 2027-03-20.\n")
    assert {record["period"] for record in records(as_json.stdout)} == {"2027-03-20"}
    assert (shown.exit_code, as_json.exit_code, as_json.stderr) == (0, 0, "")


def test_a_history_has_the_state_in_plain_words_and_json_has_both() -> None:
    run = a_stored_run(State.POLLING, "c", key=key_of("2027-03-20"))
    in_store(lambda tables: Runs(tables).save(run))

    shown, as_json = interlock("history", "orders"), interlock("history", "orders", "--json")

    assert "POLLING" not in shown.stdout
    assert "  running" in shown.stdout
    assert [(record["what"], record["status"]) for record in records(as_json.stdout)] == [
        ("created", None),
        ("POLLING", "running"),
    ]


def test_a_run_that_timed_out_is_not_called_by_the_name_of_a_service() -> None:
    put_events(an_event(1, "SFN_TIMEOUT"))

    assert "run timed out" in interlock("events").stdout
    assert "SFN_TIMEOUT" not in interlock("events").stdout
    assert records(interlock("events", "--json").stdout)[0]["eventType"] == "SFN_TIMEOUT"


def test_a_schedule_that_is_gone_has_a_history_of_a_named_period_alone() -> None:
    result = interlock("history", "orders", "--schedule", "old")

    assert result.exit_code == 2
    assert "pipeline orders has no schedule old" in result.stderr


def test_a_job_that_runs_is_named_so_that_people_find_it() -> None:
    started = an_event(1, "JOB_TRIGGERED")
    put_events(replace(started, detail={"attempt": 1, "job": {"token": "il-1", "pid": 7}}))

    [moment] = records(interlock("history", "orders", PERIOD, "--json").stdout)

    assert moment["message"] == f"{started.message}; job il-1"


def test_what_others_wrote_is_marked() -> None:
    key = key_of()
    partition = keys.pipeline_pk(key.pipeline)
    log = {"PK": partition, "SK": f"{keys.job_prefix(key)}{keys.millis_text(TODAY)}", "event": "success"}
    rerun = {"PK": partition, "SK": keys.rerun_sk(key, 0), "reason": "manual"}
    run = {"PK": partition, "SK": keys.trigger_sk(key), "status": "COMPLETED"}

    async def put(tables: Tables) -> None:
        await tables.commit(Put(TableName.JOBLOG, log), Put(TableName.RERUN, rerun), Put(TableName.CONTROL, run))

    in_store(put)
    found = records(interlock("history", "orders", PERIOD, "--json").stdout)

    assert [(moment["at"], moment["what"], moment["message"]) for moment in found] == [
        (None, "rerun 0", "manual"),
        (None, "COMPLETED", "another system's row, without times"),
        ("2027-03-22T12:00:00Z", "success", "written by others"),
    ]


def test_a_run_nothing_is_known_of_is_told_so() -> None:
    result = interlock("history", "orders", "2027-03-01")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "`interlock explain orders 2027-03-01` shows why" in result.stderr


def test_the_history_of_a_schedule_that_is_gone_can_still_be_read() -> None:
    in_store(
        lambda tables: JobLog(tables).append(key_of(schedule="old"), JobLine(id="l", at=TODAY, attempt=1, event="x"))
    )

    assert interlock("history", "orders", PERIOD, "--schedule", "old").exit_code == 0


def test_the_history_of_an_unknown_pipeline_is_refused_with_a_suggestion() -> None:
    result = interlock("history", "ordres", PERIOD)

    assert result.exit_code == 2
    assert "did you mean `orders`?" in result.stderr


def test_a_span_is_counted_in_whole_seconds_as_people_do() -> None:
    result = interlock("events", "--since", "2h", clock=ManualClock(TODAY + timedelta(microseconds=345587)))

    assert result.stdout == "0 events since 2027-03-22T10:00:00Z\n"


@pytest.mark.parametrize(("pipeline", "code"), [("orders", 0), ("ordres", 2)])
def test_silence_about_a_pipeline_that_is_not_there_is_explained(pipeline: str, code: int) -> None:
    result = interlock("events", "--pipeline", pipeline)

    assert (result.exit_code, result.stdout) == (code, "" if code else "0 events since 2027-03-21T12:00:00Z\n")
    assert ("did you mean `orders`?" in result.stderr) == (pipeline == "ordres")


def test_events_of_a_pipeline_that_was_removed_are_shown_without_a_word() -> None:
    put_events(an_event(1, pipeline="removed"))

    result = interlock("events", "--pipeline", "removed")

    assert "JOB_FAILED" in result.stdout
    assert result.stderr == ""
