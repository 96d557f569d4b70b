"""`interlock run` while its log or its alerts cannot be written: it goes on, or ends with a word and a code."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, TypeAlias

import pytest

from tests.support.builders import command_line
from tests.support.worlds.live_worker import PATIENCE_S, environment, live_worker, until
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
  config: {command: [sh, -c, "sleep SECONDS; echo $INTERLOCK_ATTEMPT >> ran"]}
  pollIntervalSeconds: 1
"""
DAY = datetime.now(UTC).date().isoformat()

Target: TypeAlias = int | IO[Any]


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """A folder with a store, a pipeline, and a sensor that lets its job start."""
    prepare(tmp_path, seconds=0)
    return tmp_path


def prepare(at: Path, seconds: float) -> None:
    (at / "orders.yaml").write_text(PIPELINE.replace("SECONDS", str(seconds)))
    interlock(at, "store", "init")
    interlock(at, "pipelines", "push", at / "orders.yaml", "--yes")
    put_ready(at, DAY)


def put_ready(at: Path, day: str) -> None:
    interlock(at, "sensor", "put", "orders", "ready", "status=done", "--period", day)


def interlock(at: Path, *words: object) -> None:
    store = f"sqlite:///{at / 'interlock.db'}"
    done = command_line.interlock(*words, "--store", store, clock=SystemClock())
    assert done.exit_code == 0, done.stderr


@contextmanager
def running(
    at: Path, *, stdout: Target, stderr: Target, shell: str = 'exec "$@"'
) -> Generator["subprocess.Popen[str]"]:
    """Run a worker. `shell` is how a shell would start it, for streams that only a shell can close."""
    command = [sys.executable, "-c", "from worker.cli.main import main; main()", "run", "--each-success"]
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", *command],
        cwd=at,
        env=environment(),
        stdout=stdout,
        stderr=stderr,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(has_come: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    waiting = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        if has_come():
            return
        assert process.poll() is None, f"it ended with {process.returncode}"
        waiting.wait(0.05)
    raise AssertionError("it did not come")


def has_run(at: Path) -> bool:
    return (at / "ran").exists()


def says(path: Path, text: str) -> Callable[[], bool]:
    return lambda: text in path.read_text()


def stopped(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


def a_full_pipe() -> tuple[int, int]:
    """A pipe that nobody reads, with no room left."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"-" * 4_095 + b"\n")
    except BlockingIOError:
        os.set_blocking(write_end, True)
    return read_end, write_end


def test_a_log_on_a_full_disk_stops_neither_the_worker_nor_its_jobs(at: Path) -> None:
    with (
        (at / "out").open("w") as out,
        Path("/dev/full").open("w") as full,
        running(at, stdout=out, stderr=full) as process,
    ):
        wait_for(says(at / "out", "JOB_COMPLETED"), process)

        assert stopped(process) == 0

    assert has_run(at)


def test_a_log_that_is_not_read_holds_nothing_up_and_is_there_once_it_is(at: Path) -> None:
    read_end, write_end = a_full_pipe()
    with (at / "out").open("w") as out, running(at, stdout=out, stderr=write_end) as process:
        os.close(write_end)
        wait_for(says(at / "out", "JOB_COMPLETED"), process)

        with os.fdopen(read_end) as log:
            process.send_signal(signal.SIGTERM)
            lines = [line for line in log if line.startswith("{")]

        assert process.wait(PATIENCE_S) == 0
    events = [json.loads(line)["event"] for line in lines]
    assert events[0] == "worker.started"
    assert events[-1] == "worker.stopped"


def test_a_signal_that_comes_after_the_worker_has_stopped_does_not_change_its_exit_code(at: Path) -> None:
    """Who asks twice may do so late: the process waits for a reader of its alerts before it ends."""
    read_end, write_end = a_full_pipe()
    with (at / "log").open("w") as log, running(at, stdout=write_end, stderr=log) as process:
        os.close(write_end)
        wait_for(lambda: has_run(at), process)
        process.send_signal(signal.SIGTERM)
        wait_for(says(at / "log", "worker.stopped"), process)

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
    os.close(read_end)


def test_a_worker_whose_parent_blocked_the_signal_still_stops_in_order(at: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with (at / "log").open("w") as log, running(at, stdout=log, stderr=log) as process:
            wait_for(lambda: has_run(at), process)

            assert stopped(process) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_log_whose_reader_is_gone_ends_the_worker_in_order_with_a_word_and_a_code(tmp_path: Path) -> None:
    prepare(tmp_path, seconds=6)
    read_end, write_end = os.pipe()
    with (tmp_path / "out").open("w") as out, running(tmp_path, stdout=out, stderr=write_end) as process:
        os.close(write_end)
        with os.fdopen(read_end) as log:
            for line in log:
                if "JobStarted" in line:
                    break
        put_ready(tmp_path, (datetime.now(UTC) - timedelta(days=1)).date().isoformat())  # which is logged

        assert process.wait(PATIENCE_S) == 4

    last = (tmp_path / "out").read_text().splitlines()[-1]
    assert last.startswith("interlock run: nobody reads standard error any more")
    assert not has_run(tmp_path)  # the job goes on by itself
    with live_worker(tmp_path, "--each-success") as other:  # and is followed by whoever comes
        until(lambda: other.has_said(f"orders/stream/{DAY}  JOB_COMPLETED"), other)
        assert not other.has_logged("peer.ended")  # the first one left in order


def test_alerts_whose_reader_is_gone_end_the_worker_and_are_told_by_the_next(at: Path) -> None:
    read_end, write_end = os.pipe()
    with (at / "log").open("w") as log, running(at, stdout=write_end, stderr=log) as process:
        os.close(write_end)
        os.close(read_end)

        assert process.wait(PATIENCE_S) == 4

    lines = [json.loads(line) for line in (at / "log").read_text().splitlines() if line.startswith("{")]
    assert (lines[-1]["event"], lines[-1]["level"]) == ("worker.failed", "error")
    assert "nobody reads standard output any more (broken pipe)" in lines[-1]["reason"]
    assert any(line["event"] == "session.ended" and line["reason"] == "left in order" for line in lines)
    with live_worker(at, "--each-success") as other:
        until(lambda: other.has_said("JOB_COMPLETED"), other)


def test_alerts_on_a_full_disk_wait_and_become_no_dead_letters(at: Path) -> None:
    with (
        (at / "log").open("w") as log,
        Path("/dev/full").open("w") as full,
        running(at, stdout=full, stderr=log) as process,
    ):
        wait_for(says(at / "log", "console.down"), process)
        threading.Event().wait(8)  # longer than five tries of anything else would take

        assert stopped(process) == 0

    lines = [json.loads(line) for line in (at / "log").read_text().splitlines() if line.startswith("{")]
    [down] = [line for line in lines if line["event"] == "console.down"]
    assert down["reason"] == os.strerror(errno.ENOSPC)
    assert not any(line["event"] in {"event.parked", "mistake.met"} for line in lines)


def test_alerts_wait_if_standard_output_was_closed_before_the_worker_began(at: Path) -> None:
    with (
        (at / "log").open("w") as log,
        running(at, stdout=subprocess.DEVNULL, stderr=log, shell='exec "$@" >&-') as process,
    ):
        wait_for(says(at / "log", "console.down"), process)

        assert stopped(process) == 0

    [down] = [json.loads(line) for line in (at / "log").read_text().splitlines() if '"console.down"' in line]
    assert down["reason"] == "standard output was closed before the process began"
    with live_worker(at, "--each-success") as other:
        until(lambda: other.has_said("JOB_COMPLETED"), other)
