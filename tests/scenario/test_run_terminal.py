"""`interlock run` on a terminal and on a pipe: lines for people on the one, what machines read on the other."""

import asyncio
import json
import os
import pty
import re
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.support.builders import command_line
from tests.support.worlds import fork_server
from tests.support.worlds.live_worker import LOOK_AGAIN_S, PATIENCE_S, environment, live_worker, until
from worker.cli.terminal.store_session import Exit
from worker.config.store_setting import GROUP
from worker.runtime.clock import SystemClock
from worker.store.repos.sessions import Session, Sessions
from worker.store.sqlite.tables import SqliteTables

# Several processes begin one after another, which on a busy machine takes its time.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

PIPELINE: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: exists}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules: [{key: ready, check: equals, field: status, value: done}]
job:
  type: command
  config: {command: [sh, job.sh]}
  pollIntervalSeconds: 1
  maxRetries: 0
"""
DAY: Final = datetime.now(UTC).date().isoformat()
NAME: Final = f"orders {DAY}"


class TerminalWorker:
    """A worker whose output and log are a terminal."""

    def __init__(self, at: Path, *arguments: str, **variables: str) -> None:
        self._master, end = pty.openpty()
        with os.fdopen(end, "w") as terminal:
            self.process = fork_server.start(
                ["run", *arguments], at=at, environment=environment(**variables), stdout=terminal, stderr=terminal
            )
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)
        self._reader.start()

    def _keep_reading(self) -> None:
        while True:
            try:
                self._read.append(os.read(self._master, 65536))
            except OSError:  # the worker has ended
                os.close(self._master)
                return

    @property
    def text(self) -> str:
        return b"".join(list(self._read)).decode()

    def lines(self) -> list[str]:
        """What it said about the run, without colours and times."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)
        return re.findall(rf"^\d\d:\d\d:\d\d  {NAME}  (.*?)\r?$", plain, re.MULTILINE)

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            time.sleep(LOOK_AGAIN_S)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code


@contextmanager
def on_terminal(at: Path, *arguments: str, **variables: str) -> Generator[TerminalWorker]:
    worker = TerminalWorker(at, *arguments, **variables)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait(PATIENCE_S)


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """A folder with a pipeline whose job fails."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(PIPELINE)
    (tmp_path / "job.sh").write_text("printf 'no \\033[31mdisk\\n'; exit 3")
    return tmp_path


def put(at: Path, status: str) -> None:
    """As `interlock sensor put`, without the time it takes to start a Python."""
    store = f"sqlite:///{at / 'interlock.db'}"
    words = ("sensor", "put", "orders", "ready", f"status={status}", "--period", DAY, "--store", store)
    # A disk that stalls for seconds is no fault of the worker: the code says to try again, and so does a person.
    codes = (command_line.interlock(*words, clock=SystemClock()).exit_code for _ in range(5))
    assert next((code for code in codes if code != Exit.LATER), Exit.LATER) == 0


async def sessions_at(at: Path) -> list[Session]:
    tables = SqliteTables(at / "interlock.db", SystemClock())
    await tables.start()
    try:
        return await Sessions(tables, GROUP).list()
    finally:
        await tables.stop()


def test_a_worker_says_that_it_works_once_its_session_has_begun(at: Path) -> None:
    with on_terminal(at, "--pipelines", "pipelines") as worker:
        worker.until("working on interlock.db")
        sessions = asyncio.run(sessions_at(at))
        assert worker.stop() == 0

    assert len(sessions) == 1


def test_a_terminal_shows_each_change_of_a_run_once_in_colour(at: Path) -> None:
    with on_terminal(at, "--pipelines", "pipelines", TERM="xterm-256color") as worker:
        worker.until("working on interlock.db")
        put(at, "\x1b[2Jhalf")
        worker.until("waiting:")
        put(at, "done")
        worker.until("failed:")
        (at / "job.sh").write_text("true")
        rerun = ("rerun", "orders", DAY, "--reason", "disk is back", "--store", f"sqlite:///{at / 'interlock.db'}")
        assert command_line.interlock(*rerun, clock=SystemClock()).exit_code == 0
        worker.until("completed in")

        assert worker.stop() == 0

    # In this order; on a busy machine a line may come between them, or again, because events are sent at least once.
    lines = iter(worker.lines())
    for expected in (
        re.escape('waiting: ready.status is "\\u001b[2Jhalf", which is not equal to "done"'),
        r"job started \(attempt 1\)",
        r"failed: exit code 3: no .*\(no retries: job\.maxRetries is 0\)  -> .*",
        r"rerun requested by \S+: disk is back",
        r"job started \(attempt 2\)",
        r"completed in [\d.]+s \(attempt 2\)",
    ):
        assert any(re.fullmatch(expected, line) for line in lines), (expected, worker.lines())
    assert "\x1b[32m" in worker.text
    assert "\x1b[2Jhalf" not in worker.text
    assert "fact.handled" not in worker.text
    assert "stopping: the worker finishes" in worker.text


def test_a_terminal_gets_what_a_pipe_gets_if_that_is_asked_for(at: Path) -> None:
    with on_terminal(at, "--pipelines", "pipelines", "--format", "json") as worker:
        worker.until('"session.began"')
        assert worker.stop() == 0

    events = [json.loads(line)["event"] for line in worker.text.splitlines() if line.startswith("{")]
    assert events[0] == "worker.started"
    assert events[-1] == "worker.stopped"


def test_on_a_pipe_alerts_are_the_lines_they_were_and_the_log_is_json(at: Path) -> None:
    with live_worker(at, "--pipelines", "pipelines") as worker:
        put(at, "done")
        until(lambda: worker.has_said("RETRY_EXHAUSTED"), worker)
        assert worker.stop() == 0

    alerts = [line for line in worker.output.read_text().splitlines() if "orders/stream/" in line]
    told = [line.split()[3] for line in alerts]
    assert told == ["JOB_FAILED", "RETRY_EXHAUSTED"]
    log = worker.log.read_text().splitlines()
    events = [json.loads(line)["event"] for line in log]  # every line is JSON
    assert events[0] == "store.made"
    assert "fact.handled" in events


def test_a_pipe_gets_lines_for_people_without_colours_if_that_is_asked_for(at: Path) -> None:
    with live_worker(at, "--pipelines", "pipelines", "--format", "text", "--log-level", "info") as worker:
        put(at, "done")
        until(lambda: worker.has_said("failed: exit code 3"), worker)
        assert worker.stop() == 0

    lines = worker.output.read_text()
    assert re.search(rf"^\d\d:\d\d:\d\d  {NAME}  job started \(attempt 1\)$", lines, re.MULTILINE)
    assert "JOB_FAILED" not in lines
    assert "\x1b" not in lines + worker.log.read_text()


def test_a_watched_file_is_in_force_for_new_runs_while_the_worker_runs(at: Path) -> None:
    file = at / "pipelines" / "orders.yaml"
    with on_terminal(at, "--pipelines", "pipelines", "--watch", TERM="xterm-256color") as worker:
        worker.until("watching the pipeline files")
        file.write_text(PIPELINE.replace("value: done", "value: ready"))
        worker.until("reloaded from pipelines/orders.yaml")
        file.write_text(PIPELINE.replace("validation:", "validations:"))
        worker.until("pipelines/orders.yaml was not reloaded: 1 error")
        put(at, "ready")  # what the version in force asks for
        worker.until("job started")
        file.unlink()
        worker.until("it stays deployed")

        assert worker.stop() == 0

    assert "did you mean `validation`?" in worker.text


def test_on_a_pipe_a_watched_file_is_reported_in_the_log(at: Path) -> None:
    with live_worker(at, "--pipelines", "pipelines", "--watch") as worker:
        (at / "pipelines" / "orders.yaml").write_text(PIPELINE.replace("value: done", "value: ready"))
        until(lambda: worker.has_logged("pipeline.reloaded"), worker)
        assert worker.stop() == 0

    [line] = [line for line in worker.log.read_text().splitlines() if "pipeline.reloaded" in line]
    logged = json.loads(line)
    assert (logged["pipeline"], logged["status"], logged["file"]) == ("orders", "changed", "pipelines/orders.yaml")
