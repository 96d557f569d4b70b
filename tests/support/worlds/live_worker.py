"""A real `interlock run` beside the test, and what the test says and sees from outside."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final

from tests.support.worlds import fork_server

PATIENCE_S: Final = 100.0  # a process may take long to begin on a busy machine; tests are about what it does
LOOK_AGAIN_S: Final = 0.05
# A pipeline whose job goes on for longer than a worker takes to leave.
BUSY: Final = """
pipeline: {id: busy, owner: tests}
schedule:
  trigger: {key: landed, check: exists}
  evaluation: {window: 1h, interval: 1m}
validation:
  rules: [{key: landed, check: exists}]
job:
  type: command
  config: {command: [sleep, "30"]}
"""
_ROOT: Final = Path(__file__).parents[3]
_PATH: Final = os.pathsep.join((str(_ROOT), str(_ROOT / "tests/recorded")))  # their calls to AWS are noted


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return {**kept, "PYTHONPATH": _PATH, "INTERLOCK_TIMING": "fast", **more}


def today(*, days_ago: int = 0) -> str:
    """A period that a real worker, on the real clock, does not reject as too far ahead or too old."""
    return str(datetime.now(UTC).date() - timedelta(days=days_ago))


def interlock(*arguments: str, at: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as another process."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as remarks:
        process = fork_server.start(
            arguments, at=at, environment=environment(**variables), stdout=output, stderr=remarks
        )
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        said = [_read(each) for each in (output, remarks)]
    return subprocess.CompletedProcess(process.args, code, *said)


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


class LiveWorker:
    process: "fork_server.ForkedProcess | subprocess.Popen[bytes]"

    def __init__(
        self, at: Path, name: str, *arguments: str, timing: str = "fast", command: str = "run", **variables: str
    ) -> None:
        self.output, self.log = at / f"{name}.out", at / f"{name}.log"
        with self.output.open("w") as output, self.log.open("w") as log:
            self.process = fork_server.start(
                [command, *arguments],
                at=at,
                environment=environment(INTERLOCK_TIMING=timing, **variables),
                stdout=output,
                stderr=log,
            )

    def has_said(self, text: str) -> bool:
        return text in self.output.read_text()

    def has_logged(self, text: str) -> bool:
        return text in self.log.read_text()

    def until_it_works(self) -> None:
        """Wait until it holds the feed: from then on it hears everything at once."""
        until(lambda: self.has_logged("session.began"), self)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


@contextmanager
def live_worker(
    at: Path, *arguments: str, name: str = "worker", timing: str = "fast", **variables: str
) -> Generator[LiveWorker]:
    worker = LiveWorker(at, name, *arguments, timing=timing, **variables)
    try:
        worker.until_it_works()
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.kill()


@contextmanager
def live_web(at: Path, *arguments: str, name: str = "web", **variables: str) -> Generator[LiveWorker]:
    """`interlock web` beside the test, on a free port."""
    web = LiveWorker(at, name, "--listen", "127.0.0.1:0", *arguments, command="web", **variables)
    try:
        until(lambda: web.has_logged('"web.served"'), web)
        yield web
    finally:
        if web.process.poll() is None:
            web.kill()


def until(has_come: Callable[[], bool], *workers: LiveWorker) -> None:
    """Wait for something that these workers do; if they do not, show what they said."""
    deadline = time.monotonic() + PATIENCE_S
    while not has_come():
        if time.monotonic() > deadline or any(worker.process.poll() is not None for worker in workers):
            logs = "\n".join(worker.output.read_text() + worker.log.read_text() for worker in workers)
            raise AssertionError(f"it did not come, or a worker ended; the workers said:\n{logs}")
        time.sleep(LOOK_AGAIN_S)
