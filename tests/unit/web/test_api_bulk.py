"""Bulk operations and deletions over HTTP: previewed, signed, carried out once, and recorded."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.support.builders.cli_runs import ORDERS, PERIOD, a_stored_run, key_of, version_hash
from tests.support.builders.command_line import TODAY
from tests.support.clock.manual import ManualClock
from tests.support.worlds.web import OPERATOR, VIEWER, WebWorld, a_web_world, rules, sha256
from tests.unit.web.test_api_actions import API, problem, recorded
from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, State
from worker.store.repos.deletions import Deletions
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.web.access import parse_tokens

DAYS = ("2027-03-20", "2027-03-21")
BODY = {"action": "rerun", "reason": "network is back", "filter": {"state": ["failed"], "since": "1d"}}


async def failed(world: WebWorld, *days: str) -> None:
    config = await version_hash(world.tables)
    for day in days:
        run = a_stored_run(State.FAILED_FINAL, config, key=key_of(day), since=TODAY - timedelta(hours=1))
        await Runs(world.tables).save(replace(run, outcome=Outcome.FAILED, reason="connection refused"))


async def send(world: WebWorld, method: str, path: str, content: Any = None, token: str = OPERATOR) -> httpx.Response:  # noqa: ANN401
    async with world.client(token) as client:
        return await client.request(method, f"{API}{path}", json=content)


async def previewed(world: WebWorld) -> dict[str, Any]:
    response = await send(world, "POST", "/bulk/preview", BODY)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_previewed_operation_is_carried_out_and_its_progress_is_shown(world: WebWorld) -> None:
    await failed(world, *DAYS)
    preview = await previewed(world)
    before = await recorded(world)

    started = await send(world, "POST", "/bulk", {"token": preview["token"]})
    shown = await send(world, "GET", f"/bulk/{started.json()['id']}", token=VIEWER)

    assert (preview["runs"], preview["accepted"], preview["rejected"], preview["leftOut"]) == (2, 2, 0, None)
    assert before == []
    assert started.status_code == 202
    assert (started.json()["runs"], started.json()["requested"]) == (2, 0)
    assert (shown.json()["requested"], shown.json()["finishedAt"] is None) == (2, False)
    requests = [await Requests(world.tables).rerun_of(key_of(day)) for day in DAYS]
    assert [(each.reason, each.by) for each in requests if each] == [("network is back", "olaf")] * 2
    assert [event.detail["requestedBy"] for event in await recorded(world)] == ["olaf"] * 2


async def test_the_same_token_starts_one_operation(world: WebWorld) -> None:
    await failed(world, *DAYS)
    token = (await previewed(world))["token"]

    first = await send(world, "POST", "/bulk", {"token": token})
    second = await send(world, "POST", "/bulk", {"token": token})

    assert first.json()["id"] == second.json()["id"]
    assert second.json()["requested"] == 2
    assert len(await recorded(world)) == 2


async def test_a_set_that_changed_since_the_preview_is_rejected(world: WebWorld) -> None:
    await failed(world, *DAYS)
    token = (await previewed(world))["token"]
    await failed(world, PERIOD)

    response = await send(world, "POST", "/bulk", {"token": token})

    assert problem(response) == (409, "preview-changed")
    assert await recorded(world) == []


async def test_a_token_that_is_forged_is_rejected(world: WebWorld) -> None:
    await failed(world, *DAYS)
    token = (await previewed(world))["token"]
    body, _, signature = token.partition(".")

    for forged in ("x", body, f"{body}.AAAA", f"{body[:-2]}AA.{signature}", "é.é"):
        assert problem(await send(world, "POST", "/bulk", {"token": forged})) == (422, "invalid"), forged
    assert await recorded(world) == []


async def test_a_token_expires_and_is_valid_for_its_requester_only() -> None:
    clock = ManualClock(TODAY)
    tokens = parse_tokens(f"olaf:operator:{sha256(OPERATOR)},olga:operator:{sha256('a-second-operator-token')}")
    async with a_web_world(clock=clock, access=rules(tokens=tokens)) as world:
        await Pipelines(world.tables).put(PipelineId("orders"), ORDERS)
        version = await PipelineVersions(world.tables).current(PipelineId("orders"))
        assert version is not None
        await failed(world, *DAYS)
        token = (await previewed(world))["token"]

        by_other = await send(world, "POST", "/bulk", {"token": token}, "a-second-operator-token")
        clock.advance(timedelta(minutes=10))
        late = await send(world, "POST", "/bulk", {"token": token})

        assert problem(by_other) == (422, "invalid")
        assert "another person" in by_other.json()["detail"]
        assert problem(late) == (422, "invalid")
        assert "expired" in late.json()["detail"]


@pytest.mark.parametrize(
    "change",
    [
        {"filter": {}},
        {"filter": {"color": "red"}},
        {"reason": ""},
        {"reason": "replay"},
        {"action": "explode"},
    ],
)
async def test_a_wrong_preview_is_rejected(world: WebWorld, change: dict[str, Any]) -> None:
    assert problem(await send(world, "POST", "/bulk/preview", {**BODY, **change})) == (422, "invalid")


async def test_nobody_but_an_operator_previews_starts_or_deletes(world: WebWorld) -> None:
    await failed(world, PERIOD)

    assert problem(await send(world, "POST", "/bulk/preview", BODY, VIEWER)) == (403, "forbidden")
    assert problem(await send(world, "POST", "/bulk", {"token": "x"}, VIEWER)) == (403, "forbidden")
    path = f"/runs/orders/stream/{PERIOD}?reason=x"
    assert problem(await send(world, "DELETE", path, token=VIEWER)) == (403, "forbidden")


async def test_an_unknown_operation_is_not_found(world: WebWorld) -> None:
    assert problem(await send(world, "GET", "/bulk/abc")) == (404, "not-found")


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_an_ended_run_is_deleted_with_who_and_why(world: WebWorld) -> None:
    await failed(world, PERIOD)

    response = await send(world, "DELETE", f"/runs/orders/stream/{PERIOD}?reason=test%20data")

    assert response.status_code == 200
    assert (response.json()["deleted"], response.json()["forgotten"]) == (True, False)
    deletion = await Deletions(world.tables).load(key_of())
    assert deletion is not None
    assert (deletion.by, deletion.reason) == ("olaf", "test data")
    [event] = await recorded(world)
    assert event.detail["action"] == "delete"


async def test_a_run_is_not_deleted_at_another_version_while_active_or_without_a_reason(world: WebWorld) -> None:
    await failed(world, PERIOD)
    active = a_stored_run(State.EVALUATING, await version_hash(world.tables), key=key_of("2027-03-19"))
    await Runs(world.tables).save(active)

    other = await send(world, "DELETE", f"/runs/orders/stream/{PERIOD}?reason=x&version=7")
    waiting = await send(world, "DELETE", "/runs/orders/stream/2027-03-19?reason=x")
    silent = await send(world, "DELETE", f"/runs/orders/stream/{PERIOD}")
    unknown = await send(world, "DELETE", "/runs/orders/stream/2027-01-01?reason=x")

    assert problem(other) == (409, "conflict")
    assert problem(waiting) == (409, "conflict")
    assert problem(silent) == (400, "bad-request")
    assert problem(unknown) == (404, "unknown-run")
