"""Ledgers over HTTP: what changed, what is saved, and who may."""

import asyncio
import importlib.util
import io
import json
import urllib.request
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.support.worlds.web import OPERATOR, VIEWER, WebWorld
from worker.store.table import TableName, query_all

LEDGERS = "/api/v1/ledgers"
CLIENT = Path(__file__).parents[3] / "examples/clients/ledger.py"
RECORDS = [{"id": "a", "hash": "1", "title": "x"}, {"id": "b", "hash": "1"}]


async def post(world: WebWorld, path: str, body: object, token: str = OPERATOR) -> httpx.Response:
    async with world.client(token) as client:
        return await client.post(f"{LEDGERS}{path}", json=body)


def asks(run: str = "r", attempt: int = 1, records: object = RECORDS) -> dict[str, object]:
    return {"run": run, "attempt": attempt, "records": records}


async def test_changed_records_come_back_as_they_were_sent_until_they_are_saved(world: WebWorld) -> None:
    first = await post(world, "/bills/diff", asks())
    saved = await post(world, "/bills/commit", asks())
    second = await post(world, "/bills/diff", asks(records=[RECORDS[0], {"id": "b", "hash": "2"}]))

    assert first.json() == {"items": RECORDS, "seen": 2, "new": 2, "changed": 0, "unchanged": 0}
    assert saved.json() == {"saved": 2, "unchanged": 0, "deleted": 0}
    assert second.json() == {
        "items": [{"id": "b", "hash": "2"}], "seen": 2, "new": 0, "changed": 1, "unchanged": 1,
    }  # fmt: skip


async def test_an_older_attempt_is_refused_with_a_conflict_and_saves_nothing(world: WebWorld) -> None:
    await post(world, "/bills/diff", asks(attempt=2))

    for action in ("diff", "commit"):
        refused = await post(world, f"/bills/{action}", asks(attempt=1))
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:interlock:problem:conflict")
        assert "attempt 2 has taken it over" in refused.json()["detail"]

    async with world.client(OPERATOR) as client:
        shown = (await client.get(f"{LEDGERS}/bills")).json()
    assert (shown["records"], shown["heldBy"]) == (0, {"run": "r", "attempt": 2})


async def test_a_ledger_is_seeded_listed_page_by_page_and_cleared_with_a_reason(world: WebWorld) -> None:
    many = [{"id": f"id-{number}", "hash": "1"} for number in range(30)]
    assert (await post(world, "/bills/seed", {"records": many})).json()["saved"] == 30
    found: list[str] = []
    async with world.client(OPERATOR) as client:
        query: dict[str, str] = {"limit": "7"}
        while query:
            page = (await client.get(f"{LEDGERS}/bills/records", params=query)).json()
            found += [each["id"] for each in page["items"]]
            query = {"limit": "7", "cursor": page["next"]} if page["next"] else {}
    assert sorted(found) == sorted(each["id"] for each in many)

    assert (await post(world, "/bills/clear", {})).status_code == 422
    cleared = await post(world, "/bills/clear", {"reason": "the model changed"})
    assert cleared.json()["deleted"] == 30
    events = [row async for row in query_all(world.tables, TableName.EVENTS, "PIPELINE#")]
    assert "olaf requested ledger clear of bills: the model changed" in {str(row.get("message")) for row in events}


@pytest.mark.parametrize(
    "records", [[{"id": "a"}], [{"id": "", "hash": "1"}], [{"id": "x" * 600, "hash": "1"}], [{"id": 7, "hash": "1"}]]
)
async def test_a_record_that_cannot_be_stored_is_named_and_nothing_is_saved(
    world: WebWorld, records: list[dict[str, object]]
) -> None:
    refused = await post(world, "/bills/commit", asks(records=[RECORDS[0], *records]))

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["where"] == "records.1"
    async with world.client(OPERATOR) as client:
        assert (await client.get(f"{LEDGERS}/bills")).json()["records"] == 0
        assert (await client.get(f"{LEDGERS}/Bills!")).status_code == 400


async def test_a_viewer_reads_and_changes_nothing(world: WebWorld) -> None:
    assert (await post(world, "/bills/diff", asks(), VIEWER)).status_code == 403
    async with world.client(VIEWER) as client:
        assert (await client.get(f"{LEDGERS}/bills")).json()["records"] == 0


async def test_the_client_of_the_examples_sends_any_number_of_records_and_saves_checkpoints(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("ledger_client", CLIENT)
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    posted: list[str] = []

    def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
        assert timeout > 0
        posted.append(request.full_url.rpartition("/")[2])
        answer = asyncio.run_coroutine_threadsafe(
            post(world, f"/bills/{posted[-1]}", json.loads(cast("bytes", request.data))), loop
        ).result(30)
        assert answer.status_code == 200, answer.text
        return io.BytesIO(answer.content)

    def work() -> list[str]:
        bills = client.Ledger("http://interlock", OPERATOR, "bills", run="r")
        assert bills.seed(records[:2_000]) == 2_000
        changed = list(bills.diff(records))
        for each in changed:
            bills.processed(each)
        bills.save()
        return [each["id"] for each in changed]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    records = [{"id": f"id-{number}", "hash": "1"} for number in range(2_150)]

    assert await asyncio.to_thread(work) == [f"id-{number}" for number in range(2_000, 2_150)]
    assert posted == ["seed", "seed", "diff", "diff", "diff", "commit", "commit"]
    async with world.client(OPERATOR) as api:
        assert (await api.get(f"{LEDGERS}/bills")).json()["records"] == 2_150
