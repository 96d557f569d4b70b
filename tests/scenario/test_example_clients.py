"""The example clients of the HTTP API, run against a served store."""

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import ORDERS, a_stored_run, key_of, version_hash
from tests.support.worlds.web import OPERATOR, VIEWER, WebWorld, a_web_world
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, State
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.web.addresses import Address
from worker.web.server import WebServer

CLIENTS = Path(__file__).parents[2] / "examples" / "clients"


@pytest.fixture
async def world() -> AsyncGenerator[WebWorld]:
    async with a_web_world() as made:
        await Pipelines(made.tables).put(PipelineId("orders"), ORDERS)
        yield made


@pytest.fixture
async def url(world: WebWorld) -> AsyncGenerator[str]:
    server = WebServer(Address("127.0.0.1", 0), world.guard, setting="INTERLOCK_WEB")
    served = await server.start()
    yield f"http://{served}"
    await server.stop()


async def run(*words: str) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_script_writes_a_sensor_and_explains_its_run(world: WebWorld, url: str) -> None:
    output = await run("sh", str(CLIENTS / "session.sh"), url, OPERATOR, "orders", "export")

    written, explained = output.splitlines()
    assert '"readBy":["orders"]' in written
    assert '"type":"explanation"' in explained
    today = datetime.now(UTC).date()
    assert await Sensors(world.tables).get(PipelineId("orders"), f"export#{today}") is not None


async def test_the_client_lists_failed_runs_page_by_page(world: WebWorld, url: str) -> None:
    now = datetime.now(UTC)
    run_row = a_stored_run(State.FAILED_FINAL, await version_hash(world.tables), key=key_of(f"{now.date()}"), since=now)
    await Runs(world.tables).save(replace(run_row, outcome=Outcome.FAILED, reason="out of memory"))

    output = await run(sys.executable, str(CLIENTS / "client.py"), url, VIEWER)

    assert output == f"orders {now.date()} out of memory\n"
