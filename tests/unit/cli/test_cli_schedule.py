"""`interlock schedule next` and `missed`: what they say of the schedules in the store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import ORDERS, a_store, in_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.schedule.due import Passed, ScheduleKey
from worker.core.time.periods import Period
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks
from worker.store.table import Put, TableName, Tables

DAILY = """\
pipeline: {id: daily}
schedule: {cron: "30 2 * * *", timezone: Europe/Berlin, exclude: {dates: [2027-03-24]}}
job: {type: command, config: {command: load}}
"""
HOURLY = """\
pipeline: {id: hourly}
schedule: {cron: "0 * * * *"}
job: {type: command, config: {command: load}}
"""
SIGNALLED = """\
pipeline: {id: signalled}
schedule: {cron: "0 6 * * *", trigger: {key: ready, check: exists}}
job: {type: command, config: {command: load}}
"""
LATER = ManualClock(TODAY + timedelta(hours=3, minutes=30))


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here, DAILY, HOURLY, SIGNALLED)


def mark(considered: datetime, passed: Passed | None = None) -> None:
    key = ScheduleKey(PipelineId("hourly"), ScheduleId("cron"))
    saved = ScheduleMark(key=key, considered=considered, plan="0 * * * * UTC", passed=passed)
    in_store(lambda tables: ScheduleMarks(tables).save(saved))


def row(pipeline: str, sk: str, **attributes: str) -> None:
    put = Put(TableName.CONTROL, {"PK": keys.pipeline_pk(pipeline), "SK": sk, **attributes})
    in_store(lambda tables: tables.commit(put))


# --- next -------------------------------------------------------------------------------------------------------------


def test_the_next_time_of_every_schedule_soonest_first() -> None:
    result = interlock("schedule", "next", "--json")

    assert result.exit_code == 0
    told = [(each["pipeline"], each["at"], each["period"], each["sentence"]) for each in records(result.stdout)]
    assert told == [
        ("hourly", "2027-03-22T13:00:00Z", "2027-03-22T12", None),
        ("daily", "2027-03-23T01:30:00Z", "2027-03-23", None),
        ("signalled", "2027-03-23T06:00:00Z", "2027-03-23", "expected then, but started by its trigger"),
    ]


@pytest.mark.parametrize(("arguments", "shown", "total"), [([], 2, 3), (["hourly", "--count", "9"], 4, 9)])
def test_times_beyond_the_limit_are_counted(arguments: list[str], shown: int, total: int) -> None:
    result = interlock("schedule", "next", *arguments, "--limit", shown)
    [*listed, cut] = records(interlock("schedule", "next", *arguments, "--limit", shown, "--json").stdout)

    assert len(listed) == shown
    assert (cut["type"], cut["what"], cut["shown"], cut["total"]) == ("truncated", "times", shown, total)
    assert f"times: {shown} of {total} shown; raise --limit" in result.stderr


def test_times_that_fit_are_not_called_cut() -> None:
    found = interlock("schedule", "next", "--limit", 3, "--json")

    assert [each["type"] for each in records(found.stdout)] == ["next"] * 3
    assert found.stderr == ""


def test_a_named_pipeline_shows_more_of_its_times_with_days_off_and_clock_changes() -> None:
    result = interlock("schedule", "next", "daily")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 11
    assert "2027-03-23 02:30 CET" in lines[1]
    assert "excluded: 2027-03-24 is an excluded date" in lines[2]
    assert "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00" in lines[6]


def test_a_pipeline_that_no_time_starts_is_named(here: Path) -> None:
    (here / "orders.yaml").write_text(ORDERS)
    interlock("pipelines", "push", "orders.yaml", "--yes")

    assert interlock("schedule", "next", "orders").stdout.startswith("no schedule of orders has a cron expression; ")


def test_among_all_pipelines_a_schedule_shows_its_next_time_that_runs(here: Path) -> None:
    (here / "p0.yaml").write_text(DAILY.replace("2027-03-24", "2027-03-23"))
    assert interlock("pipelines", "push", here / "p0.yaml", "--yes").exit_code == 0

    told = {each["pipeline"]: each["period"] for each in records(interlock("schedule", "next", "--json").stdout)}

    assert told["daily"] == "2027-03-24"


def test_a_paused_pipeline_says_so_until_the_pause_is_over() -> None:
    assert interlock("pause", "hourly", "--reason", "new disks", "--until", "90m").exit_code == 0

    told = [
        each["sentence"] for each in records(interlock("schedule", "next", "hourly", "--count", 2, "--json").stdout)
    ]

    assert told == ["does not start: paused until 2027-03-22T13:30:00Z: new disks", None]


def test_a_pipeline_that_nobody_accepted_says_what_to_do() -> None:
    text = HOURLY.replace("hourly", "old")
    row("old", keys.CONFIG, config=text, listPk=keys.PIPELINES, listSk="old")

    [told] = records(interlock("schedule", "next", "old", "--count", 1, "--json").stdout)

    assert "interlock migrate accept" in told["sentence"]


def test_an_unknown_pipeline_is_told_with_what_may_be_meant() -> None:
    result = interlock("schedule", "next", "hourl")

    assert result.exit_code == 2
    assert "hourly" in result.stderr.splitlines()[1]


# --- missed -----------------------------------------------------------------------------------------------------------


def test_what_was_missed_is_told_with_the_reason_the_scheduler_left() -> None:
    hours = [datetime(2027, 3, 22, hour, tzinfo=UTC) for hour in (13, 14)]
    reason = "it could not be started in time, and `misfire: latest` makes up for the latest only"
    mark(datetime(2027, 3, 22, 15, tzinfo=UTC), Passed(first=hours[0], last=hours[1], count=2, reason=reason))
    row("hourly", "TRIGGER#cron#2027-03-22T14", status="COMPLETED")

    result = interlock("schedule", "missed", "--json", clock=LATER)

    assert result.exit_code == 1
    told = [(each["period"], each["sentence"]) for each in records(result.stdout)]
    assert told == [("2027-03-22T12", reason), ("2027-03-22T13", reason)]


def test_times_that_nobody_looked_at_are_missed_and_one_that_has_just_come_is_told_as_such() -> None:
    result = interlock(
        "schedule", "missed", "hourly", "--json", clock=ManualClock(TODAY + timedelta(hours=2, minutes=1))
    )

    told = [each["sentence"] for each in records(result.stdout)]
    assert "no worker has the scheduler role" in told[0]
    assert told[1] == "it became due only just now"


def test_nothing_is_missed_before_a_pipeline_was_deployed() -> None:
    result = interlock("schedule", "missed", "--since", "7d")

    assert result.exit_code == 0
    assert "0 runs missed since 2027-03-15T12:00:00Z" in result.stdout


def test_a_listed_date_counts_as_missed_unless_it_was_over_before_the_pipeline_came(here: Path) -> None:
    dates = "schedule: {include: {dates: [2027-01-29, 2027-03-21, 2027-03-22]}, time: '12:30'}"
    (here / "listed.yaml").write_text(f"pipeline: {{id: listed}}\n{dates}\n{HOURLY.splitlines()[2]}\n")
    assert interlock("pipelines", "push", here / "listed.yaml", "--yes").exit_code == 0

    result = interlock("schedule", "missed", "listed", "--since", "8760h", "--json", clock=LATER)

    assert [each["period"] for each in records(result.stdout)] == ["2027-03-22"]


def test_a_signal_that_did_not_come_is_told_as_such() -> None:
    result = interlock("schedule", "missed", "signalled", "--json", clock=ManualClock(TODAY + timedelta(hours=20)))

    assert [each["sentence"] for each in records(result.stdout)] == ["its trigger sensor did not arrive"]


def test_explain_says_why_a_time_passed_without_its_run() -> None:
    mark(TODAY, Passed(first=TODAY, last=TODAY + timedelta(hours=1), count=1, reason="nobody was there"))

    result = interlock("explain", "hourly", "2027-03-22T12", clock=LATER)

    assert "no run started: nobody was there" in result.stdout


@pytest.mark.parametrize("is_begun", [False, True])
def test_times_that_were_not_looked_at_are_told(is_begun: bool) -> None:
    """Beyond a thousand times of one schedule nothing is looked for, so that nothing was missed is not known."""
    if is_begun:
        in_store(begin_all)
    later = ManualClock(TODAY + timedelta(hours=1100))

    result = interlock("schedule", "missed", "hourly", "--since", "9999h", clock=later)
    found = records(interlock("schedule", "missed", "hourly", "--since", "9999h", "--json", clock=later).stdout)

    listed = 0 if is_begun else 1000
    assert result.exit_code == 1
    assert f"at least {listed:,} runs missed since" in result.stdout
    assert "its earliest 1,000 times were checked: choose a later --since" in result.stderr
    [cut] = [each for each in found if each["type"] == "truncated"]
    assert (cut["what"], cut["shown"], cut["total"]) == ("missed runs of hourly/cron", listed, None)
    assert len(found) == listed + 1


async def begin_all(tables: Tables) -> None:
    for hour in range(1100):
        period = Period.hour_of(TODAY + timedelta(hours=hour))
        key = RunKey(PipelineId("hourly"), ScheduleId("cron"), period)
        await tables.commit(
            Put(TableName.CONTROL, {"PK": "PIPELINE#hourly", "SK": keys.trigger_sk(key), "status": "COMPLETED"})
        )
