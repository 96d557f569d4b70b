"""Real workers whose SQLite file is replaced, or loses its log: none goes on, and no period runs twice."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.builders import command_line
from tests.support.worlds import live_worker as liveworker
from tests.support.worlds.live_worker import PATIENCE_S, LiveWorker, live_worker, until
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
    - {key: ready, check: exists}
job:
  type: command
  config: {command: [sh, -c, "echo $INTERLOCK_PERIOD >> ran"]}
  pollIntervalSeconds: 1
"""
TODAY = datetime.now(UTC).date()
DAYS = [(TODAY - timedelta(days=number)).isoformat() for number in range(2)]


def a_store(path: Path) -> None:
    pipeline = path.with_name("orders.yaml")
    pipeline.write_text(PIPELINE)
    command(path, "store", "init")
    command(path, "pipelines", "push", pipeline, "--yes")


def put_ready(path: Path, day: str) -> None:
    command(path, "sensor", "put", "orders", "ready", "status=done", "--period", day)


def command(path: Path, *words: object) -> None:
    done = command_line.interlock(*words, "--store", f"sqlite:///{path}", clock=SystemClock())
    assert done.exit_code == 0, done.stderr


def last_words(worker: LiveWorker) -> str:
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    [failed] = [line for line in lines if line["event"] == "worker.failed"]
    assert failed["level"] == "error"
    return failed["reason"]


def runs_of(at: Path) -> list[str]:
    return sorted((at / "ran").read_text().split()) if (at / "ran").exists() else []


def test_a_worker_whose_file_was_replaced_stops_and_the_period_runs_once(tmp_path: Path) -> None:
    path, link = tmp_path / "interlock.db", tmp_path / "link.db"
    a_store(path)
    (tmp_path / "new").mkdir()
    a_store(tmp_path / "new" / "interlock.db")
    link.symlink_to(path.name)
    with live_worker(tmp_path, "--store", f"sqlite:///{link}", "--each-success", name="first") as first:
        put_ready(path, DAYS[1])
        until(lambda: first.has_said("JOB_COMPLETED"), first)
        assert (tmp_path / "interlock.db-jobs").is_dir()  # as for a worker that does not use the link
        assert not (tmp_path / "link.db-jobs").exists()

        (tmp_path / "new" / "interlock.db").replace(path)

        assert first.process.wait(PATIENCE_S) == 2
    assert "is another file now" in last_words(first)
    with live_worker(tmp_path, "--each-success", name="second") as second:
        put_ready(path, DAYS[0])
        until(lambda: second.has_said(f"{DAYS[0]}  JOB_COMPLETED"), second)
        assert second.stop() == 0
    assert runs_of(tmp_path) == sorted(DAYS)


def test_a_worker_whose_log_was_removed_stops_and_nothing_goes_on_until_a_person_has_looked(tmp_path: Path) -> None:
    path = tmp_path / "interlock.db"
    a_store(path)
    with live_worker(tmp_path, "--each-success") as worker:
        put_ready(path, DAYS[0])
        until(lambda: worker.has_said("JOB_COMPLETED"), worker)

        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()

        assert worker.process.wait(PATIENCE_S) == 2
    assert "interlock.db-wal is gone" in last_words(worker)

    checked = liveworker.interlock("store", "check", at=tmp_path)
    assert checked.returncode == 1
    assert "lacks the last" in checked.stdout
    refused = liveworker.interlock("run", at=tmp_path)
    assert refused.returncode == 2
    assert "lacks the last" in refused.stderr
    assert runs_of(tmp_path) == [DAYS[0]]
