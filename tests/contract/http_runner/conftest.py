"""A runner of HTTP jobs, and a real server that resets, hangs, redirects, lies and floods."""

from collections.abc import AsyncGenerator

import pytest

from tests.contract.http_runner.httpjobs import HERE, SECRETS
from tests.support.clock.manual import ManualClock
from tests.support.fakes.http_target import WebServer, a_web_server
from worker.jobs.http.runner import HttpRunner
from worker.net.http_client import HttpClient


@pytest.fixture
async def server() -> AsyncGenerator[WebServer]:
    async with a_web_server() as served:
        yield served


@pytest.fixture
async def runner() -> AsyncGenerator[HttpRunner]:
    async with HttpClient(HERE) as client:
        yield HttpRunner(client, ManualClock(), SECRETS)
