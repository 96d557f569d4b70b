"""The demo as people see it, once, in another process: what it promises is in the store that it leaves behind."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.worlds import live_worker
from worker.cli.demo.folder import ALERTS, LOG
from worker.cli.demo.stage import run_of
from worker.core.model.events import EventType, JobEvent
from worker.core.run.state import Run, State
from worker.core.sla.state import Verdict
from worker.runtime.clock import SystemClock
from worker.store.backends.open import open_tables
from worker.store.repos.events import Events
from worker.store.repos.job_log import JobLog
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables

# One performance for all the tests: they must run in one process, and share its time limit.
PLAY_MAX_S = 150  # it takes half a minute; a busy machine takes longer
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(PLAY_MAX_S + 30)]
README = Path(__file__).parents[3] / "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    folder: Path
    day: str
    code: int
    output: str
    complaints: str


@pytest.fixture(scope="session")  # not of the module: tests of others may come in between, and end that
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    program = [sys.executable, "-c", "from worker.cli.main import main; main()", "demo", "--dir", str(folder)]
    done = subprocess.run(
        program, env=live_worker.environment(), capture_output=True, text=True, timeout=PLAY_MAX_S, check=False
    )
    day = re.search(r"--period (\S+)T00\n", done.stdout)
    return Played(
        folder=folder, day=day[1] if day else "", code=done.returncode, output=done.stdout, complaints=done.stderr
    )


@pytest.fixture
async def tables(played: Played) -> AsyncGenerator[Tables]:
    opened = open_tables(f"sqlite:///{played.folder}/interlock.db", SystemClock())
    await opened.start()
    yield opened
    await opened.stop()


async def told(tables: Tables, pipeline: str, period: str) -> list[str]:
    """What was told about a run, oldest first."""
    events = [stored.event for stored in await Events(tables).latest(pipeline)]
    return [event.type for event in reversed(events) if event.period == period]


async def attempts(tables: Tables, pipeline: str, period: str) -> list[tuple[int | None, str]]:
    return [(line.attempt, line.event) async for line in JobLog(tables).list(run_of(pipeline, period))]


def test_it_comes_to_its_end_without_a_complaint_of_anybody(played: Played) -> None:
    assert (played.code, played.complaints) == (0, "")
    assert "== What you saw" in played.output
    levels = [json.loads(line)["level"] for line in (played.folder / LOG).read_text().splitlines()]
    assert levels
    assert set(levels) == {"info"}


async def test_a_run_waits_for_its_rules_with_a_reason_and_then_succeeds(played: Played, tables: Tables) -> None:
    first = f"{played.day}T00"

    assert "landing.rows is 40, which is not at least 100" in played.output
    assert (await told(tables, "bronze-orders", first))[:3] == [
        EventType.VALIDATION_PASSED,
        EventType.JOB_TRIGGERED,
        EventType.JOB_COMPLETED,
    ]


async def test_a_failed_job_is_retried_and_succeeds(played: Played, tables: Tables) -> None:
    second = f"{played.day}T01"

    assert await attempts(tables, "silver-orders", second) == [(1, JobEvent.FAIL), (2, JobEvent.SUCCESS)]
    assert EventType.JOB_FAILED in await told(tables, "silver-orders", second)


async def test_the_warning_comes_once_before_a_deadline_that_is_met(played: Played, tables: Tables) -> None:
    types = await told(tables, "gold-orders", played.day)
    watch = await SlaWatches(tables).load(run_of("gold-orders", played.day))

    assert types[0] == EventType.RELATIVE_SLA_WARNING
    assert [each for each in types if "SLA" in each] == [EventType.RELATIVE_SLA_WARNING, EventType.SLA_MET]
    assert watch is not None
    assert watch.verdict is Verdict.MET


@pytest.mark.parametrize(("pipeline", "late"), [("bronze-orders", 1), ("silver-orders", 0)])
async def test_late_data_runs_its_pipeline_again_and_the_one_after_it(
    played: Played, tables: Tables, pipeline: str, late: int
) -> None:
    first = f"{played.day}T00"
    types = await told(tables, pipeline, first)

    assert (types.count(EventType.LATE_DATA_ARRIVAL), types.count(EventType.RERUN_ACCEPTED)) == (late, 1)
    log = await attempts(tables, pipeline, first)
    assert [line for line in log if line[1] == JobEvent.SUCCESS] == [(1, JobEvent.SUCCESS), (2, JobEvent.SUCCESS)]


async def test_an_hour_that_runs_again_makes_the_result_of_its_day_anew_once(played: Played, tables: Tables) -> None:
    types = await told(tables, "gold-orders", played.day)

    assert types.count(EventType.RERUN_ACCEPTED) == 1
    assert types.count(EventType.JOB_COMPLETED) == 2
    assert "240 orders" in played.output
    made = json.loads((played.folder / "lake" / "gold" / f"{played.day}.json").read_text())
    assert made["orders"] == 270


async def test_the_rehearsal_says_what_it_would_start_and_starts_nothing(played: Played, tables: Tables) -> None:
    types = await told(tables, "gold-orders-next", played.day)

    assert sorted(types) == [EventType.DRY_RUN_COMPLETED, EventType.DRY_RUN_WOULD_TRIGGER]
    assert await attempts(tables, "gold-orders-next", played.day) == []
    assert await Runs(tables).load(run_of("gold-orders-next", played.day)) is None


def test_the_part_that_the_readme_shows_is_what_is_shown(played: Played) -> None:
    [excerpt] = re.findall(r"```text\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.partition("s  ")[2] for line in excerpt.splitlines()]

    assert len(lines) > 5
    assert [line for line in lines if line not in played.output] == []


def test_each_attempt_started_one_program(played: Played) -> None:
    jobs = [path for path in (played.folder / "interlock.db-jobs").glob("il-*") if path.is_dir()]

    # Bronze: two hours, one again. Silver: the same, and one retry. Gold: twice.
    assert len(jobs) == 3 + 4 + 2


def test_people_were_told_of_each_end_once(played: Played) -> None:
    lines = (played.folder / ALERTS).read_text().splitlines()

    assert len(lines) == len(set(lines))
    assert len([line for line in lines if "JOB_COMPLETED" in line]) == 3 + 3 + 2
    assert len([line for line in lines if "JOB_FAILED" in line]) == 1


async def test_what_is_made_up_is_marked_and_left_as_it_is(played: Played, tables: Tables) -> None:
    failed = await Runs(tables).load(run_of("ledger-close", played.day))
    waiting = await Runs(tables).load(run_of("fraud-scores", played.day))
    sent = [
        each.event.type
        for pipeline in ("ledger-close", "fraud-scores", "customer-snapshot")
        for each in await Events(tables).latest(pipeline)
        if each.out or not each.event.detail.get("demo")
    ]

    assert isinstance(failed, Run)
    assert (failed.state, failed.attempt, failed.origin) == (State.FAILED_FINAL, 3, "demo")
    assert isinstance(waiting, Run)
    assert (waiting.state, waiting.attempt, waiting.origin) == (State.EVALUATING, 1, "demo")
    assert sent == []
    assert "interlock web" in played.output


async def test_a_waiting_run_is_left_to_explore(played: Played, tables: Tables) -> None:
    third = f"{played.day}T02"
    run = await Runs(tables).load(run_of("bronze-orders", third))

    assert isinstance(run, Run)
    assert run.state is State.EVALUATING
    explained = live_worker.interlock("explain", "bronze-orders", third, at=played.folder)
    assert "landing.rows is 7, which is not at least 100" in explained.stdout
    assert f"interlock explain bronze-orders {third}" in played.output
