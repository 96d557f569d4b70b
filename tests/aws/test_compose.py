"""The local stack of `deploy/compose.yaml`, without an engine: its own commands and settings, as processes here."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.aws.emulators import AWS_ENVIRONMENT, ministack
from tests.support.worlds.installation import endpoint_of
from tests.support.worlds.live_worker import BUSY, LiveWorker, environment, interlock, today, until

DEPLOY = Path(__file__).parents[2] / "deploy"
FAILING = BUSY.replace('[sleep, "30"]', '["false"]') + "  maxRetries: 0\n"

# One stack for the emulator: its names are fixed.
pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("aws-workers")]


def variables(service: dict[str, Any]) -> dict[str, str]:
    """What the file gives a service, with the emulator of these tests in the place of its own."""
    here = endpoint_of(ministack())
    # A container has its ports to itself; and tests run workers at this pace anyway.
    left_out = {"INTERLOCK_HEALTH", "INTERLOCK_TIMING"}
    given = {name: str(value) for name, value in service["environment"].items() if name not in left_out}
    return AWS_ENVIRONMENT | {name: value.replace("http://aws:4566", here) for name, value in given.items()}


async def test_two_workers_of_the_local_stack_run_a_job_and_its_alert_comes_back_over_bus_and_queue(
    tmp_path: Path,
) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    setup, wiring = services["setup"], services["wiring"]
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "busy.yaml").write_text(FAILING)

    def prepare() -> None:
        assert interlock(*setup["command"], at=tmp_path, **variables(setup)).returncode == 0
        [_, script] = wiring["entrypoint"]
        command = [sys.executable, str(DEPLOY / Path(script).name)]
        for _ in range(2):  # what is there already is no trouble
            subprocess.run(command, env=environment(**variables(wiring)), timeout=60, check=True)
        pushed = interlock("pipelines", "push", "pipelines", "--yes", at=tmp_path, **variables(setup))
        assert pushed.returncode == 0, pushed.stderr

    await asyncio.to_thread(prepare)
    workers = [LiveWorker(tmp_path, name, **variables(services[name])) for name in ("worker-1", "worker-2")]
    try:
        await asyncio.to_thread(until, lambda: any(w.has_logged('"pipelines.resynced"') for w in workers), *workers)
        said = ("sensor", "put", "busy", "landed", "rows=12", "--period", today())
        await asyncio.to_thread(lambda: interlock(*said, at=tmp_path, **variables(setup)))
        await asyncio.to_thread(until, lambda: any(_has_told(worker) for worker in workers), *workers)
    finally:
        for worker in workers:
            worker.kill()


def _has_told(worker: LiveWorker) -> bool:
    """An alert that came back is told by whoever takes it from the queue; `alert.told` says its type."""
    return any("JOB_FAILED" in line for line in worker.log.read_text().splitlines() if '"alert.told"' in line)


def test_the_stack_runs_without_rights_on_files_it_cannot_write() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    ours = {name: service for name, service in services.items() if service["image"] == "interlock:local"}
    assert {name for name, service in ours.items() if not service.get("read_only")} == set()
    assert all(services[name]["cap_drop"] == ["ALL"] for name in ("worker-1", "worker-2"))
