"""`interlock status`: which runs, in which order, and what each waits for."""

import io
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from scheduler.watchdog.alerts import Alert, Alerts
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
from tests.support.fakes.remote_store import DROP_BEFORE, FaultyTables, Operation, always
from worker.cli.commands.status_table import REFRESH_S, StatusRequest, show_board
from worker.cli.terminal.console import Screen, passed
from worker.cli.terminal.store_session import Exit
from worker.config.store_setting import GROUP
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.effects import EmitEvent
from worker.core.model.events import Event, EventType
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.values import Json
from worker.core.run.state import DryRun, Outcome, Run, Spent, StartStep, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.operations.explain.waiting import waits_for
from worker.operations.runs.missed_runs import READ_MAX
from worker.operations.runs.status import Rank, RunLine, RunList, RunLists
from worker.store.repos import dry_runs
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sessions import Sessions
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Put, Row, TableName, Tables

HOUR = timedelta(hours=1)
START_ONE = "Start one with `interlock run`; until then nothing is processed."
OTHER = ORDERS.replace("orders", "sales")


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, ORDERS, OTHER)


def put_runs(*runs: Run) -> None:
    async def put(tables: Tables) -> None:
        config = await version_hash(tables)
        for run in runs:
            await Runs(tables).save(replace(run, config_hash=config))

    in_store(put)


def a_run(state: State, period: str = PERIOD, **changes: object) -> Run:
    return replace(a_stored_run(state, "", key=key_of(period)), **changes)


def put_row(row: Row) -> None:
    in_store(lambda tables: tables.commit(Put(TableName.CONTROL, row)))


def lines(*arguments: object) -> list[dict[str, Json]]:
    return [dict(record) for record in records(interlock("status", *arguments, "--json").stdout)]


def test_failures_come_first_then_what_is_active_then_what_nobody_needs_to_look_at() -> None:
    put_runs(
        a_run(State.COMPLETED, "2027-03-18", outcome=Outcome.SUCCEEDED),
        a_run(State.POLLING, "2027-03-19"),
        a_run(State.FAILED_FINAL, "2027-03-20", outcome=Outcome.FAILED, reason="out of memory"),
        a_run(State.EVALUATING, "2027-03-21", since=TODAY - HOUR),
        a_run(State.FAILED_FINAL, "2027-03-17", outcome=Outcome.CANCELLED, reason="wrong export"),
    )

    found = lines()

    assert [(line["kind"], line["period"]) for line in found] == [
        ("failed", "2027-03-20"),
        ("active", "2027-03-21"),
        ("active", "2027-03-19"),
        ("cancelled", "2027-03-17"),
        ("completed", "2027-03-18"),
    ]
    assert found[0]["waitsFor"] == "out of memory"


def test_a_missed_run_is_shown_until_it_exists() -> None:
    def told(period: str, at: datetime) -> Event:
        return Event(
            id=f"missed-{period}",
            type=EventType.SCHEDULE_MISSED,
            at=at,
            pipeline=PipelineId("orders"),
            schedule=ScheduleId("stream"),
            period=period,
            message=f"orders/stream/{period} did not start, as scheduled",
        )

    async def put(tables: Tables) -> None:
        for event in (
            told("2027-03-18", TODAY - 72 * HOUR),
            told("2027-03-20", TODAY - HOUR),
            told("2027-03-21", TODAY),
        ):
            await tables.commit(event_write(event))

    in_store(put)
    put_runs(a_run(State.POLLING, "2027-03-19"), a_run(State.EVALUATING, "2027-03-21"))

    for arguments in ((), ("orders",)):
        found = lines(*arguments)

        assert [(line["kind"], line["period"], line["status"]) for line in found] == [
            ("missed", "2027-03-20", "missed"),
            ("active", "2027-03-19", "running"),
            ("active", "2027-03-21", "waiting"),
        ]
        assert found[0]["waitsFor"] == "did not start, as scheduled"
        assert "1 missed, 2 active" in interlock("status", *arguments).stdout


def report_missed(*periods: str, pipeline: str = "orders") -> None:
    """Let the watchdog report runs that did not start: more than three of a pipeline in one event."""

    def alert(period: str) -> Alert:
        key = key_of(period, pipeline)
        tell = EmitEvent(type=EventType.SCHEDULE_MISSED, message=f"{key} did not start", detail={"source": "watchdog"})
        return Alert(key=key, due_at=TODAY - HOUR, tell=tell)

    in_store(lambda tables: Alerts(tables, ManualClock(TODAY)).tell([alert(period) for period in periods]))


@pytest.mark.parametrize("arguments", [(), ("orders",)])
@pytest.mark.parametrize("missed", [3, 4, 21, 48])
def test_runs_that_were_missed_together_are_all_missed(missed: int, arguments: tuple[str, ...]) -> None:
    report_missed(*days(missed, first="2026-09-01"))

    found = [line for line in lines(*arguments) if line["type"] == "run"]

    named = min(missed, 20)  # a summary names no more
    assert [line["period"] for line in found] == days(missed, first="2026-09-01")[:named]
    assert all(line["kind"] == "missed" for line in found)
    if missed > named:
        assert cuts(*arguments) == [("missed", 20, 20, False)]
        assert last_line(*arguments) == "at least 20 missed; use `interlock schedule missed` to see all"
    else:
        assert cuts(*arguments) == []
        assert last_line(*arguments) == f"{missed} missed"


def test_a_run_that_was_deleted_or_whose_pipeline_was_removed_is_not_missed() -> None:
    report_missed("2027-03-20", "2027-03-21")
    report_missed("2027-03-20", pipeline="sales")
    put_runs(a_run(State.COMPLETED, "2027-03-21", outcome=Outcome.SUCCEEDED))

    assert interlock("runs", "delete", "orders", "2027-03-21", "--reason", "a trial", "--yes").exit_code == 0
    in_store(lambda tables: Pipelines(tables).remove(PipelineId("sales")))

    assert last_line() == last_line("orders") == "1 missed"


def test_missed_runs_of_others_take_no_room_from_those_of_a_pipeline() -> None:
    report_missed("2027-03-20")

    async def report_many(tables: Tables) -> None:
        for number in range(READ_MAX):
            event = Event(
                id=f"{number}",
                type=EventType.SCHEDULE_MISSED,
                at=TODAY + timedelta(seconds=number + 1),
                pipeline="gone",
                schedule="cron",
                period="2027-03-20",
            )
            await tables.commit(event_write(event))

    in_store(report_many)

    assert last_line("orders") == "1 missed"
    assert cuts() == [("missed", 0, 0, False)]
    assert last_line() == "at least 0 missed; use `interlock schedule missed` to see all"


def test_a_completed_run_shows_until_when_it_is_monitored() -> None:
    put_runs(
        a_run(State.COMPLETED, "2027-03-18", outcome=Outcome.SUCCEEDED, window_ends_at=TODAY + HOUR),
        a_run(State.COMPLETED, "2027-03-17", outcome=Outcome.SUCCEEDED, window_ends_at=TODAY),
    )

    shown = {line["period"]: line for line in lines()}

    assert shown["2027-03-18"]["waitsFor"] == "monitoring its results until 2027-03-22T13:00:00Z"
    assert (shown["2027-03-18"]["status"], shown["2027-03-18"]["monitoredUntil"]) == (
        "completed",
        "2027-03-22T13:00:00Z",
    )
    assert shown["2027-03-17"]["waitsFor"] == ""


def test_a_waiting_run_says_which_rule_it_waits_for() -> None:
    put_runs(a_run(State.EVALUATING))
    interlock("sensor", "put", "orders", f"export#{PERIOD}", "rows=950")

    assert lines()[0]["waitsFor"] == "export.rows is 950, which is not at least 1000"


def test_a_waiting_run_whose_rules_hold_says_so() -> None:
    put_runs(a_run(State.EVALUATING))
    interlock("sensor", "put", "orders", "export", "rows=1000")

    assert lines()[0]["waitsFor"] == "its next evaluation; all rules pass"


def test_a_run_whose_version_is_gone_is_shown_all_the_same() -> None:
    in_store(lambda tables: Runs(tables).save(a_run(State.EVALUATING, config_hash="gone")))

    assert lines()[0]["waitsFor"] == "its configuration, which was deleted"


@pytest.mark.parametrize(
    ("run", "waiting"),
    [
        (a_run(State.EVALUATING), "its upstreams"),
        (a_run(State.EVALUATING, window_ends_at=TODAY), "its rules"),
        (a_run(State.TRIGGERING, start_step=StartStep.SENT), "the job to start"),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, start_after=TODAY),
            "the next try to start the job at 2027-03-22T12:00:00Z; the target rejected it 2 times",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=1, reason="no such job"),
            "the next try to start the job; the target rejected it once: no such job",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, starts_unanswered=1),
            "the next try to start the job; it may be running: 1 of 2 tries got no answer",
        ),
        (a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED), "the target to confirm whether the job started"),
        (
            a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED, reason="no answer in 30 s"),
            "the target to confirm whether the job started: no answer in 30 s",
        ),
        (a_run(State.POLLING), "the job"),
        (a_run(State.STOPPING, reason="superseded: again"), "the job to stop: superseded: again"),
        (a_run(State.FAILED_FINAL, reason="out of memory"), "out of memory"),
        (a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED, reason="wrong export"), "wrong export"),
    ],
)
def test_every_state_has_words_for_what_it_waits_for(run: Run, waiting: str) -> None:
    assert waits_for(run) == waiting


def test_deadlines_stand_beside_their_runs() -> None:
    put_runs(a_run(State.POLLING))
    watch = SlaWatch(key=key_of(), config_hash="c", since=TODAY, breach_at=TODAY + HOUR, warned_at=TODAY)
    in_store(lambda tables: SlaWatches(tables).save(watch))

    assert lines()[0]["breachAt"] == "2027-03-22T13:00:00Z"
    assert "in 1h00m, warned" in interlock("status").stdout


def test_what_ended_longer_ago_is_shown_on_request() -> None:
    put_runs(a_run(State.FAILED_FINAL, since=TODAY - timedelta(days=3)))

    assert lines() == []
    assert len(lines("--days", 4)) == 1


def test_a_rehearsal_is_shown_as_one() -> None:
    dry = DryRun(key=key_of(), config_hash="c", since=TODAY, window_ends_at=TODAY + HOUR)
    in_store(lambda tables: tables.commit(dry_runs.save_write(dry)))

    assert [(line["kind"], line["state"]) for line in lines()] == [("in dry run", "EVALUATING")]
    assert [line["kind"] for line in lines("orders")] == ["in dry run"]


def test_a_row_that_cannot_be_read_is_named_and_hides_nothing() -> None:
    put_runs(a_run(State.POLLING, "2027-03-21"))
    key = key_of()
    pk, sk = keys.pipeline_pk(key.pipeline), keys.trigger_sk(key)
    put_row({"PK": pk, "SK": sk, "state": "DANCING", "active": keys.active_bucket_of(pk, sk)})

    assert [line["kind"] for line in lines()] == ["unreadable", "active"]


# --- what is not shown ------------------------------------------------------------------------------------------------


def days(number: int, *, first: str = "2026-06-01") -> list[str]:
    return [str(date.fromisoformat(first) + timedelta(days=each)) for each in range(number)]


def cuts(*arguments: object) -> list[tuple[Json, Json, Json, Json]]:
    """What the records say is left out: of what, how many are shown, how many there are, and whether that is exact."""
    return [
        (line["what"], line["shown"], line["total"], line["isExact"])
        for line in lines(*arguments)
        if line["type"] == "truncated"
    ]


def last_line(*arguments: object) -> str:
    return interlock("status", *arguments).stdout.splitlines()[-1]


@pytest.mark.parametrize(("active", "limit"), [(5, 2), (3, 1), (61, 50), (61, 60)])
def test_more_active_runs_than_fit_are_counted_whether_or_not_a_pipeline_is_named(active: int, limit: int) -> None:
    put_runs(*(a_run(State.POLLING, day) for day in days(active)))

    assert last_line("--limit", limit) == f"{active} active ({limit} shown); raise --limit to see all"
    assert cuts("--limit", limit) == [("active", limit, active, True)]
    assert last_line("orders", "--limit", limit).startswith(f"{active} active")


def test_active_runs_of_a_pipeline_are_shown_whatever_ran_after_them() -> None:
    put_runs(*(a_run(State.POLLING, day) for day in days(11)))
    put_runs(*(a_run(State.COMPLETED, day) for day in days(40, first="2026-09-01")))
    put_runs(*(a_run(State.FAILED_FINAL, day) for day in days(10, first="2026-12-01")))

    found = [line for line in lines("orders", "--limit", 50) if line["type"] == "run"]

    assert Counter(str(line["kind"]) for line in found) == {"active": 11, "completed": 40, "failed": 10}
    assert cuts("orders", "--limit", 50) == []
    assert last_line("orders", "--limit", 50) == "10 failed, 11 active, 40 completed"


def test_earlier_periods_of_a_pipeline_that_are_not_shown_are_mentioned() -> None:
    put_runs(*(a_run(State.COMPLETED, day) for day in days(4)))

    assert last_line("orders", "--limit", 3) == "3 completed; earlier periods are not shown: raise --limit"
    assert cuts("orders", "--limit", 3) == [("periods", 3, None, False)]
    assert cuts("orders", "--limit", 4) == []


def test_with_more_active_runs_than_fit_ended_ones_of_earlier_periods_are_still_mentioned() -> None:
    put_runs(a_run(State.COMPLETED, "2026-01-01"), *(a_run(State.POLLING, day) for day in days(3)))

    assert cuts("orders", "--limit", 3) == [("periods", 3, None, False)]
    assert cuts("orders", "--limit", 1) == [("active", 2, 3, True), ("periods", 1, None, False)]


@pytest.mark.parametrize("ended", [3, 20])
def test_ended_runs_beyond_the_limit_are_counted(ended: int) -> None:
    put_runs(*(a_run(State.FAILED_FINAL, day, outcome=Outcome.FAILED) for day in days(ended)))

    found = cuts("--limit", 2)

    if ended == 3:
        assert found == [("failed", 2, 3, True)]
        assert last_line("--limit", 2) == "3 failed (2 shown); raise --limit to see all"
    else:  # some of the sixteen parts of the list were not read to their end
        [(what, shown, total, is_exact)] = found
        assert (what, shown, is_exact) == ("failed", 2, False)
        assert isinstance(total, int)
        assert 2 < total <= ended
        assert last_line("--limit", 2) == f"at least {total} failed (2 shown); raise --limit to see all"


def test_ended_runs_of_earlier_days_are_counted_although_the_first_day_fills_the_list() -> None:
    put_runs(*(a_run(State.COMPLETED, day) for day in days(2)))
    put_runs(*(a_run(State.COMPLETED, day, since=TODAY - 24 * HOUR) for day in days(3, first="2026-09-01")))

    assert cuts("--limit", 2) == [("completed", 2, 5, True)]


def test_counting_ends_somewhere_and_says_so() -> None:
    put_runs(*(a_run(State.COMPLETED, day) for day in days(2)))
    put_runs(*(a_run(State.COMPLETED, day, since=TODAY - 24 * HOUR) for day in days(3, first="2026-09-01")))

    board = in_store(lambda tables: RunLists(tables, counted_max=2).of_all(TODAY, days=2, limit=1))

    assert (board.totals[Rank.DONE], Rank.DONE in board.uncounted) == (2, True)


def test_cancelled_runs_take_no_room_from_failed_ones() -> None:
    put_runs(*(a_run(State.FAILED_FINAL, day, outcome=Outcome.CANCELLED) for day in days(4)))
    put_runs(a_run(State.FAILED_FINAL, "2026-12-01", outcome=Outcome.FAILED, since=TODAY - HOUR))

    kinds = [line["kind"] for line in lines("--limit", 2) if line["type"] == "run"]
    assert kinds == ["failed", "cancelled", "cancelled"]


def test_rehearsals_take_no_room_from_runs() -> None:
    put_runs(*(a_run(State.POLLING, day) for day in days(2)))

    async def rehearse(tables: Tables) -> None:
        for day in days(3, first="2026-09-01"):
            dry = DryRun(key=key_of(day), config_hash="c", since=TODAY - HOUR, window_ends_at=TODAY + HOUR)
            await tables.commit(dry_runs.save_write(dry))

    in_store(rehearse)

    assert last_line("--limit", 2) == "2 active, 3 in dry run (2 shown); raise --limit to see all"


def test_what_fits_is_not_called_cut() -> None:
    put_runs(*(a_run(State.POLLING, day) for day in days(2)), a_run(State.FAILED_FINAL, "2026-09-01"))

    assert cuts("--limit", 2) == cuts("orders", "--limit", 3) == []
    assert last_line("--limit", 2) == "1 failed, 2 active"


def test_an_empty_store_has_no_runs() -> None:
    assert interlock("status").stdout == "no runs\n"


def test_a_store_that_does_not_answer_is_one_failure_however_many_reads_failed() -> None:
    async def read(tables: Tables) -> None:
        gone = FaultyTables(tables, always(DROP_BEFORE), patience_s=0.001)
        with pytest.raises(RetryLater):
            await RunLists(gone).of_all(TODAY, days=1, limit=1)

    in_store(read)


# --- one pipeline -----------------------------------------------------------------------------------------------------


def test_of_one_pipeline_its_latest_runs_are_shown_whenever_they_ended() -> None:
    put_runs(
        a_run(State.COMPLETED, "2027-01-01", since=TODAY - timedelta(days=80), spent=Spent()),
        replace(a_run(State.POLLING), key=key_of(pipeline="sales")),
    )
    key = key_of("2027-01-02")
    put_row({"PK": keys.pipeline_pk(key.pipeline), "SK": keys.trigger_sk(key), "status": "COMPLETED"})

    found = lines("orders")

    assert [(line["period"], line["waitsFor"]) for line in found] == [
        ("2027-01-01", ""),
        ("2027-01-02", "another system's run"),
    ]


def test_an_unknown_pipeline_is_refused_with_a_suggestion() -> None:
    result = interlock("status", "ordres")

    assert result.exit_code == 2
    assert "did you mean `orders`?" in result.stderr


def test_a_paused_pipeline_says_so_while_it_is_paused() -> None:
    interlock("pause", "orders", "--reason", "upgrade", "--until", "1h")

    during = interlock("status", "orders")
    after = interlock("status", "orders", clock=ManualClock(TODAY + HOUR))

    assert "orders is paused until 2027-03-22T13:00:00Z: upgrade\n" in during.stdout
    assert "paused" not in after.output


def test_a_paused_pipeline_is_shown_among_all_and_its_waiting_run_is_paused() -> None:
    put_runs(a_run(State.EVALUATING, "2027-03-21"), a_run(State.POLLING))
    interlock("pause", "orders", "--reason", "upgrade")

    result = interlock("status")

    assert result.stdout.endswith("orders is paused until it is resumed: upgrade\n")
    assert [(line["state"], line["status"]) for line in lines()] == [("EVALUATING", "paused"), ("POLLING", "running")]


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (a_run(State.EVALUATING), "waiting"),
        (a_run(State.TRIGGERING), "starting"),
        (a_run(State.POLLING), "running"),
        (a_run(State.STOPPING), "stopping"),
        (a_run(State.COMPLETED), "completed"),
        (a_run(State.FAILED_FINAL, outcome=Outcome.FAILED), "failed"),
        (a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED), "cancelled"),
    ],
)
def test_a_state_is_shown_in_plain_words_and_json_has_both(run: Run, status: str) -> None:
    put_runs(run)

    [line] = lines()

    assert (line["state"], line["status"]) == (run.state, status)
    assert interlock("status").stdout.splitlines()[1].split()[:2] == [f"orders/{PERIOD}", status]


def test_a_schedule_is_named_if_there_are_several() -> None:
    several = [replace(a_run(State.POLLING), key=replace(key_of(), schedule=ScheduleId(name))) for name in ("a", "b")]
    put_runs(*several)

    assert {line.split()[0] for line in interlock("status").stdout.splitlines()[1:3]} == {
        f"orders/a/{PERIOD}",
        f"orders/b/{PERIOD}",
    }


def test_a_pipeline_whose_configuration_cannot_be_used_is_not_called_unknown() -> None:
    put_row({"PK": "PIPELINE#orders", "SK": "CONFIG", "config": "pipeline: {id: orders"})

    result = interlock("status", "orders")

    assert result.exit_code == 1
    assert "the configuration of orders cannot be used" in result.stderr


def test_the_cost_of_the_board_does_not_grow_with_what_ever_happened() -> None:
    put_runs(a_run(State.POLLING))

    async def calls(tables: Tables) -> dict[Operation, int]:
        counting = FaultyTables(tables)
        await RunLists(counting).of_all(TODAY, days=2, limit=10)
        return dict(counting.calls)

    few = in_store(calls)
    put_runs(*(a_run(State.COMPLETED, f"2026-{month:02d}-01", since=TODAY - 9 * HOUR * 24) for month in range(1, 13)))
    many = in_store(calls)

    assert few == many


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_its_terminal(width: int) -> None:
    out = io.StringIO()
    screen = Screen(out=Console(file=out, force_terminal=True, width=width, color_system=None))
    watch = SlaWatch(key=key_of(), config_hash="c", since=TODAY, breach_at=TODAY, verdict=Verdict.BREACHED)
    line = RunLine(
        rank=Rank.FAILED,
        name=str(key_of()),
        key=key_of(),
        state="FAILED_FINAL",
        status="failed",
        since=TODAY - HOUR,
        attempt=3,
        waits_for="the rules did not hold in time: " + "export.rows is 950, which is not at least 1000; " * 3,
        watch=watch,
    )

    show_board(screen, RunList((line,)), StatusRequest(pipeline=None, days=1, limit=1, as_json=False), TODAY)

    shown = out.getvalue().splitlines()
    assert max(map(len, shown)) <= width
    assert "breached" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (45, "45s"), (720, "12m"), (12000, "3h20m"), (90000, "25h00m"), (345600, "4d")],
)
def test_a_time_that_passed_is_shown_as_people_say_it(seconds: int, shown: str) -> None:
    assert passed(timedelta(seconds=seconds)) == shown


class Impatient(ManualClock):
    """A person who looks three times and then presses Ctrl-C."""

    looks = 0

    async def sleep(self, seconds: float) -> None:
        self.looks += 1
        if self.looks == 3:
            raise KeyboardInterrupt
        await super().sleep(seconds)


def test_watching_shows_it_anew_until_interrupted() -> None:
    put_runs(a_run(State.POLLING))
    clock = Impatient(TODAY)

    result = interlock("status", "--watch", clock=clock)

    assert result.exit_code == 0
    assert result.stdout.count("orders/2027-03-22") == 3
    assert clock.now() == TODAY + 2 * timedelta(seconds=REFRESH_S)


def test_watching_a_store_that_accepts_no_writes_shows_it_and_ends_with_the_reason(here: Path) -> None:
    put_runs(a_run(State.POLLING))
    with closing(sqlite3.connect(here / "interlock.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        result = interlock("status", "--watch", clock=Impatient(TODAY))

    assert result.exit_code == Exit.LATER
    assert result.stdout.count("orders/2027-03-22") == 1
    assert "locked" in result.stderr


@pytest.mark.parametrize(
    "command",
    [["status"], ["explain", "orders"], ["rerun", "orders", PERIOD], ["cancel", "orders", PERIOD, "--reason=x"]],
)
def test_where_nobody_works_that_is_said_once(command: list[str]) -> None:
    alone = interlock(*command)
    for_programs = interlock(*command, "--json")
    in_store(lambda tables: Sessions(tables, GROUP).register(SessionId("one"), "1.0"))
    staffed = interlock(*command)

    assert alone.stderr.count(f"No worker is running on this store. {START_ONE}") == 1
    assert "No worker" not in for_programs.output + staffed.output


@pytest.mark.parametrize(("silent", "said"), [(timedelta(seconds=59), ""), (timedelta(minutes=12), "for 12m")])
def test_a_worker_that_was_killed_left_its_row_and_is_not_taken_for_one(silent: timedelta, said: str) -> None:
    in_store(lambda tables: Sessions(tables, GROUP).register(SessionId("one"), "1.0", at=TODAY - silent))

    remark = interlock("status").stderr

    expected = f"No worker has sent a heartbeat {said}. {START_ONE}\n" if said else ""
    assert remark == expected


def test_one_worker_that_is_heard_of_is_enough() -> None:
    async def two(tables: Tables) -> None:
        for name, silent in (("one", timedelta(hours=1)), ("two", timedelta(seconds=2))):
            await Sessions(tables, GROUP).register(SessionId(name), "1.0", at=TODAY - silent)

    in_store(two)

    assert interlock("status").stderr == ""


def test_who_watches_is_told_that_nobody_works() -> None:
    clock = Impatient(TODAY)

    assert interlock("status", "--watch", clock=clock).stderr.count("No worker is running on this store.") == 3
