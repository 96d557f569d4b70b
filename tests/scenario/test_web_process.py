"""The HTTP API of real processes: inside a worker, and beside one."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import command_line
from tests.support.worlds import live_worker as liveworker
from tests.support.worlds.live_worker import LiveWorker, live_web, live_worker, today, until
from worker.runtime.clock import SystemClock

# As in `test_store_outages`.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]


def logged(worker: LiveWorker, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def read(served: dict[str, Any], path: str) -> Any:  # noqa: ANN401  any JSON
    with urllib.request.urlopen(f"http://{served['host']}:{served['port']}{path}", timeout=30) as answer:
        return json.load(answer)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "interlock.db"
    made = command_line.interlock("store", "init", "--store", f"sqlite:///{path}", clock=SystemClock())
    assert made.exit_code == 0
    return tmp_path


def test_a_worker_serves_the_api_and_its_health_in_its_own_loop_and_stops_in_order(place: Path) -> None:
    with live_worker(place, INTERLOCK_WEB="127.0.0.1:0", INTERLOCK_HEALTH="127.0.0.1:0") as worker:
        [served] = logged(worker, "web.served")
        until(lambda: bool(read(served, "/readyz")["ok"]), worker)

        assert [session["state"] for session in read(served, "/api/v1/workers")["items"]] == ["LIVE"]
        # Both settings have one address, so one server does both.
        assert logged(worker, "health.served") == []
        assert worker.stop() == 0
        assert logged(worker, "web.failed") == []


def test_a_process_of_its_own_serves_the_same_and_stops_on_a_signal(place: Path) -> None:
    with live_worker(place) as worker, live_web(place) as web:
        [served] = logged(web, "web.served")

        assert len(read(served, "/api/v1/workers")["items"]) == 1
        assert read(served, "/healthz") == {"ok": True, "why": []}
        assert web.stop() == 0
        assert worker.stop() == 0


SELF_REPORTING = """
pipeline: {id: reporter, owner: tests}
schedule:
  trigger: {key: landed, check: exists}
  evaluation: {window: 1h, interval: 1m}
validation:
  rules: [{key: landed, check: exists}]
job:
  type: command
  config:
    command:
      - python3
      - -c
      - |
        import os, time, urllib.request
        body = b'{"outcome": "succeeded", "outputs": {"rows": 7}}'
        where, kind = os.environ["INTERLOCK_CALLBACK_URL"], {"Content-Type": "application/json"}
        print(urllib.request.urlopen(urllib.request.Request(where, body, kind)).read(), flush=True)
        time.sleep(60)
"""


def test_a_job_that_reports_its_own_end_is_seen_at_once_although_it_goes_on(place: Path) -> None:
    (place / "pipelines").mkdir()
    (place / "pipelines" / "reporter.yaml").write_text(SELF_REPORTING)
    with live_worker(place, "--pipelines", "pipelines", INTERLOCK_WEB="127.0.0.1:0") as worker:
        [served] = logged(worker, "web.served")
        liveworker.interlock("sensor", "put", "reporter", "landed", "rows=1", "--period", today(), at=place)

        run = f"/api/v1/runs/reporter/stream/{today()}"
        until(lambda: status_of(served, run) == "completed", worker)

        shown = read(served, run)
        assert shown["outputs"] == {"result": {"rows": 7}}
        reported = next(each for each in read(served, f"{run}/history")["items"] if each["what"] == "success")
        ended = datetime.fromisoformat(shown["endedAt"])
        assert ended - datetime.fromisoformat(reported["at"]) < timedelta(seconds=1)
        worker.stop()


def status_of(served: dict[str, Any], run: str) -> str:
    try:
        return read(served, run)["status"]
    except urllib.error.HTTPError:
        return ""


@pytest.mark.parametrize("target", ["/dev/full", "a pipe that nobody reads"])
def test_the_console_is_served_although_its_log_cannot_be_written(place: Path, target: str) -> None:
    port = a_free_port()
    if target == "/dev/full":
        stream = os.open(target, os.O_WRONLY)
    else:
        reader, stream = os.pipe()
        os.close(reader)
    command = [sys.executable, "-c", "from worker.cli.main import main; main()", "web", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, cwd=place, env=liveworker.environment(), stdout=stream, stderr=stream)
    os.close(stream)
    try:
        served = {"host": "127.0.0.1", "port": port}
        liveworker.until(lambda: process.poll() is not None or answers(served))
        assert process.poll() is None
        assert read(served, "/healthz") == {"ok": True, "why": []}
        process.send_signal(signal.SIGTERM)
        assert process.wait(liveworker.PATIENCE_S) == 0
    finally:
        process.kill()


def a_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(served: dict[str, Any]) -> bool:
    try:
        return bool(read(served, "/livez"))
    except (OSError, urllib.error.URLError):
        return False
