"""Actions over HTTP: the expected result, the request that is written, and the record of who asked and why."""

from typing import Any

import httpx
import pytest

from tests.support.builders.cli_runs import PERIOD, a_stored_run, key_of, version_hash
from tests.support.worlds.dependencies import after
from tests.support.worlds.web import OPERATOR, VIEWER, WebWorld
from tests.unit.web.test_api_reads import a_dead_letter
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.store_setting import GROUP
from worker.core.model.events import Event, EventType
from worker.core.model.keys import marker_pk
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import State
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.table import TableName, query_all

API = "/api/v1"
RUN = f"/runs/orders/stream/{PERIOD}"
WHY = {"reason": "export was corrected"}


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:interlock:problem:")


async def post(world: WebWorld, path: str, content: Any = WHY, token: str = OPERATOR) -> httpx.Response:  # noqa: ANN401
    async with world.client(token, **{"X-Request-Id": "request-7"}) as client:
        return await client.post(f"{API}{path}", json=content)


async def a_run(world: WebWorld, state: State) -> None:
    await Runs(world.tables).save(a_stored_run(state, await version_hash(world.tables)))


async def recorded(world: WebWorld, pipeline: str = "orders") -> list[Event]:
    found = [stored.event for stored in await Events(world.tables).latest(pipeline)]
    return [event for event in found if event.type == EventType.OPERATOR_ACTION]


async def test_a_rerun_is_requested_and_recorded_with_who_and_why(world: WebWorld) -> None:
    await a_run(world, State.FAILED_FINAL)

    response = await post(world, f"{RUN}/rerun")

    assert response.status_code == 202
    assert response.json()["prospect"] == "accepted"
    assert response.json()["requested"] is True
    request = await Requests(world.tables).rerun_of(key_of())
    assert request is not None
    assert (request.reason, request.by, request.via) == (WHY["reason"], "olaf", "web")
    [event] = await recorded(world)
    assert event.period == PERIOD
    assert event.detail == {
        "requestedBy": "olaf",
        "via": "web",
        "role": "operator",
        "requestId": "request-7",
        "action": "rerun",
        "reason": WHY["reason"],
        "forecast": response.json()["expected"],
    }


async def test_a_dry_run_returns_the_result_and_leaves_no_trace(world: WebWorld) -> None:
    await a_run(world, State.FAILED_FINAL)

    response = await post(world, f"{RUN}/rerun", {**WHY, "dryRun": True})

    assert (response.status_code, response.json()["requested"]) == (202, False)
    assert await Requests(world.tables).rerun_of(key_of()) is None
    assert await recorded(world) == []


async def test_a_request_that_would_be_rejected_is_a_problem_and_is_not_made(world: WebWorld) -> None:
    await a_run(world, State.POLLING)

    response = await post(world, f"{RUN}/rerun")

    assert problem(response) == (409, "nothing-to-do")
    assert response.json()["detail"]
    assert await Requests(world.tables).rerun_of(key_of()) is None
    assert await recorded(world) == []


async def test_a_cancellation_is_requested_and_recorded(world: WebWorld) -> None:
    await a_run(world, State.EVALUATING)

    response = await post(world, f"{RUN}/cancel", {**WHY, "waiveDeadline": True})

    assert response.status_code == 202
    request = await Requests(world.tables).cancel_of(key_of())
    assert request is not None
    assert (request.waive_sla, request.by) == (True, "olaf")
    [event] = await recorded(world)
    assert event.detail["action"] == "cancel"


async def test_a_replay_requests_each_period(world: WebWorld) -> None:
    response = await post(world, "/pipelines/orders/replay", {**WHY, "from": "2027-03-20", "to": "2027-03-21"})

    assert response.status_code == 202
    assert (response.json()["requested"], response.json()["schedule"]) == (2, "stream")
    assert [event.detail["action"] for event in await recorded(world)] == ["replay", "replay"]


@pytest.mark.parametrize(
    "span", [{"from": "2027-03-21", "to": "2027-03-20"}, {"from": "2020-01-01", "to": "2027-03-20"}]
)
async def test_a_replay_over_an_impossible_range_is_refused(world: WebWorld, span: dict[str, str]) -> None:
    assert problem(await post(world, "/pipelines/orders/replay", {**WHY, **span})) == (422, "invalid")


async def test_a_replay_with_its_downstreams_says_what_follows(world: WebWorld) -> None:
    loaded = load_text(after("gold", ["orders"], more="grain: day"))
    assert loaded.pipeline is not None, loaded.errors
    await deploy(world.tables, loaded.pipeline, SystemClock())
    span = {**WHY, "from": "2027-03-20", "to": "2027-03-21", "downstream": True}

    response = await post(world, "/pipelines/orders/replay", span)

    assert [(each["pipeline"], each["period"]) for each in response.json()["below"]] == [
        ("gold", "2027-03-20"),
        ("gold", "2027-03-21"),
    ]
    assert response.json()["belowComplete"] is True
    request = await Requests(world.tables).rerun_of(key_of("2027-03-20"))
    assert request is not None
    assert request.is_followed


CASCADE = {**WHY, "period": PERIOD}


async def markers(world: WebWorld) -> list[dict[str, Any]]:
    return [dict(row) async for row in query_all(world.tables, TableName.CONTROL, marker_pk(PipelineId("orders")))]


async def test_a_cascade_writes_a_marker_with_who_and_why(world: WebWorld) -> None:
    response = await post(world, "/pipelines/orders/cascade", CASCADE)

    assert response.status_code == 202
    assert (response.json()["type"], response.json()["requested"]) == ("cascade", True)
    [marker] = await markers(world)
    assert (marker["SK"], marker["reason"], marker["requestedBy"]) == (f"{PERIOD}#stream", WHY["reason"], "olaf")
    [event] = await recorded(world)
    assert (event.detail["action"], event.detail["role"]) == ("cascade", "operator")


async def test_a_cascade_of_a_run_that_exists_or_was_deleted_requests_nothing(world: WebWorld) -> None:
    await a_run(world, State.COMPLETED)
    exists = await post(world, "/pipelines/orders/cascade", CASCADE)
    async with world.client(OPERATOR) as client:
        assert (await client.delete(f"{API}{RUN}", params=WHY)).status_code == 200
    deleted = await post(world, "/pipelines/orders/cascade", CASCADE)

    for answer in (exists, deleted):
        assert (answer.status_code, answer.json()["prospect"], answer.json()["requested"]) == (202, "nothing", False)
    assert "already" in exists.json()["expected"]
    assert "deleted the run" in deleted.json()["expected"]
    assert await markers(world) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({**CASCADE, "period": "2035-01-01"}, (409, "nothing-to-do")),
        ({**CASCADE, "period": "tomorrow"}, (400, "bad-request")),
        ({**CASCADE, "schedule": "nightly"}, (404, "unknown-run")),
        (WHY, (422, "invalid")),
        ({"period": PERIOD}, (422, "invalid")),
    ],
)
async def test_a_cascade_that_would_be_rejected_is_a_problem(
    world: WebWorld, content: dict[str, str], expected: tuple[int, str]
) -> None:
    assert problem(await post(world, "/pipelines/orders/cascade", content)) == expected
    assert problem(await post(world, "/pipelines/nobody/cascade", CASCADE)) == (404, "unknown-pipeline")
    assert await markers(world) == []
    assert await recorded(world) == []


async def test_a_rehearsed_cascade_leaves_no_trace(world: WebWorld) -> None:
    response = await post(world, "/pipelines/orders/cascade", {**CASCADE, "dryRun": True})

    assert (response.json()["prospect"], response.json()["requested"]) == ("accepted", False)
    assert (await markers(world), await recorded(world)) == ([], [])


async def test_a_pipeline_is_paused_and_resumed(world: WebWorld) -> None:
    paused = await post(world, "/pipelines/orders/pause", {"reason": "upgrade", "until": "2h"})
    assert (paused.status_code, paused.json()["wasPaused"]) == (202, False)
    pause = await Pauses(world.tables).load(PipelineId("orders"))
    assert pause is not None
    assert pause.reason == "upgrade"

    resumed = await post(world, "/pipelines/orders/resume")
    assert (resumed.status_code, resumed.json()["wasPaused"]) == (202, True)
    assert await Pauses(world.tables).load(PipelineId("orders")) is None
    assert sorted(str(event.detail["action"]) for event in await recorded(world)) == ["pause", "resume"]

    assert problem(await post(world, "/pipelines/orders/resume")) == (409, "nothing-to-do")
    assert problem(await post(world, "/pipelines/orders/pause", {"reason": "x", "until": "never"})) == (422, "invalid")


async def test_dead_letters_are_replayed_and_dropped(world: WebWorld) -> None:
    name = await a_dead_letter(world)
    path = f"/deadletters/feed.control/{name}"

    assert (await post(world, f"{path}/replay")).json()["count"] == 1
    assert (await post(world, "/deadletters/feed.control/replay")).json()["count"] == 1
    assert [request.id for request in await Replays(world.tables, GROUP).list()] == [name]
    assert (await post(world, f"{path}/drop")).status_code == 202

    assert await DeadLetters(world.tables).list("feed.control") == []
    assert problem(await post(world, f"{path}/drop")) == (404, "unknown-dead-letter")
    assert problem(await post(world, "/deadletters/feed.control/replay")) == (409, "nothing-to-do")
    assert len(await recorded(world, "")) == 3


ACTIONS = [
    f"{RUN}/rerun",
    f"{RUN}/cancel",
    "/pipelines/orders/pause",
    "/pipelines/orders/resume",
    "/pipelines/orders/replay",
    "/pipelines/orders/cascade",
    "/deadletters/feed.control/replay",
    "/deadletters/feed.control/x/replay",
    "/deadletters/feed.control/x/drop",
    "/sensors/orders/export",
    "/sensors",
    "/bulk/preview",
    "/bulk",
    "/ledgers/bills/diff",
    "/ledgers/bills/commit",
    "/ledgers/bills/seed",
    "/ledgers/bills/clear",
    f"{RUN}/summary",
]


def test_every_action_is_in_the_list_of_this_file(world_of_paths: set[str]) -> None:
    assert len(world_of_paths) == len(ACTIONS)


@pytest.fixture
def world_of_paths(world: WebWorld) -> set[str]:
    changing = {path for path, operations in world.api.openapi()["paths"].items() if set(operations) - {"get"}}
    # A run is deleted at its own address; a job's callbacks are addresses that are their own permission.
    others = {"/api/v1/runs/{pipeline}/{schedule}/{period}"}
    return changing - others - {path for path in changing if path.startswith("/api/v1/jobs/{token}/")}


async def test_a_viewer_may_do_nothing(world: WebWorld) -> None:
    for path in ACTIONS:
        assert problem(await post(world, path, token=VIEWER)) == (403, "forbidden"), path
    async with world.client(VIEWER) as client:
        assert problem(await client.delete(f"{API}{RUN}")) == (403, "forbidden")
    assert await recorded(world) == []


@pytest.mark.parametrize(
    "content", [{}, {"reason": ""}, {"reason": " "}, {"reason": "x" * 501}, {"reason": 7}, {**WHY, "extra": 1}, [], 7]
)
async def test_an_action_without_a_reason_or_with_unknown_fields_is_refused(world: WebWorld, content: object) -> None:
    for path in ACTIONS[:9]:
        assert problem(await post(world, path, content)) == (422, "invalid"), path
    assert await recorded(world) == []


@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_not_json_is_refused(world: WebWorld, body: bytes) -> None:
    async with world.client(OPERATOR, **{"Content-Type": "application/json"}) as client:
        for path in ACTIONS:
            response = await client.post(f"{API}{path}", content=body)
            assert response.status_code in {400, 422}, path


async def test_a_form_is_not_an_action(world: WebWorld) -> None:
    async with world.client(OPERATOR) as client:
        response = await client.post(f"{API}/pipelines/orders/pause", data={"reason": "x"})

    assert problem(response) == (422, "invalid")
    assert response.json()["detail"] == "body: must be a JSON object; send it with `Content-Type: application/json`"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"reson": "x"}', "body.reason: is required; body.reson: is not a key here"),
        (b'[{"reason": "x"}]', "body: must be a JSON object"),
        (b'{"reason": "x"', "body: is not JSON: Expecting ',' delimiter at character 14"),
    ],
)
async def test_a_wrong_body_is_described_in_plain_words(world: WebWorld, body: bytes, detail: str) -> None:
    async with world.client(OPERATOR, **{"Content-Type": "application/json"}) as client:
        response = await client.post(f"{API}/pipelines/orders/pause", content=body)

    assert response.json()["detail"] == detail


async def test_an_action_on_what_does_not_exist_is_a_problem(world: WebWorld) -> None:
    assert problem(await post(world, f"/runs/nobody/stream/{PERIOD}/rerun")) == (404, "unknown-pipeline")
    assert problem(await post(world, f"/runs/orders/nightly/{PERIOD}/rerun")) == (404, "unknown-run")
    assert problem(await post(world, "/pipelines/nobody/pause")) == (404, "unknown-pipeline")
