"""A job reports its own end: what counts, and what changes nothing."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.support.builders.cli_runs import ORDERS, a_stored_run, key_of, version_hash
from tests.support.worlds.web import BASE, OPERATOR, WebWorld, a_web_world, rules
from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Run, State
from worker.jobs.callbacks import CallbackClaim, callback_urls, seal
from worker.store.repos.callback_key import find_callback_key, make_callback_key
from worker.store.repos.job_log import JobLog, JobRecord, reported_outputs
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.table import TableName, query_all
from worker.web.access import AccessMode

DONE = {"outcome": "succeeded", "outputs": {"rows": 7, "password": "hunter2"}}


async def a_running_job(world: WebWorld, state: State = State.POLLING) -> tuple[Run, str]:
    """A run with a job, and the address that the job was given."""
    run = await Runs(world.tables).save(a_stored_run(state, await version_hash(world.tables)))
    key = await make_callback_key(world.tables, GROUP, lambda: "secret")
    return run, callback_urls(BASE, key)(run)


async def report(world: WebWorld, url: str, content: Any = DONE) -> httpx.Response:  # noqa: ANN401
    async with world.client() as client:  # without a token: the address is the permission
        return await client.post(url, json=content)


async def reports(world: WebWorld) -> list[JobRecord]:
    return [line async for line in JobLog(world.tables).list(key_of())]


async def test_a_job_reports_its_end_and_outputs_without_their_secrets(world: WebWorld) -> None:
    run, url = await a_running_job(world)

    response = await report(world, url)

    assert (response.status_code, response.json()["accepted"]) == (202, True)
    [line] = await reports(world)
    assert (line.event, line.attempt, line.is_ours, line.is_report) == ("success", run.attempt, False, True)
    [row] = [row async for row in query_all(world.tables, TableName.JOBLOG, "PIPELINE#orders")]
    assert reported_outputs(row) == {"result": {"rows": 7, "password": "[redacted]"}}


async def test_what_a_job_reports_is_kept_without_the_secrets_of_its_own_configuration(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_ORDERS_PASSWORD", "s3cr3tvalue")
    job = "{type: http, config: {url: 'https://x.example', headers: {X-Key: '${INTERLOCK_ORDERS_PASSWORD}'}}}"
    await Pipelines(world.tables).put(PipelineId("orders"), re.sub(r"(?m)^job:.*$", f"job: {job}", ORDERS))
    versions = PipelineVersions(world.tables)
    version = await versions.current(PipelineId("orders"))
    assert version is not None
    await versions.persist(version)
    _, url = await a_running_job(world)

    said = "login with s3cr3tvalue failed"
    await report(world, url, {"outcome": "failed", "message": said, "outputs": {"log": said}})

    rows = [row async for row in query_all(world.tables, TableName.JOBLOG, "PIPELINE#orders")]
    assert "login with " in str(rows)
    assert "s3cr3tvalue" not in str(rows)


async def test_a_failure_has_its_message_and_category(world: WebWorld) -> None:
    _, url = await a_running_job(world)

    await report(world, url, {"outcome": "failed", "message": "no space left", "category": "TRANSIENT"})

    [line] = await reports(world)
    assert (line.event, line.error, line.category) == ("fail", "no space left", "TRANSIENT")


async def test_a_repeated_report_changes_nothing(world: WebWorld) -> None:
    _, url = await a_running_job(world)
    await report(world, url)

    again = await report(world, url, {"outcome": "failed"})

    assert (again.status_code, again.json()["accepted"]) == (202, False)
    assert len(await reports(world)) == 1


async def test_of_many_reports_at_the_same_time_one_counts(world: WebWorld) -> None:
    _, url = await a_running_job(world)
    contents = [DONE if number % 2 else {"outcome": "failed"} for number in range(20)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(report(world, url, content)) for content in contents]

    accepted = [task.result().json()["accepted"] for task in tasks]
    assert accepted.count(True) == 1
    assert len(await reports(world)) == 1


async def test_a_report_about_an_attempt_that_is_over_changes_nothing(world: WebWorld) -> None:
    run, url = await a_running_job(world)
    await Runs(world.tables).save(replace(run, attempt=run.attempt + 1))

    assert (await report(world, url)).json()["accepted"] is False
    assert await reports(world) == []


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED_FINAL])
async def test_a_report_about_a_run_that_ended_changes_nothing(world: WebWorld, state: State) -> None:
    _, url = await a_running_job(world, state)

    assert (await report(world, url)).json()["accepted"] is False
    assert await reports(world) == []


async def test_a_forged_report_changes_nothing(world: WebWorld) -> None:
    run, url = await a_running_job(world)
    forged = [
        url.replace("/ended", "x/ended"),
        f"{BASE}/api/v1/jobs/{seal(CallbackClaim(run.key, run.token), b'guessed')}/ended",
        f"{BASE}/api/v1/jobs/{run.token}/ended",
        f"{BASE}/api/v1/jobs/%00/ended",
    ]

    for each in forged:
        assert (await report(world, each)).status_code == 401, each
    assert await reports(world) == []


async def test_without_a_key_no_report_is_believed(world: WebWorld) -> None:
    assert await find_callback_key(world.tables, GROUP) is None
    assert (await report(world, f"{BASE}/api/v1/jobs/x.y/ended")).status_code == 401


async def test_a_report_that_comes_before_the_start_is_confirmed_is_not_lost_silently(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.web.api.jobs.START_WAIT_S", 0.0)
    _, url = await a_running_job(world, State.TRIGGERING)

    assert (await report(world, url)).status_code == 409
    assert await reports(world) == []


@pytest.mark.parametrize("content", [{}, {"outcome": "fine"}, {"outcome": "succeeded", "extra": 1}, [], None])
async def test_a_report_that_is_not_understood_is_refused(world: WebWorld, content: object) -> None:
    _, url = await a_running_job(world)

    assert (await report(world, url, content)).status_code == 422
    assert await reports(world) == []


async def test_a_job_needs_no_token_where_others_do_and_a_read_only_server_takes_no_report() -> None:
    async with a_web_world(access=rules(mode=AccessMode.TOKEN)) as world, world.client() as client:
        assert (await client.post("/api/v1/jobs/x.y/ended", json=DONE)).json()["detail"].startswith("this callback")
    async with a_web_world(access=rules(is_read_only=True)) as world, world.client() as client:
        assert (await client.post("/api/v1/jobs/x.y/ended", json=DONE)).status_code == 403


async def test_the_key_is_made_once(world: WebWorld) -> None:
    first = await make_callback_key(world.tables, GROUP, lambda: "one")

    assert await make_callback_key(world.tables, GROUP, lambda: "two") == first


def summary_address(url: str) -> str:
    return f"{url.removesuffix('/ended')}/summary"


async def test_a_running_job_puts_its_summary_at_its_own_address(world: WebWorld) -> None:
    run, url = await a_running_job(world)

    first = await report(world, summary_address(url), {"seen": 12, "errored": 1})
    more = await report(world, summary_address(url), {"errored": 2})

    assert (first.status_code, first.json()["summary"]) == (200, {"seen": 12, "errored": 1})
    assert more.json()["summary"] == {"seen": 12, "errored": 2}
    stored = await Runs(world.tables).load(run.key)
    assert isinstance(stored, Run)
    assert stored.summary == {"seen": 12, "errored": 2}


async def test_an_older_attempt_puts_no_summary(world: WebWorld) -> None:
    run, url = await a_running_job(world)
    await Runs(world.tables).save(replace(run, attempt=run.attempt + 1))

    assert (await report(world, summary_address(url), {"seen": 1})).status_code == 409
    assert (await report(world, summary_address(url.replace("jobs/", "jobs/x")), {"seen": 1})).status_code == 401


@pytest.mark.parametrize("body", [{}, {"seen": -1}, {"seen": "3"}, {"seen": True}, {"seen": 1.5}, {"rows": 1}, []])
async def test_what_is_no_summary_is_refused(world: WebWorld, body: object) -> None:
    _, url = await a_running_job(world)

    assert (await report(world, summary_address(url), body)).status_code == 422


async def test_a_summary_is_put_by_the_name_of_the_run(world: WebWorld) -> None:
    run, _ = await a_running_job(world)
    path = f"/api/v1/runs/{run.key}/summary"

    async with world.client(OPERATOR) as client:
        done = await client.post(path, json={"attempt": 1, "seen": 5})
        old = await client.post(path, json={"attempt": 9, "seen": 6})
        unknown = await client.post("/api/v1/runs/orders/stream/2020-01-01/summary", json={"seen": 1})

    assert (done.status_code, done.json()["summary"]) == (200, {"seen": 5})
    assert (old.status_code, unknown.status_code) == (409, 409)
