"""What the API shows: runs, pipelines, events, dead letters and workers, each page as the OpenAPI document says."""

import json
from dataclasses import replace
from datetime import date, timedelta

import httpx
import pytest
from jsonschema import Draft202012Validator

from consumers.delivery.retry import GivenUp
from consumers.streams.parking import Parking
from consumers.streams.source import Position, Record
from tests.support.builders.cli_runs import PERIOD, a_stored_run, key_of, version_hash
from tests.support.builders.command_line import TODAY
from tests.support.clock.manual import ManualClock
from tests.support.worlds.web import VIEWER, WebWorld
from worker.config.store_setting import GROUP
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.model.rule_report import unmet
from worker.core.run.state import Outcome, State
from worker.core.time.periods import Period
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.readiness import ReadinessRows
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sessions import Sessions
from worker.store.table import Change, ChangeKind, Key, TableName

API = "/api/v1"
RUN = f"{API}/runs/orders/stream/{PERIOD}"


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:interlock:problem:")


async def get(world: WebWorld, path: str, **headers: str) -> httpx.Response:
    async with world.client(VIEWER, **headers) as client:
        return await client.get(f"{API}{path}")


async def runs_of(world: WebWorld, count: int) -> None:
    """Failed runs of the last days, one a day."""
    config_hash = await version_hash(world.tables)
    for number in range(count):
        day = TODAY - timedelta(days=number)
        run = a_stored_run(State.FAILED_FINAL, config_hash, key=key_of(f"{day.date()}"), since=day)
        run = replace(run, run_id=f"run-{number}", outcome=Outcome.FAILED, reason="out of memory")
        await Runs(world.tables).save(run)


async def pages(world: WebWorld, path: str) -> list[list[str]]:
    """The periods, ids or keys of each page of a list."""
    found: list[list[str]] = []
    following = ""
    while True:
        answer = (await get(world, f"{path}{following}")).json()
        found.append([each.get("period") or each.get("id") or each.get("key") for each in answer["items"]])
        assert answer["complete"] is (answer["next"] is None)
        if answer["complete"]:
            return found
        following = f"&cursor={answer['next']}"


# --- the document -----------------------------------------------------------------------------------------------------


async def test_the_document_is_openapi_3_1_and_its_schemas_are_valid(world: WebWorld) -> None:
    document = (await get(world, "/openapi.json")).json()

    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert document == json.loads(json.dumps(world.api.openapi()))


async def test_every_operation_is_described_and_has_a_problem_as_its_error(world: WebWorld) -> None:
    for path in world.api.openapi()["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["description"]
            assert list(operation["responses"]["default"]["content"]) == ["application/problem+json"]
            assert "422" not in operation["responses"]


@pytest.mark.parametrize("path", ["/nothing", "/runs/", "/../api/v1/runs", "//runs", "/runs/orders/stream"])
async def test_a_path_that_leads_nowhere_is_a_problem(world: WebWorld, path: str) -> None:
    assert problem(await get(world, path)) == (404, "not-found")


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines/..%2F..%2Fetc%2Fpasswd",
        "/pipelines/%2e%2e/runs",
        "/pipelines/orders%00/sensors",
        "/pipelines/PIPELINE%23orders",
        f"/pipelines/{'x' * 5_000}",
        "/runs/..%5C..%5Cetc/stream/2027-03-22",
        "/runs/orders/stream%23x/2027-03-22",
        "/runs/orders/stream/..%2F2027-03-22",
        "/runs/orders/stream/2027-03-22%0d%0aX:1",
        "/deadletters/%2e%2e%2f/x",
    ],
)
async def test_an_id_with_a_path_in_it_is_a_problem_and_reads_nothing_of_others(world: WebWorld, path: str) -> None:
    async with world.client(VIEWER) as client:
        response = await client.get(f"{API}{path}")

    assert response.status_code in {400, 404, 422}, response.text


async def test_a_method_that_a_path_does_not_have_is_a_problem(world: WebWorld) -> None:
    async with world.client(VIEWER) as client:
        assert (await client.options(f"{API}/runs")).status_code == 405


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_are_found_page_by_page(world: WebWorld) -> None:
    await runs_of(world, 5)

    for path, limit in (("/runs?state=failed&limit=2", 2), ("/pipelines/orders/runs?limit=3", 3)):
        found = await pages(world, path)
        assert max(map(len, found)) == limit
        # A page may be short, but no run is missing and none appears twice.
        assert sorted(each for page in found for each in page) == [f"2027-03-{day}" for day in range(18, 23)]


async def test_a_cursor_is_only_good_for_its_own_list(world: WebWorld) -> None:
    await runs_of(world, 3)
    cursor = (await get(world, "/runs?state=failed&limit=1")).json()["next"]

    assert problem(await get(world, f"/runs?state=completed&limit=1&cursor={cursor}")) == (400, "bad-cursor")
    assert problem(await get(world, f"/runs?state=failed&cursor={cursor[:-2]}")) == (400, "bad-cursor")
    assert problem(await get(world, "/pipelines?cursor=nonsense")) == (400, "bad-cursor")


@pytest.mark.parametrize(
    "query",
    ["state=hungry", "limit=0", "limit=1001", "limit=x", "since=never", "states=failed", "deadline=soon"],
)
async def test_a_filter_that_is_not_understood_is_refused(world: WebWorld, query: str) -> None:
    assert problem(await get(world, f"/runs?{query}")) == (400, "bad-request")


async def test_a_window_longer_than_runs_are_kept_is_refused(world: WebWorld) -> None:
    assert problem(await get(world, "/runs?since=900d")) == (400, "window-too-long")


async def test_a_list_is_ndjson_on_request_and_says_how_it_ends(world: WebWorld) -> None:
    await runs_of(world, 2)

    response = await get(world, "/runs?limit=1", Accept="application/x-ndjson")

    run, end = [json.loads(line) for line in response.text.splitlines()]
    assert (run["type"], run["reason"]) == ("run", "out of memory")
    assert (end["type"], end["count"], end["complete"]) == ("end", 1, False)
    assert (await get(world, "/runs?limit=1&format=ndjson", Accept="text/html")).text == response.text
    whole = await get(world, "/runs?limit=1&format=json", Accept="application/x-ndjson")
    assert whole.json()["items"] == [run]
    assert problem(await get(world, "/runs?format=xml")) == (400, "bad-request")


async def test_a_run_is_shown_with_a_tag_that_changes_with_it(world: WebWorld) -> None:
    await runs_of(world, 1)
    async with world.client(VIEWER) as client:
        shown = await client.get(RUN)
        same = await client.get(RUN, headers={"If-None-Match": shown.headers["etag"]})
        run = await Runs(world.tables).load(key_of())
        assert run is not None
        await Runs(world.tables).save(replace(run, reason="another"))  # pyright: ignore[reportArgumentType]
        other = await client.get(RUN, headers={"If-None-Match": shown.headers["etag"]})

    assert shown.json()["status"] == "failed"
    assert (same.status_code, same.content) == (304, b"")
    assert (other.status_code, other.json()["reason"]) == (200, "another")


@pytest.mark.parametrize("part", ["", "/history", "/inputs", "/outputs"])
async def test_a_run_that_does_not_exist_is_a_problem(world: WebWorld, part: str) -> None:
    response = await get(world, f"/runs/orders/stream/2027-01-01{part}")

    assert problem(response) == (404, "unknown-run")


@pytest.mark.parametrize(
    "run", ["orders/stream/yesterday", "orders/stream/2027-02-30", "a%20b/stream/2027-01-01", "orders/st%00/2027-01-01"]
)
async def test_a_run_that_cannot_exist_is_a_bad_request(world: WebWorld, run: str) -> None:
    assert problem(await get(world, f"/runs/{run}")) == (400, "bad-request")


async def test_a_run_has_a_history_inputs_and_outputs(world: WebWorld) -> None:
    await runs_of(world, 1)

    history = (await get(world, f"/runs/orders/stream/{PERIOD}/history")).json()["items"]
    assert [entry["what"] for entry in history] == ["created", "FAILED_FINAL"]
    assert (await get(world, f"/runs/orders/stream/{PERIOD}/inputs")).json()["inputs"] == {}
    assert (await get(world, f"/runs/orders/stream/{PERIOD}/outputs")).json()["outputs"] is None


async def test_a_run_that_does_not_exist_yet_is_explained(world: WebWorld) -> None:
    explained = (await get(world, f"/runs/orders/stream/{PERIOD}/explanation")).json()

    assert [gate["status"] for gate in explained["gates"] if gate["gate"] == "trigger"] == ["blocked"]
    assert explained["needed"]


async def test_an_explanation_of_an_unknown_pipeline_names_a_similar_one(world: WebWorld) -> None:
    response = await get(world, f"/runs/order/stream/{PERIOD}/explanation")

    assert problem(response) == (404, "unknown-pipeline")
    assert "did you mean `orders`" in response.json()["detail"] or "orders" in response.json()["detail"]


async def test_statistics_sum_up_ended_runs(world: WebWorld) -> None:
    await runs_of(world, 3)

    answer = (await get(world, "/stats?since=7d&by=state,pipeline")).json()

    assert answer["total"]["failed"] == 3
    assert [item["group"] for item in answer["items"]] == [{"state": "failed", "pipeline": "orders"}]
    assert answer["others"] == 0
    assert problem(await get(world, "/stats?by=colour")) == (400, "bad-request")


async def test_statistics_of_a_window_are_in_bins(world: WebWorld) -> None:
    await runs_of(world, 3)

    hourly = (await get(world, "/stats?window=7d&bin=1h&by=outcome,hour")).json()
    daily = (await get(world, "/stats?window=7d&bin=1d")).json()

    assert all(set(item["group"]) == {"hour", "outcome"} for item in hourly["items"])
    assert sum(item["runs"] for item in hourly["items"]) == 3
    assert all(set(item["group"]) == {"day"} for item in daily["items"])
    assert problem(await get(world, "/stats?window=7d&since=7d")) == (400, "bad-request")
    assert problem(await get(world, "/stats?window=7d&bin=2h")) == (400, "bad-request")


# --- pipelines --------------------------------------------------------------------------------------------------------


async def test_pipelines_are_listed_page_by_page_also_those_that_cannot_be_used(world: WebWorld) -> None:
    await Pipelines(world.tables).put(PipelineId("broken"), "pipeline: 7")
    await Pipelines(world.tables).put(PipelineId("zebra"), "pipeline: {id: zebra}\nschedule: {cron: '0 6 * * *'}\n")

    assert await pages(world, "/pipelines?limit=1") == [["broken"], ["orders"], ["zebra"]]
    listed = (await get(world, "/pipelines")).json()["items"]
    assert [bool(each["errors"]) for each in listed] == [True, False, False]


async def test_a_pipeline_is_shown_without_a_secret_that_is_written_out(world: WebWorld) -> None:
    config = """
pipeline: {id: hook}
schedule: {cron: "0 6 * * *", timezone: UTC}
job:
  type: http
  config:
    url: https://example.com/run
    headers: {Authorization: "Bearer abc.def", X-Token: plain, Y: "${INTERLOCK_Y}"}
"""
    await Pipelines(world.tables).put(PipelineId("hook"), config)

    response = await get(world, "/pipelines/hook")

    assert response.status_code == 200
    assert "abc.def" not in response.text
    assert "plain" not in response.text
    assert "${INTERLOCK_Y}" in response.text


async def test_a_pipeline_has_a_plan_versions_and_sensors(world: WebWorld) -> None:
    for number in range(3):
        await Sensors(world.tables).put(PipelineId("orders"), f"k{number}", {"n": number})

    plan = (await get(world, "/pipelines/orders/plan?from=2027-03-22&days=3")).json()
    assert [run["period"] for run in plan["items"]] == ["2027-03-22", "2027-03-23", "2027-03-24"]
    versions = (await get(world, "/pipelines/orders/versions")).json()["items"]
    assert [(each["hash"], each["inForce"]) for each in versions] == [(await version_hash(world.tables), True)]
    assert await pages(world, "/pipelines/orders/sensors?limit=2") == [["k0", "k1"], ["k2"]]
    assert await pages(world, "/pipelines/orders/sensors?prefix=k1") == [["k1"]]


async def test_the_readiness_of_a_pipeline_is_shown_as_it_is_stored(world: WebWorld) -> None:
    key, now = RunKey(PipelineId("orders"), ScheduleId("cron"), Period(date(2027, 3, 22))), TODAY
    kept = Readiness(key=key, verdict=ReadinessVerdict.WAITING, changed_at=now, rules=(unmet("a is missing", "k"),))
    await ReadinessRows(world.tables).save(kept, now)

    [found] = (await get(world, "/pipelines/orders/readiness")).json()["items"]

    assert (found["verdict"], found["period"], found["rules"][0]["key"]) == ("waiting", "2027-03-22", "k")


@pytest.mark.parametrize("part", ["", "/runs", "/plan", "/sensors", "/versions", "/readiness"])
async def test_an_unknown_pipeline_is_a_problem(world: WebWorld, part: str) -> None:
    assert problem(await get(world, f"/pipelines/nobody{part}")) == (404, "unknown-pipeline")


# --- events, dead letters, workers ------------------------------------------------------------------------------------


async def test_events_are_listed_page_by_page_each_once(world: WebWorld) -> None:
    for number in range(7):
        at = TODAY - timedelta(minutes=7 - number // 3)  # several have the same time
        event = Event(id=f"e{number}", type=EventType.JOB_FAILED, at=at, pipeline="orders", message="failed")
        await world.tables.commit(event_write(event))

    for query in ("/events?limit=2", "/events?limit=2&pipeline=orders", "/events?limit=2&type=JOB_FAILED"):
        found = [each for page in await pages(world, query) for each in page]
        assert found == [f"e{number}" for number in range(7)], query
    assert (await get(world, "/events?type=SLA_BREACH")).json()["items"] == []
    assert (await get(world, "/events?pipeline=nobody")).status_code == 404
    assert problem(await get(world, "/events?type=NOTHING")) == (400, "bad-request")


async def a_dead_letter(world: WebWorld, number: int = 42) -> str:
    key = Key("PIPELINE#orders", "SENSOR#ready")
    image = {"PK": key.pk, "SK": key.sk, "data": {"rows": 7}}
    change = Change(position=number, table=TableName.CONTROL, key=key, kind=ChangeKind.INSERT, image=image, at=TODAY)
    parking = Parking(
        stream="feed.control",
        letters=DeadLetters(world.tables),
        keys=ParkedKeys(world.tables, GROUP),
        clock=ManualClock(TODAY),
    )
    lanes, name = await parking.parked(), f"{number:020d}@1772539200000"
    await lanes.park("a lane", Record(Position(name), change), GivenUp("not a known event", ("tried once",)))
    return name


async def test_dead_letters_are_listed_and_shown(world: WebWorld) -> None:
    name = await a_dead_letter(world)

    [source] = (await get(world, "/deadletters")).json()["items"]
    assert (source["source"], source["count"], source["countIsExact"]) == ("feed.control", 1, True)
    assert await pages(world, "/deadletters/feed.control?limit=1") == [[name]]
    shown = (await get(world, f"/deadletters/feed.control/{name}")).json()
    assert shown["reason"] == "not a known event"
    assert shown["body"]["image"]["data"] == {"rows": 7}
    assert problem(await get(world, "/deadletters/feed.control/other")) == (404, "unknown-dead-letter")
    assert problem(await get(world, "/deadletters/queue.none")) == (404, "unknown-dead-letter")


async def test_the_summary_counts_what_there_is(world: WebWorld) -> None:
    await runs_of(world, 2)
    await a_dead_letter(world)
    waiting = a_stored_run(State.EVALUATING, await version_hash(world.tables), key=key_of("2027-03-10"))
    await Runs(world.tables).save(waiting)
    await Sessions(world.tables, GROUP).register(SessionId("w1"), "0.1.0", at=TODAY)

    answer = (await get(world, "/summary")).json()

    assert answer["active"] == {"waiting": 1}
    assert answer["endedToday"] == {"completed": 0, "failed": 1, "cancelled": 0}
    assert (answer["workers"], answer["deadLetters"]) == (1, 1)
    [worker] = (await get(world, "/workers")).json()["items"]
    assert worker["id"] == "w1"
