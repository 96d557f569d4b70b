"""The stack of `deploy/compose.redis.yaml`, without an engine: its own commands and settings, as processes here."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scenario.test_worker_processes import CONFIG
from tests.support.redis_server import RedisServer
from tests.support.worlds.live_worker import LiveWorker, interlock, today, until

ROOT = Path(__file__).parents[2]
WORKERS = ("worker-1", "worker-2")

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("processes")]


@pytest.fixture
def services() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "deploy" / "compose.redis.yaml").read_text())["services"]


@pytest.fixture
def server(services: dict[str, Any]) -> Iterator[RedisServer]:
    """The server of these tests with the options of the file."""
    program, *options = services["redis"]["command"]
    assert program == "valkey-server"
    server = RedisServer(options=options).start()
    yield server
    server.stop()


async def test_two_workers_of_the_stack_run_a_job_once(
    tmp_path: Path, services: dict[str, Any], server: RedisServer
) -> None:
    def variables(name: str) -> dict[str, str]:
        # A container has its ports to itself.
        given = {key: str(value) for key, value in services[name]["environment"].items() if key != "INTERLOCK_HEALTH"}
        assert given["INTERLOCK_STORE"].startswith("redis://redis:6379/")
        return given | {"INTERLOCK_STORE": given["INTERLOCK_STORE"].replace("redis:6379", f"127.0.0.1:{server.port}")}

    def command(*words: str) -> None:
        ended = interlock(*words, at=tmp_path, **variables("setup"))
        assert ended.returncode == 0, ended.stderr

    def play() -> None:
        command(*services["setup"]["command"])
        command("store", "check")
        command("pipelines", "push", "pipelines", "--yes")
        workers = [LiveWorker(tmp_path, name, **variables(name)) for name in WORKERS]
        try:
            for worker in workers:
                worker.until_it_works()
            command("sensor", "put", "orders", "ready", "status=done", "--period", today(days_ago=1))
            until(lambda: any(worker.has_logged('"JobSucceeded"') for worker in workers), *workers)
        finally:
            for worker in workers:
                worker.kill()

    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(CONFIG)
    await asyncio.to_thread(play)

    assert len((tmp_path / "ran").read_text().split()) == 1


def test_the_stack_runs_without_rights_on_files_it_cannot_write(services: dict[str, Any]) -> None:
    ours = {name: service for name, service in services.items() if service["image"] == "interlock:local"}

    assert set(ours) == {"setup", *WORKERS}
    assert all(service["read_only"] for service in ours.values())
    assert all(services[name]["cap_drop"] == ["ALL"] for name in WORKERS)


def test_the_image_that_the_stack_builds_has_the_library_for_redis(services: dict[str, Any]) -> None:
    installed = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()

    assert services["setup"]["build"] == ".."
    assert "-r requirements/runtime.txt" in (ROOT / "Dockerfile").read_text()
    assert {"redis", "hiredis"} <= {line.partition("==")[0] for line in installed}
