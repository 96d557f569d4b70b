"""The page of a pipeline goes back: 60 periods at a time, each seen once."""

import re
from collections.abc import AsyncGenerator
from html import unescape

import pytest

from tests.support.worlds.console import ConsoleWorld, a_console_world, fill_store

PIPELINE = "/pipelines/web-sessions"


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=150)
        yield made


def periods_of(text: str) -> list[str]:
    grid = text.partition('<ol class="periods"')[2].partition("</ol>")[0]
    return re.findall(r'href="/runs/web-sessions/stream/([^"]+)"', grid)


def link(text: str, kind: str) -> str:
    [found] = re.findall(rf'<a href="([^"]+)" rel="{kind}">', text)
    return unescape(found)


async def test_older_and_newer_lead_through_all_periods(world: ConsoleWorld) -> None:
    first = (await world.get(PIPELINE)).text
    second = (await world.get(link(first, "prev"))).text
    third = (await world.get(link(second, "prev"))).text

    pages = [periods_of(each) for each in (third, second, first)]
    assert [len(each) for each in pages] == [30, 60, 60]
    shown = [period for each in pages for period in each]
    assert shown == sorted(set(shown))
    assert 'rel="next"' not in first
    assert 'rel="prev"' not in third
    assert "60 up to 2027-01-21" in second
    assert f'data-frag="{PIPELINE}?schedule=stream&amp;to=2027-01-21"' in second  # live updates stay there
    assert periods_of((await world.get(link(third, "next"))).text) == pages[1]
    assert periods_of((await world.get(link(second, "next"))).text) == pages[2]


async def test_a_period_without_runs_before_it_says_so_and_a_wrong_one_is_a_problem(world: ConsoleWorld) -> None:
    empty = (await world.get(f"{PIPELINE}?to=2020-01-01")).text

    assert "There is no run up to 2020-01-01." in empty
    assert 'rel="next"' in empty
    for wrong in ("yesterday", "2027-13-01", "<b>", "2027-03-22~"):
        assert (await world.get(f"{PIPELINE}?to={wrong}")).status_code == 400
