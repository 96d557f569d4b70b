"""The list of runs: filters in the address, pages without gaps, hostile text, wrong filters."""

import json
import re
from collections.abc import AsyncGenerator
from html import unescape

import pytest

from tests.support.worlds.console import YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.unit.web.test_console import page


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=40)
        yield made


def runs_of(text: str) -> list[str]:
    return re.findall(r'class="run-name"><a href="/runs/([^"]+)"', text)


async def test_runs_are_found_by_state_pipeline_and_reason(world: ConsoleWorld) -> None:
    failed = await world.get("/runs?state=failed&since=24h")

    assert runs_of(failed.text) == [f"ledger-close/stream/{YESTERDAY}"]
    assert "✕ failed" in await page(world, "/runs?state=failed&error=exit+code+1")
    assert len(runs_of((await world.get("/runs?state=active")).text)) == 3
    assert "No run fits." in await page(world, "/runs?pipeline=nobody*")
    [export] = re.findall(r'href="(/api/v1/[^"]+)">NDJSON', failed.text)
    lines = (await world.get(unescape(export))).text.splitlines()  # as a browser asks for it
    assert [json.loads(line)["type"] for line in lines] == ["run", "end"]


async def test_pages_have_each_run_once(world: ConsoleWorld) -> None:
    path, found = "/runs?since=60d", list[str]()
    while path:
        text = (await world.get(path)).text
        shown = runs_of(text)
        assert len(shown) <= 100
        found += shown
        following = re.findall(r'<a href="([^"]+)" rel="next">', text)
        path = unescape(following[0]) if following else ""

    assert len(found) == len(set(found))
    assert len(found) > 200


async def test_a_wrong_filter_is_a_problem_and_its_text_is_shown_as_text(world: ConsoleWorld) -> None:
    for query in ("state=%3Cimg%3E", "since=soon", "cursor=xyz"):
        response = await world.get(f"/runs?{query}")
        assert response.status_code == 400, query
        assert "<img" not in response.text
    assert "<img" not in (await world.get("/runs?error=%3Cimg%3E")).text
