"""Expected runs on lists: the next run of a pipeline, and outlines in the timeline; read in the background, once."""

import re
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from tests.support.worlds.console import MORNING, ConsoleWorld, a_console_world, fill_store
from tests.unit.web.test_live_pages import text
from worker.core.model.ids import PipelineId
from worker.store.repos.pipelines import Pipelines
from worker.web.live.facts import FinishedRun
from worker.web.live.mirror import Mirror
from worker.web.live.timeline import TimeWindow, expected_of, lane_of

HOURLY = """\
pipeline: {id: clicks, owner: growth}
schedule: {cron: "30 * * * *"}
validation: {rules: [{key: ready, check: exists}]}
job: {type: command, config: {command: load}}
"""


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=20)
        await Pipelines(made.tables).put(PipelineId("clicks"), HOURLY)
        yield made


async def test_the_list_of_pipelines_says_what_is_expected_next(world: ConsoleWorld) -> None:
    shown = await text(world, "/pipelines?q=clicks")
    other = await text(world, "/pipelines?q=ledger")

    assert "06:30 UTC" in shown
    assert re.search(r"by 08:00 UTC \d+ %", other)  # no time of its own: its deadline


async def test_a_list_reads_a_configuration_once_in_ten_minutes(world: ConsoleWorld) -> None:
    await world.get("/pipelines?q=clicks")
    await world.get("/pipelines?q=clicks")
    before = world.tables.requests
    await world.get("/pipelines?q=clicks")
    assert world.tables.requests == before

    await Pipelines(world.tables).put(PipelineId("clicks"), HOURLY.replace("30 *", "45 *"))
    world.clock.advance(timedelta(minutes=11))
    await world.get("/pipelines?q=clicks")  # wants it
    world.clock.advance(timedelta(seconds=61))
    shown = await text(world, "/pipelines?q=clicks")

    assert "06:45 UTC" in shown


async def test_on_time_counts_the_runs_of_14_days(world: ConsoleWorld) -> None:
    page = (await world.get("/pipelines?q=ledger")).text
    [share] = re.findall(r'data-label="On time">(\d+) %', page)

    # Of the runs of days 2 to 14 and yesterday's failure, those that neither failed nor were late.
    days = [days for days in range(2, 21) if _ended_days_ago(days) <= 14]
    seed = 3
    good = sum((each + seed * 5) % 17 != 3 and (each + seed * 3) % 13 != 5 for each in days)
    assert int(share) == round(100 * good / (len(days) + 1))


def _ended_days_ago(days: int) -> float:
    return days - 1 + (80 - (days * 7 + 9) % 23) / 1_440


async def test_the_timeline_outlines_what_is_expected(world: ConsoleWorld) -> None:
    await world.get("/timeline?q=clicks")
    response = await world.get("/timeline?q=clicks")
    shown = await text(world, "/timeline?q=clicks")

    assert len(re.findall("expected, usually", response.text)) == 6  # 06:30 to 11:30: a quarter of 24 hours lies ahead
    assert "clicks 2027-03-23T05 expected 2027-03-23 06:30:00 UTC" in shown


async def test_a_run_that_exists_is_not_expected_any_more(world: ConsoleWorld) -> None:
    await world.get("/timeline?q=clicks")
    mirror, expected = await world.live.fresh(), world.live.expected
    assert expected is not None
    now = MORNING.timestamp()
    window = TimeWindow(now - 3_600, now + 7_200)
    coming = expected.of("clicks", now)
    first = coming[0]
    seen = Mirror()
    ended = FinishedRun(
        f"clicks/{first.schedule}/{first.period}", "clicks", first.schedule, first.period, word="completed", at=now
    )

    assert len(expected_of(mirror, lane_of(mirror, "clicks", window, now), coming, window)) == 2
    seen.see_run(ended)
    assert len(expected_of(seen, lane_of(seen, "clicks", window, now), coming, window)) == 1
