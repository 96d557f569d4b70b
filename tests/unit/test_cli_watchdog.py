"""`interlock watchdog run`: a round by hand, and one that only looks."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.cliruns import a_store, in_store
from tests.commandline import TODAY, interlock, records
from tests.manualclock import ManualClock
from worker.core.instants import format_rfc3339
from worker.core.keys import watchdog_mark_sk
from worker.core.pipeline import PipelineId
from worker.store.events import Events
from worker.store.marks import Marks
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
