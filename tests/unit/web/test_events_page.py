"""The page of events: filters that are part of the address, severities, details, and pages without gaps."""

import re
from collections.abc import AsyncGenerator
from datetime import timedelta
from html import unescape

import pytest

from tests.support.worlds.console import MORNING, YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.unit.web.test_console import HOSTILE, page
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json
from worker.store.repos.events import event_write


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=2)
        yield made


async def emit(world: ConsoleWorld, number: int, detail: dict[str, Json] | None = None, **names: str) -> None:
    event = Event(
        id=f"n{number:03}",
        type=names.get("type", EventType.JOB_COMPLETED),
        at=MORNING - timedelta(milliseconds=number // 30),  # thirty have the same time
        pipeline=names.get("pipeline", "web-sessions"),
        schedule="stream",
        period=YESTERDAY,
        message=names.get("message", "done"),
        detail=detail or {},
    )
    await world.tables.commit(event_write(event))


def ids(text: str) -> list[str]:
    return re.findall(r'<tr id="e:([^"]+)"', text)


async def all_pages(world: ConsoleWorld, path: str) -> list[str]:
    found = list[str]()
    while path:
        text = (await world.get(path)).text
        found += ids(text)
        following = re.findall(r'<a href="([^"]+)" rel="next">', text)
        path = unescape(following[0]) if following else ""
    return found


@pytest.mark.parametrize("path", ["/events?type=JOB_COMPLETED", "/events?pipeline=web-sessions", "/events?severity=ok"])
async def test_pages_of_events_have_each_once_and_none_is_lost(world: ConsoleWorld, path: str) -> None:
    for number in range(260):
        await emit(world, number)

    found = await all_pages(world, path)

    assert len(ids((await world.get(path)).text)) == 100
    assert sorted(each for each in found if each.startswith("n")) == [f"n{number:03}" for number in range(260)]
    assert len(found) == len(set(found))


async def test_filters_are_part_of_every_link_and_of_what_updates_fetch(world: ConsoleWorld) -> None:
    response = await world.get("/events?severity=alert&pipeline=ledger-close&since=24h")
    text = await page(world, "/events?severity=alert&pipeline=ledger-close&since=24h")

    assert "RETRY_EXHAUSTED" in text
    assert "✕ alert" in text
    assert "JOB_TRIGGERED 2" not in text
    assert 'data-frag="/events?severity=alert&amp;pipeline=ledger-close&amp;since=24h"' in response.text
    assert 'href="/events?show=deadlines&amp;severity=alert&amp;pipeline=ledger-close&amp;since=24h"' in response.text
    warnings = await page(world, "/events?severity=warning&show=deadlines")
    assert "! warning SLA_WARNING" in warnings
    assert "✕ alert" not in warnings
    assert "There is no such event" in await page(world, "/events?since=1h&type=SLA_WARNING")


async def test_the_detail_of_an_event_is_there_on_demand_without_secrets_and_not_too_long(world: ConsoleWorld) -> None:
    await emit(world, 1, {"password": "hunter2", "note": HOSTILE, "attempt": 7})

    response = await world.get("/events?type=JOB_COMPLETED")

    assert "<details><summary>detail</summary>" in response.text
    assert "hunter2" not in response.text
    assert "<img" not in response.text
    assert "more characters)" in response.text
    assert len(response.text) < 20_000


async def test_events_of_other_systems_are_found_by_pipeline_and_type(world: ConsoleWorld) -> None:
    await emit(world, 1, type="THEIR_EVENT", pipeline="web-sessions")

    assert "THEIR_EVENT" in await page(world, "/events?pipeline=web-sessions&type=THEIR_EVENT")
    assert "THEIR_EVENT" in await page(world, "/events?pipeline=web-sessions")


@pytest.mark.parametrize("query", ["type=NONE", "severity=grave", "pipeline=..%2F", "since=soon", "cursor=xyz"])
async def test_a_wrong_filter_is_a_problem(world: ConsoleWorld, query: str) -> None:
    assert (await world.get(f"/events?{query}")).status_code == 400
