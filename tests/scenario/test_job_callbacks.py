"""Jobs that report their own end: seen within a second, once, and covered by the poll if the report is lost."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, World, a_world, begin
from tests.support.worlds.web import BASE, rules
from worker.app.web import NoWorker
from worker.config.store_setting import GROUP
from worker.core.run.state import Outcome, Run, State
from worker.jobs.callbacks import CallbackClaim, callback_urls, seal
from worker.store.repos.callback_key import make_callback_key
from worker.telemetry.meters import Meters
from worker.web.api.application import make_api
from worker.web.api.context import ApiContext
from worker.web.guard import Guard
from worker.web.health import HealthPages

DONE = {"outcome": "succeeded", "outputs": {"rows": 7}}
RARELY = CONFIG.replace("maxRetries: 1", "maxRetries: 1\n  pollIntervalSeconds: 600")


@dataclass(frozen=True)
class Served:
    """A worker whose job runs, and the address that the job was given."""

    world: World
    client: httpx.AsyncClient
    key: bytes

    async def url(self) -> str:
        return callback_urls(BASE, self.key)(await self.run())

    async def run(self) -> Run:
        run = await self.world.run()
        assert run is not None
        return run

    async def report(self, url: str, content: Any = DONE) -> bool | int:  # noqa: ANN401  also what is no report
        """Return whether the report was accepted, or the status of its problem."""
        response = await self.client.post(url, json=content)
        return response.json()["accepted"] if response.status_code == 202 else response.status_code

    async def seen(self) -> tuple[Run, list[str], int]:
        return await self.run(), await self.world.events(), len(await self.world.job_log())


@asynccontextmanager
async def a_running_job() -> AsyncGenerator[Served]:
    world = await a_world()
    guard = Guard(
        make_api(ApiContext(tables=world.tables, clock=world.clock)), rules(), HealthPages(NoWorker(), Meters())
    )
    key = await make_callback_key(world.tables, GROUP, lambda: "secret")
    async with world.worker(), httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=BASE) as client:
        await begin(world, RARELY)
        await world.settle()
        assert await world.state() is State.POLLING
        yield Served(world, client, key)


@on_virtual_time
async def test_a_reported_end_is_seen_within_a_second_without_a_poll() -> None:
    async with a_running_job() as served:
        polls = served.world.runner.calls["status"]

        assert await served.report(await served.url()) is True
        await served.world.wait(seconds=1)

        assert (await served.run()).outcome is Outcome.SUCCEEDED
        assert served.world.runner.calls["status"] == polls


@on_virtual_time
async def test_a_repeated_report_and_one_that_contradicts_it_change_nothing() -> None:
    async with a_running_job() as served:
        url = await served.url()
        await served.report(url)
        await served.world.wait(seconds=1)
        before = await served.seen()

        assert await served.report(url) is False
        assert await served.report(url, {"outcome": "failed", "message": "no"}) is False
        await served.world.wait(minutes=30)

        assert await served.seen() == before


@on_virtual_time
async def test_a_late_failure_of_the_first_attempt_costs_the_second_nothing() -> None:
    async with a_running_job() as served:
        first = await served.url()
        failed = {"outcome": "failed", "message": "out of memory", "category": "TRANSIENT"}
        assert await served.report(first, failed) is True
        await served.world.wait(minutes=2)
        assert (await served.run()).attempt == 2
        before = await served.seen()

        assert await served.report(first, failed) is False
        await served.world.wait(seconds=30)

        assert await served.seen() == before
        assert len(served.world.runner.starts) == 2


@on_virtual_time
async def test_a_forged_report_changes_nothing() -> None:
    async with a_running_job() as served:
        run, url = await served.run(), await served.url()
        before = await served.seen()
        token = url.split("/")[-2]
        forged = [
            f"{BASE}/api/v1/jobs/{seal(CallbackClaim(run.key, run.token), b'another key')}/ended",
            f"{BASE}/api/v1/jobs/{token[:-1]}{'A' if token[-1] != 'A' else 'B'}/ended",
            f"{BASE}/api/v1/jobs/{run.token}/ended",
        ]

        assert [await served.report(each) for each in forged] == [401, 401, 401]
        await served.world.wait(seconds=5)

        assert await served.seen() == before
        assert await served.world.state() is State.POLLING


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
@on_virtual_time
async def test_the_poll_covers_a_report_that_is_lost(outcome: Outcome) -> None:
    async with a_running_job() as served:
        url = await served.url()
        if outcome is Outcome.SUCCEEDED:
            served.world.runner.finish()
        else:
            served.world.runner.fail()
        await served.world.wait(seconds=30)
        assert await served.world.state() is State.POLLING  # nobody has reported it

        await served.world.wait(minutes=11)
        if outcome is Outcome.FAILED:  # the retry
            served.world.runner.fail()
            await served.world.wait(minutes=15)
        before = await served.seen()
        assert before[0].outcome is outcome

        assert await served.report(url) is False  # it arrives after all
        await served.world.wait(minutes=1)
        assert await served.seen() == before
