"""How the worker behaves as a container's only process, as far as that can be seen without an engine.

`make deploy-check` shows from the image that it runs as a user without rights, on a file system it cannot write.
"""

import asyncio
import io
import signal
import socket
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.worlds.live_worker import BUSY, LiveWorker, interlock, live_worker, today, until
from worker.web.probe import probe

EXIT_S = 25.0

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def worker(tmp_path: Path, address: str) -> Generator[LiveWorker]:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "busy.yaml").write_text(BUSY)
    with live_worker(tmp_path, "--pipelines", "pipelines", INTERLOCK_HEALTH=address) as running:
        yield running


def health(address: str, path: str = "/healthz") -> int:
    return probe(address, path, say=io.StringIO())


async def test_the_probe_of_the_task_definition_is_green_while_it_works_and_red_while_it_hangs(
    worker: LiveWorker, address: str
) -> None:
    until(lambda: health(address) == 0, worker)

    worker.process.send_signal(signal.SIGSTOP)
    assert await asyncio.to_thread(health, address) == 1
    worker.process.send_signal(signal.SIGCONT)

    until(lambda: health(address) == 0, worker)


def test_a_worker_is_ready_once_it_has_a_session_and_not_while_it_leaves(worker: LiveWorker, address: str) -> None:
    until(lambda: health(address, "/readyz") == 0, worker)

    worker.process.send_signal(signal.SIGTERM)

    until(lambda: worker.process.poll() is not None or health(address, "/readyz") == 1)
    assert worker.process.wait(EXIT_S) == 0


def test_sigterm_under_load_ends_it_in_order_and_in_time(worker: LiveWorker, tmp_path: Path) -> None:
    for day in range(5):
        said = ("sensor", "put", "busy", "landed", "ok=true", "--period", today(days_ago=day))
        assert interlock(*said, at=tmp_path).returncode == 0
    until(lambda: worker.has_logged('"JobStarted"'), worker)

    began = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(EXIT_S) == 0
    assert time.monotonic() - began < EXIT_S
    assert worker.has_logged('"left in order"')
