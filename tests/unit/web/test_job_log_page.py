"""The log of a job in the console: its end, without secrets, or where it is."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import SIMPLE, YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.unit.web.test_console import FAILED, HOSTILE, page
from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Run, State
from worker.operations.runs.job_output import OUTPUT
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.web.console.pages.job_log_page import LINES_MAX, SHOWN_CHARS_MAX

RUNNING = f"/runs/stock-levels/stream/{YESTERDAY}"
PART = f"/frag/log/stock-levels/stream/{YESTERDAY}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world(job_folder=tmp_path) as made:
        await fill_store(made.tables, days=4)
        yield made


async def printed(world: ConsoleWorld, folder: Path, content: bytes) -> None:
    run = await Runs(world.tables).load(key_of(YESTERDAY, "stock-levels"))
    assert isinstance(run, Run)
    (folder / run.token).mkdir()
    (folder / run.token / OUTPUT).write_bytes(content)


async def test_the_page_of_a_run_has_the_log_of_its_job_and_a_plain_link_to_it(
    world: ConsoleWorld, tmp_path: Path
) -> None:
    await printed(world, tmp_path, b"read 950 rows\nloaded\n")
    response = await world.get(RUNNING)

    assert f'hx-get="{PART}?attempt=1" hx-trigger="load"' in response.text
    assert f'href="{RUNNING}/log?attempt=1"' in response.text
    for path in (f"{PART}?attempt=1", f"{RUNNING}/log?attempt=1", f"{RUNNING}/log"):
        text = await page(world, path)
        assert "read 950 rows loaded" in text
        assert "reload" in text
    assert f'href="{FAILED}/log?attempt=2"' in (await world.get(FAILED)).text
    assert "Log of the job" not in await page(world, f"/runs/orders-daily/stream/{YESTERDAY}")


async def test_a_long_log_shows_its_last_lines_and_says_so(world: ConsoleWorld, tmp_path: Path) -> None:
    await printed(world, tmp_path, b"".join(b"line %d\n" % number for number in range(500)))

    text = await page(world, PART)

    assert f"the last {LINES_MAX} lines of 500" in text
    assert "line 299" not in text
    assert "line 300" in text
    assert "line 499" in text


async def test_a_log_of_long_lines_stays_small(world: ConsoleWorld, tmp_path: Path) -> None:
    await printed(world, tmp_path, (b"y" * 3_000 + b"\n") * 200)

    response = await world.get(PART)

    assert len(response.text) < SHOWN_CHARS_MAX + 2_000
    assert "the last " in response.text


async def test_hostile_output_is_shown_as_text(world: ConsoleWorld, tmp_path: Path) -> None:
    await printed(world, tmp_path, f"{HOSTILE[:90]}\n\x1b[31mred\n".encode())

    for path in (PART, f"{RUNNING}/log"):
        text = (await world.get(path)).text
        assert "<img" not in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text
        assert "\u202e" not in text
        assert "\x1b" not in text


async def test_a_secret_is_hidden_and_one_that_cannot_be_hides_the_log(
    world: ConsoleWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SIMPLE.format(name="stock-levels", owner="x", about="y").replace("load", "load $INTERLOCK_LOADER_PASSWORD")
    await Pipelines(world.tables).put(PipelineId("stock-levels"), config)
    run = await Runs(world.tables).load(key_of(YESTERDAY, "stock-levels"))
    assert isinstance(run, Run)
    versions = PipelineVersions(world.tables)
    version = await versions.current(PipelineId("stock-levels"))
    assert version is not None
    await versions.persist(version)
    await Runs(world.tables).save(replace(run, config_hash=version.config_hash))
    await printed(world, tmp_path, b"token hunter2-and-more\n")

    unknown = await page(world, PART)
    monkeypatch.setenv("INTERLOCK_LOADER_PASSWORD", "hunter2-and-more")
    known = await page(world, PART)

    assert "INTERLOCK_LOADER_PASSWORD must be set here as for the worker, to be hidden" in unknown
    assert "hunter2" not in unknown + known
    assert "token ***" in known


async def test_a_log_that_is_elsewhere_says_where(world: ConsoleWorld) -> None:
    here = await page(world, f"{RUNNING}/log")

    assert "The output is not on this machine." in here
    assert f"interlock logs stock-levels {YESTERDAY} --attempt 1" in here

    runs = Runs(world.tables)
    run = await runs.load(key_of(YESTERDAY, "stock-levels"))
    assert isinstance(run, Run)
    run = await runs.save(replace(run, job_type="glue", job={"runId": "jr_7", "jobName": "stock"}))
    assert "log groups /aws-glue/jobs/output and /aws-glue/jobs/error, stream jr_7" in await page(world, PART)
    run = await runs.save(replace(run, job_type="http", job={"id": "7", "url": "javascript:alert(1)"}))
    assert 'href="javascript:' not in (await world.get(PART)).text
    await runs.save(replace(run, job_type="glue", job={}))
    assert "has not reported an id yet" in await page(world, PART)


async def test_a_log_of_what_does_not_exist_is_a_page_that_says_so(world: ConsoleWorld) -> None:
    for path in (f"{PART}?attempt=7", "/runs/orders-daily/stream/2027-03-23/log", "/runs/orders-daily/stream/x/log"):
        assert (await world.get(path)).status_code == 404, path
    for attempt in ("0", "-1", "1e3", "9" * 30, "\u0661"):
        assert (await world.get(f"{PART}?attempt={attempt}")).status_code == 400


async def test_a_running_job_says_how_long_it_usually_takes(world: ConsoleWorld) -> None:
    assert "running for 12m of usually 22m" in await page(world, RUNNING)

    runs = Runs(world.tables)
    run = await runs.load(key_of(YESTERDAY, "stock-levels"))
    assert isinstance(run, Run)
    await runs.save(replace(run, state=State.STOPPING))
    assert "of usually" not in await page(world, RUNNING)


async def test_the_log_reads_no_more_than_its_run_and_version(world: ConsoleWorld) -> None:
    world.tables.requests = 0

    await world.get(PART)

    assert 0 < world.tables.requests <= 4
