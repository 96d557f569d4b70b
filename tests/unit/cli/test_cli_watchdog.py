"""`interlock watchdog run`: a round by hand, and one that only looks."""

import io
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from scheduler.watchdog.check import Finding, WatchdogCheck
from scheduler.watchdog.check_states import CheckState, states_data
from scheduler.watchdog.degraded import Degraded
from scheduler.watchdog.expectations_loader import OURSELVES
from scheduler.watchdog.rotation import SLICE
from scheduler.watchdog.watchdog import PassEnd, Watchdog
from tests.support.builders.cli_runs import a_store, in_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.cli.commands.watchdog import PassRequest, show_checks, show_report
from worker.cli.terminal.console import Screen
from worker.core.model.keys import watchdog_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.core.time.timestamps import format_rfc3339
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.store.repos.marks import Marks, move_write
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

DAILY = """\
pipeline: {id: daily}
schedule: {cron: "0 14 * * *", trigger: {key: ready, check: exists}}
job: {type: command, config: {command: load}}
"""
LATER = ManualClock(TODAY + timedelta(hours=3))


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    """A pipeline, and workers whose last round was right after it was deployed."""
    a_store(here, DAILY)
    up_to = {"upTo": format_rfc3339(TODAY + timedelta(seconds=1))}
    in_store(lambda tables: Marks(tables).put_once(PipelineId(""), watchdog_mark_sk("ledger"), up_to, TODAY))


def told() -> list[str]:
    found: list[str] = []

    async def read(tables: Tables) -> None:
        found.extend(stored.event.type for stored in await Events(tables).latest("daily"))

    in_store(read)
    return found


def test_a_dry_run_says_what_it_would_tell_and_tells_nothing() -> None:
    result = interlock("watchdog", "run", "--dry-run", clock=LATER)

    assert result.exit_code == 0, result.output
    assert "missed-schedules: 1 finding would be dealt with" in result.stdout
    assert "daily/cron/2027-03-22 has not begun" in result.stdout
    assert told() == []


def test_a_round_by_hand_tells_once_however_often_it_is_made() -> None:
    for _ in range(2):
        result = interlock("watchdog", "run", clock=LATER)
        assert result.exit_code == 0, result.output

    assert told() == ["SCHEDULE_MISSED"]


def test_a_round_by_hand_takes_up_a_lost_signal_at_once_for_it_is_the_only_one() -> None:
    interlock("sensor", "put", "daily", "ready", "status=done")
    result = interlock("watchdog", "run", "--check", "sensor-trigger-reconciliation")

    assert result.exit_code == 0, result.output
    assert told() == ["TRIGGER_RECOVERED"]


def test_only_the_checks_that_are_named_are_made() -> None:
    result = interlock("watchdog", "run", "--check", "trigger-deadlines", "--json", clock=LATER)

    assert [record["check"] for record in records(result.stdout)] == ["expected-runs", "trigger-deadlines"]
    assert told() == []


def test_a_check_that_does_not_exist_is_refused_with_those_that_do() -> None:
    result = interlock("watchdog", "run", "--check", "missed", clock=LATER)

    assert result.exit_code == 2
    assert "there is no check 'missed'" in result.output
    assert "missed-schedules" in result.output


def test_a_finding_about_many_runs_says_about_how_many(here: Path) -> None:
    hourly = DAILY.replace("0 14", "0 *")
    (here / "hourly.yaml").write_text(hourly.replace("daily", "hourly"))
    assert interlock("pipelines", "push", here / "hourly.yaml", "--yes").exit_code == 0
    later = ManualClock(TODAY + timedelta(hours=12))

    shown = interlock("watchdog", "run", "--dry-run", clock=later)
    found = records(interlock("watchdog", "run", "--dry-run", "--json", clock=later).stdout)

    assert "hourly/cron/2027-03-22T14 has not begun; and 8 more" in shown.stdout
    assert {each["leftOut"] for each in found} == {0}


def test_a_round_by_hand_looks_at_all_pipelines_for_nobody_goes_on_where_it_stopped() -> None:
    async def deploy(tables: Tables) -> None:
        names = [PipelineId(f"p{number:04d}") for number in range(SLICE)]
        await gather_bounded([partial(Pipelines(tables).put, name, DAILY.replace("daily", name)) for name in names])

    in_store(deploy)
    check = ["--check", "sensor-trigger-reconciliation"]

    [_, found] = records(interlock("watchdog", "run", "--dry-run", "--json", *check, clock=LATER).stdout)

    assert (found["looked"], found["leftOut"]) == (SLICE + 1, 0)


async def do_nothing() -> None:
    """What a finding calls for here."""


@pytest.mark.parametrize(
    ("findings", "left_by_check", "left"), [(3, 0, 0), (1_000, 0, 0), (1_002, 0, 2), (1_002, 5, 7)]
)
async def test_what_a_round_leaves_to_later_ones_is_counted(findings: int, left_by_check: int, left: int) -> None:
    async def look(now: datetime) -> list[Finding]:
        return [Finding(about=f"{now} {number}", sentence="it is", act=do_nothing) for number in range(findings)]

    async def end(_: PassEnd) -> None:
        """Nobody waits for it."""

    check = WatchdogCheck(name="all", look=look, left=lambda: left_by_check)
    tables, clock = SqliteTables.in_memory(ManualClock(TODAY)), ManualClock(TODAY)
    watchdog = Watchdog([check], Degraded(tables, clock), clock, end=end, may_act=lambda: True)

    [report] = await watchdog.pass_over(TODAY, dry_run=True)
    out = io.StringIO()
    show_report(Screen(out=Console(file=out)), report, PassRequest(dry_run=True))

    assert (len(report.findings), report.left) == (findings - max(0, findings - 1_000), left)
    assert (f"{left} more left out: the workers get to them in turn" in out.getvalue()) == (left > 0)


# --- when each check ran ----------------------------------------------------------------------------------------------


def test_a_store_on_which_no_worker_ran_the_checks_says_so() -> None:
    result = interlock("watchdog", "list")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "No worker has stored its checks" in result.stderr


def test_each_check_is_listed_with_its_interval_its_last_and_its_next_run_and_its_problem() -> None:
    states = [
        CheckState(name="sound", every=timedelta(minutes=1), ended_at=TODAY),
        CheckState(name="broken", every=timedelta(minutes=5), ended_at=TODAY, problem="throttled"),
    ]

    async def store(tables: Tables) -> None:
        mark = await Marks(tables).get(OURSELVES, watchdog_mark_sk("ledger"))
        assert mark is not None
        data = {**mark.data, **states_data(states)}
        await tables.commit(move_write(OURSELVES, watchdog_mark_sk("ledger"), mark, data, TODAY))

    in_store(store)
    shown = io.StringIO()
    screen = Screen(out=Console(file=shown, force_terminal=True, width=120, no_color=True, highlight=False))
    show_checks(screen, states, as_json=False)

    on_a_pipe = interlock("watchdog", "list").stdout.splitlines()
    assert on_a_pipe[0].split() == ["check", "interval", "last", "next", "result"]
    assert [line.split()[-1] for line in on_a_pipe[1:]] == ["throttled", "ok"]

    broken, sound = records(interlock("watchdog", "list", "--json").stdout)
    assert sound["check"] == "sound"
    assert sound["everySeconds"] == 60
    assert sound["last"] == format_rfc3339(TODAY)
    assert sound["next"] == format_rfc3339(TODAY + timedelta(minutes=1))
    assert (sound["problem"], broken["problem"]) == ("", "throttled")
    assert [line.split()[0] for line in shown.getvalue().splitlines()] == ["check", "sound", "broken"]
    assert "throttled" in shown.getvalue()
