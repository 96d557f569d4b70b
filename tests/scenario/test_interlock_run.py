"""`interlock run` as people run it: real processes, one SQLite file, sensors from other commands."""

import json
import signal
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.aws.emulators import AWS_ENVIRONMENT
from tests.support.builders import command_line
from tests.support.clock.manual import ManualClock
from tests.support.worlds.live_worker import PATIENCE_S, LiveWorker, interlock, live_worker, until
from worker.runtime.clock import SystemClock

# Several processes begin one after another, which on a busy machine takes its time.
# In one process: they mostly wait for others, and would do so on all cores at once.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

PIPELINE = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: count, check: gte, field: rows, value: 100}
job:
  type: command
  config: {command: sh job.sh}
  pollIntervalSeconds: 1
"""
# Appends a line, so that a job that ran twice shows.
JOB = "sleep SECONDS; echo $INTERLOCK_PERIOD $INTERLOCK_ATTEMPT >> ran"
DAY = (datetime.now(UTC) - timedelta(days=40)).date().isoformat()  # older than any other resync looks back


def pipelines(at: Path, seconds: float = 0) -> str:
    (at / "pipelines").mkdir()
    (at / "pipelines" / "orders.yaml").write_text(PIPELINE)
    (at / "job.sh").write_text(JOB.replace("SECONDS", str(seconds)))
    return "pipelines"


SENSORS = (("count", "rows=120"), ("ready", "status=done"))


def say_the_day_is_ready(at: Path) -> None:
    """As `interlock sensor put`, without the time it takes to start a Python."""
    store = f"sqlite:///{at / 'interlock.db'}"
    for words in SENSORS:
        put = command_line.interlock(
            "sensor", "put", "orders", *words, "--period", DAY, "--store", store, clock=SystemClock()
        )
        assert put.exit_code == 0


def runs_of(at: Path) -> list[str]:
    return (at / "ran").read_text().splitlines() if (at / "ran").exists() else []


def has_told(worker: LiveWorker, event_type: str) -> bool:
    return worker.has_said(f"orders/stream/{DAY}  {event_type}")


def test_a_sensor_put_by_another_process_starts_the_job_and_its_end_is_told(tmp_path: Path) -> None:
    with live_worker(tmp_path, "--pipelines", pipelines(tmp_path), "--each-success") as worker:
        for words in SENSORS:
            assert interlock("sensor", "put", "orders", *words, "--period", DAY, at=tmp_path).returncode == 0
        until(lambda: has_told(worker, "JOB_COMPLETED"), worker)

        assert runs_of(tmp_path) == [f"{DAY} 1"]
        assert worker.stop() == 0
    for line in worker.log.read_text().splitlines()[3:]:
        assert json.loads(line)["event"]
    assert worker.has_logged("left in order")


def test_what_was_said_before_the_first_start_counts_and_a_second_start_repeats_nothing(tmp_path: Path) -> None:
    directory = pipelines(tmp_path)
    interlock("store", "init", at=tmp_path)
    say_the_day_is_ready(tmp_path)
    with live_worker(tmp_path, "--pipelines", directory, "--each-success") as first:
        until(lambda: has_told(first, "JOB_COMPLETED"), first)
        assert first.stop(signal.SIGINT) == 0

    with live_worker(tmp_path, "--pipelines", directory, "--each-success", name="second") as second:
        say_the_day_is_ready(tmp_path)  # the same again: nothing has changed
        time.sleep(1)
        assert second.stop() == 0

    assert runs_of(tmp_path) == [f"{DAY} 1"]
    assert not second.has_said("JOB_COMPLETED")


def test_a_worker_that_comes_back_begins_what_was_due_while_nobody_was_there(tmp_path: Path) -> None:
    missed = datetime.now(UTC) - timedelta(minutes=4)
    pipelines(tmp_path)
    timed = f'pipeline: {{id: orders}}\nschedule: {{cron: "{missed.minute} {missed.hour} * * *"}}\n'
    (tmp_path / "pipelines" / "orders.yaml").write_text(timed + PIPELINE[PIPELINE.index("job:") :])
    store, then = f"sqlite:///{tmp_path / 'interlock.db'}", ManualClock(missed - timedelta(minutes=1))
    assert command_line.interlock("store", "init", "--store", store, clock=then).exit_code == 0
    pushed = command_line.interlock("pipelines", "push", tmp_path / "pipelines", "--yes", "--store", store, clock=then)
    assert pushed.exit_code == 0

    with live_worker(tmp_path, "--each-success") as worker:
        until(lambda: worker.has_said("JOB_COMPLETED"), worker)
        assert worker.stop() == 0

    assert runs_of(tmp_path) == [f"{missed.date()} 1"]


def test_a_worker_that_is_killed_while_its_job_runs_is_followed_by_another(tmp_path: Path) -> None:
    directory = pipelines(tmp_path, seconds=2)
    with (
        live_worker(tmp_path, "--pipelines", directory, "--each-success", name="first") as first,
        live_worker(tmp_path, "--each-success", name="second") as second,
    ):
        say_the_day_is_ready(tmp_path)
        until(lambda: _owner(first, second) is not None, first, second)
        owner = _owner(first, second)
        assert owner is not None
        heir = second if owner is first else first
        owner.kill()

        until(lambda: has_told(heir, "JOB_COMPLETED") or has_told(owner, "JOB_COMPLETED"), heir)
        assert runs_of(tmp_path) == [f"{DAY} 1"]
        assert heir.stop() == 0


def test_a_worker_asked_to_stop_leaves_its_job_running_and_the_next_one_records_its_end(tmp_path: Path) -> None:
    directory = pipelines(tmp_path, seconds=3)
    with live_worker(tmp_path, "--pipelines", directory, "--each-success") as first:
        say_the_day_is_ready(tmp_path)
        until(lambda: first.has_logged('"JobStarted"'), first)
        asked_at = time.monotonic()
        assert first.stop() == 0
        assert time.monotonic() - asked_at < 25
    assert runs_of(tmp_path) == []

    with live_worker(tmp_path, "--each-success", name="second") as second:
        until(lambda: has_told(second, "JOB_COMPLETED"), second)
        assert second.stop() == 0
    assert runs_of(tmp_path) == [f"{DAY} 1"]


def test_files_with_an_error_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    directory = pipelines(tmp_path)
    (tmp_path / directory / "orders.yaml").write_text("pipeline: {id: orders}\nschedul: {}\n")

    refused = interlock("run", "--pipelines", directory, at=tmp_path)

    assert refused.returncode == 1
    assert "schedul" in refused.stdout
    assert "worker.started" not in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.sh", "pipelines"]  # no new store


def test_a_store_that_cannot_be_reached_is_said_and_makes_nothing(tmp_path: Path) -> None:
    nowhere = "dynamodb://interlock?region=eu-west-1&endpoint=http://127.0.0.1:1"
    refused = interlock("run", "--store", nowhere, at=tmp_path, **AWS_ENVIRONMENT)

    assert refused.returncode == 3
    assert "127.0.0.1:1" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_store_is_refused_and_not_made(tmp_path: Path) -> None:
    refused = interlock("run", "--store", "sqlite:///interlok.db", at=tmp_path)

    assert refused.returncode == 2
    assert "interlok.db" in refused.stderr
    assert list(tmp_path.glob("*.db")) == []


def test_a_mistake_of_ours_is_named_in_the_log_before_it_is_shown(tmp_path: Path) -> None:
    with live_worker(tmp_path, "--pipelines", pipelines(tmp_path)) as worker:
        with closing(sqlite3.connect(tmp_path / "interlock.db")) as connection:
            connection.execute("DROP TABLE change")  # every heartbeat writes to it

        assert worker.process.wait(PATIENCE_S) == 2

    log = worker.log.read_text().splitlines()
    [at] = [number for number, line in enumerate(log) if '"worker.crashed"' in line]
    crashed = json.loads(log[at])
    assert crashed["reason"] == "OperationalError: no such table: change"
    assert "Traceback" in crashed["exception"]
    shown = [line for line in log[at + 1 :] if not line.startswith("{")]
    assert shown[0].startswith("error: something unexpected went wrong: OperationalError: no such table: change (")


def _owner(*workers: LiveWorker) -> LiveWorker | None:
    return next((worker for worker in workers if worker.has_logged('"JobStarted"')), None)


def test_a_worker_without_the_engine_says_what_it_is_there_for_and_lists_no_pipelines(tmp_path: Path) -> None:
    assert interlock("store", "init", at=tmp_path).returncode == 0

    with live_worker(tmp_path, INTERLOCK_ROLES="relay") as worker:
        assert worker.has_logged('"roles":["relay"]')
        assert not worker.has_logged("pipelines.none")


def test_a_second_worker_with_another_timing_refuses_to_start_and_names_both(tmp_path: Path) -> None:
    with live_worker(tmp_path, "--pipelines", pipelines(tmp_path), timing="fast") as worker:
        refused = interlock("run", at=tmp_path, INTERLOCK_TIMING="default")

        assert refused.returncode == 2
        assert "INTERLOCK_TIMING is default here and fast for worker" in refused.stderr
        assert worker.stop() == 0

    # Once all are stopped it can be changed.
    with live_worker(tmp_path, timing="default"):
        pass


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"INTERLOCK_ROLES": "alerts"}, "INTERLOCK_ROLES"),
        ({"INTERLOCK_SLACK_TOKEN": "xoxb-1"}, "INTERLOCK_SLACK_CHANNEL"),
        ({"INTERLOCK_WEB": "0.0.0.0:0"}, "INTERLOCK_WEB_TOKENS"),
    ],
)
def test_a_wrong_setting_leaves_no_store_behind(tmp_path: Path, variables: dict[str, str], named: str) -> None:
    ended = interlock("run", "--pipelines", pipelines(tmp_path), at=tmp_path, **variables)

    assert (ended.returncode, named in ended.stderr) == (2, True), ended.stderr
    assert not list(tmp_path.glob("interlock.db*"))
