"""What the API shows of alerts, the watchdog and the output of jobs, and what hostile callers get."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from scheduler.watchdog.dead_mans_switch import AlertPathCheck, Heartbeat
from scheduler.watchdog.degraded import Degraded, Trouble
from tests.support.builders.cli_runs import ORDERS, PERIOD, a_stored_run, version_hash
from tests.support.builders.command_line import TODAY
from tests.support.clock.manual import ManualClock
from tests.support.worlds.web import VIEWER, WebWorld, a_web_world
from tests.unit.web.test_api_reads import get, problem, runs_of
from worker.config.versions import PipelineVersions
from worker.core.model.events import Event, EventType
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.operations.runs.cursors import write_cursor
from worker.operations.runs.job_output import OUTPUT
from worker.operations.runs.run_filter import RunFilter
from worker.store.repos.delivery.alert_probe import AlertPath
from worker.store.repos.delivery.threads import Claimed, ThreadHeader, ThreadKey, Threads
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.web.api import events

LOG = f"/runs/orders/stream/{PERIOD}/log"


async def emit(world: WebWorld, event_type: EventType, number: int, detail: dict[str, Json] | None = None) -> str:
    at = TODAY - timedelta(minutes=60 - number // 2)  # two have the same time
    event = Event(
        id=f"e{number:02d}",
        type=event_type,
        at=at,
        pipeline="orders",
        schedule="stream",
        period=PERIOD,
        message="said",
        detail=detail or {},
    )
    await world.tables.commit(event_write(event))
    return event.id


# --- alerts -----------------------------------------------------------------------------------------------------------


async def test_alerts_are_the_events_that_people_get_with_their_severity(world: WebWorld) -> None:
    await emit(world, EventType.JOB_TRIGGERED, 0)
    breach = await emit(world, EventType.SLA_BREACH, 1)
    warning = await emit(world, EventType.SLA_WARNING, 2)
    await emit(world, EventType.JOB_FAILED, 3, {"willRetry": True})
    done = await emit(world, EventType.JOB_COMPLETED, 4)
    excluded = await emit(world, EventType.PIPELINE_EXCLUDED, 5, {"final": True})

    found = (await get(world, "/alerts")).json()["items"]
    fine = (await get(world, "/alerts?severity=ok")).json()["items"]

    assert [(each["id"], each["severity"]) for each in found] == [
        (breach, "alert"),
        (warning, "warning"),
        (excluded, "alert"),
    ]
    assert [each["id"] for each in fine] == [done]
    assert {each["thread"] for each in found} == {None}
    assert problem(await get(world, "/alerts?severity=grave")) == (400, "bad-request")
    assert problem(await get(world, "/alerts?pipeline=nobody")) == (404, "unknown-pipeline")


async def test_an_alert_names_its_chat_thread_and_whether_it_was_posted(world: WebWorld) -> None:
    posted, waiting = await emit(world, EventType.SLA_WARNING, 1), await emit(world, EventType.SLA_BREACH, 2)
    threads, key = Threads(world.tables), ThreadKey("orders", "stream", PERIOD)
    claimed = await threads.claim(key, channel="#data", claimant="w1", now=TODAY)
    assert isinstance(claimed, Claimed)
    face = ThreadHeader(standing="breached")
    await threads.opened(key, claimed, claimant="w1", channel="C1", timestamp="1.2", face=face, told=posted)

    first, second = (await get(world, "/alerts")).json()["items"]

    assert (first["id"], first["thread"]) == (posted, {"channel": "#data", "status": "breached", "posted": True})
    assert (second["id"], second["thread"]["posted"]) == (waiting, False)


@pytest.mark.parametrize(
    "path", ["/alerts?limit=2", "/alerts?limit=2&pipeline=orders", "/events?limit=2&type=JOB_FAILED"]
)
async def test_a_page_that_examined_enough_is_short_and_loses_nothing(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(events, "EXAMINED_MAX", 3)
    monkeypatch.setattr(events, "_READ_MAX", 3)
    wanted = [
        await emit(world, EventType.JOB_FAILED, number, None if number % 5 == 0 else {"willRetry": True})
        for number in range(20)
    ]
    expected = wanted if "type" in path else wanted[::5]

    found = list[str]()
    following: str | None = ""
    while following is not None:
        answer = (await get(world, f"{path}{following}")).json()
        found += [each["id"] for each in answer["items"]]
        assert len(answer["items"]) <= 2
        following = f"&cursor={answer['next']}" if answer["next"] else None

    assert found == expected


# --- watchdog ---------------------------------------------------------------------------------------------------------


async def test_a_watchdog_that_never_ran_says_so(world: WebWorld) -> None:
    answer = (await get(world, "/watchdog")).json()

    assert (answer["settledUpTo"], answer["heartbeatAt"], answer["sound"]) == (None, None, None)
    assert (answer["degraded"], answer["alertPath"]) == ([], None)


async def test_the_watchdog_shows_its_heartbeat_its_troubles_and_the_alert_path(world: WebWorld) -> None:
    clock = ManualClock(TODAY)
    await Heartbeat(world.tables).beat(TODAY, is_sound=True)
    await Degraded(world.tables, clock).note({"relay-lag": Trouble("the bus does not answer")})
    [send] = await AlertPathCheck(world.tables, clock).look(TODAY)
    await send.act()

    waiting = (await get(world, "/watchdog")).json()
    probe = (await AlertPath(world.tables).load()).probe
    assert probe is not None
    await AlertPath(world.tables).acknowledge(probe.id, TODAY)
    answered = (await get(world, "/watchdog")).json()

    assert waiting["sound"] is True
    [trouble] = waiting["degraded"]
    assert (trouble["part"], trouble["problem"]) == ("relay-lag", "the bus does not answer")
    assert (waiting["alertPath"]["answered"], waiting["alertPath"]["waitingSince"] is None) == (False, False)
    assert (answered["alertPath"]["answered"], answered["alertPath"]["waitingSince"]) == (True, None)


# --- the output of a job ----------------------------------------------------------------------------------------------


@pytest.fixture
async def with_files(tmp_path: Path) -> AsyncGenerator[WebWorld]:
    async with a_web_world(clock=ManualClock(TODAY), job_folder=tmp_path) as made:
        await Pipelines(made.tables).put(PipelineId("orders"), ORDERS)
        version = await PipelineVersions(made.tables).current(PipelineId("orders"))
        assert version is not None
        await PipelineVersions(made.tables).persist(version)
        yield made


async def a_job(world: WebWorld, folder: Path | None, content: bytes = b"", **changes: object) -> Run:
    run = a_stored_run(State.POLLING, await version_hash(world.tables))
    run = replace(run, job_type="command", **changes)  # pyright: ignore[reportArgumentType]
    await Runs(world.tables).save(run)
    if folder is not None:
        (folder / run.token).mkdir()
        (folder / run.token / OUTPUT).write_bytes(content)
    return run


async def test_the_output_of_a_job_on_this_machine_is_shown_without_control_characters(
    with_files: WebWorld, tmp_path: Path
) -> None:
    await a_job(with_files, tmp_path, b"one\n\x1b[31mtwo\nunfinished")

    answer = (await get(with_files, LOG)).json()

    assert [line.replace("[31m", "") for line in answer["lines"]] == ["one", "two"]
    assert "\x1b" not in json.dumps(answer)
    assert (answer["complete"], answer["attempt"], answer["location"]) == (False, 1, None)


async def test_an_output_that_is_elsewhere_has_its_location(world: WebWorld) -> None:
    run = a_stored_run(State.POLLING, await version_hash(world.tables))
    await Runs(world.tables).save(replace(run, job_type="glue", job={"runId": "jr_7", "jobName": "orders"}))

    answer = (await get(world, LOG)).json()

    assert answer["lines"] is None
    assert "jr_7" in answer["location"]


async def test_a_log_of_what_does_not_exist_is_a_problem(with_files: WebWorld) -> None:
    assert problem(await get(with_files, LOG)) == (404, "unknown-run")
    await a_job(with_files, None)

    assert (await get(with_files, LOG)).json()["lines"] is None
    assert problem(await get(with_files, f"{LOG}?attempt=7")) == (404, "unknown-run")
    assert problem(await get(with_files, f"{LOG}?attempt=0")) == (400, "bad-request")
    assert problem(await get(with_files, f"{LOG}?path=../../etc/passwd")) == (400, "bad-request")


# --- hostile callers --------------------------------------------------------------------------------------------------


HOSTILE = [
    "x" * 4_096,
    "x" * 5_000,
    "eyJhIjoxfQ",
    "%00",
    quote("é" * 40),
    quote("../../etc/passwd"),
    "W10",
    "A" * 16 + "e30",
]
LISTS = [
    "/runs?state=failed",
    "/inputs?state=failed",
    "/pipelines?limit=1",
    "/pipelines/orders/runs?limit=1",
    "/pipelines/orders/sensors?limit=1",
    "/pipelines/orders/versions?limit=1",
    "/events?limit=1",
    "/alerts?limit=1",
]


@pytest.mark.parametrize("path", LISTS)
async def test_a_made_up_cursor_is_a_problem_on_every_list(world: WebWorld, path: str) -> None:
    for cursor in HOSTILE:
        status, kind = problem(await get(world, f"{path}&cursor={cursor}"))
        assert (status, kind) in {(400, "bad-cursor"), (400, "bad-request")}, (cursor, status, kind)


POSITIONS: list[dict[str, Json]] = [
    {"before": "9" * 400},
    {"before": "not a time"},
    {"before": "0" * 13 + "#\x00"},
    {"before": 7},
    {"before": "-1"},
    {"row": "SENSOR#secret"},
    {"row": "\U0010ffff" * 300},
    {"since": {"a": [1]}, "name": None},
    {"bucket": -5, "from": "x"},
    {"bucket": 10**30, "from": "\x00"},
    {"bucket": 0, "from": "eyJ4IjoxfQ=="},
    {"start": "yesterday", "end": []},
    {},
]


@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: json.dumps(position)[:40])
@pytest.mark.parametrize("window", [True, False])
async def test_a_forged_position_reads_no_more_than_the_list_and_never_fails(
    world: WebWorld, position: dict[str, Json], window: bool
) -> None:
    """The digest of a cursor is no secret: a caller can compute it. It may only begin elsewhere in the same list."""
    await runs_of(world, 3)
    times: dict[str, Json] = {"start": "2027-03-01T00:00:00Z", "end": "2027-03-23T00:00:00Z"} if window else {}
    for wanted, path in (
        (RunFilter(statuses=("failed",)), "/runs?state=failed"),
        (RunFilter(), "/runs?limit=100"),
        (RunFilter(pipeline="orders", since="400d"), "/pipelines/orders/runs?limit=100"),
    ):
        cursor = write_cursor(wanted.canonical, {**position, **times})
        response = await get(world, f"{path}&cursor={cursor}")
        if response.status_code == 200:
            assert all(each["type"] == "run" for each in response.json()["items"])
        else:
            assert problem(response)[0] == 400, response.text


EVENT_POSITIONS: list[dict[str, Json]] = [
    {"at": "never", "shown": []},
    {"at": 7, "shown": []},
    {"at": "9999-12-31T23:59:59Z", "shown": [[]]},
    {},
]


@pytest.mark.parametrize("position", EVENT_POSITIONS)
@pytest.mark.parametrize("path", ["/events?limit=9", "/alerts?limit=9"])
async def test_a_forged_position_of_events_never_fails(world: WebWorld, position: dict[str, Json], path: str) -> None:
    bound = "events\x1f\x1f\x1f24h" if path.startswith("/events") else "alerts\x1falert,warning\x1f\x1f24h"

    response = await get(world, f"{path}&cursor={write_cursor(bound, position)}")

    assert response.status_code == 200 or problem(response) == (400, "bad-cursor")


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "1e9", "99999999999999999999999", "\u0661", "", "1;2"])
@pytest.mark.parametrize("path", ["/runs", "/alerts", "/pipelines"])
async def test_a_limit_beyond_the_bounds_is_a_problem(world: WebWorld, path: str, limit: str) -> None:
    assert problem(await get(world, f"{path}?limit={quote(limit)}")) == (400, "bad-request")


NAMES = ["%2e%2e", "a%2fb", "a%00b", "%F0%9F%92%A9", "a" * 65, "-x", "a b", "a%0d%0aSet-Cookie:x"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_path_trick_in_any_id_is_a_problem(world: WebWorld, name: str) -> None:
    places = [
        f"/runs/{name}/stream/{PERIOD}",
        f"/runs/orders/{name}/{PERIOD}/log",
        f"/runs/orders/stream/{name}/inputs",
        f"/pipelines/{name}/sensors",
        f"/deadletters/{name}",
    ]
    for place in places:
        response = await get(world, place)
        assert response.status_code in {400, 404}, (place, response.status_code)
        assert "set-cookie" not in response.headers


async def test_a_tag_stays_while_a_run_does_and_repeated_tags_are_compared(world: WebWorld) -> None:
    run = a_stored_run(State.POLLING, await version_hash(world.tables))
    saved = await Runs(world.tables).save(run)
    path = f"/runs/orders/stream/{PERIOD}"
    tags = [(await get(world, path)).headers["etag"] for _ in range(3)]

    async def status(tag: str) -> int:
        async with world.client(VIEWER, **{"If-None-Match": tag}) as client:
            return (await client.get(f"/api/v1{path}")).status_code

    assert len(set(tags)) == 1
    assert await status(f'"other", W/{tags[0]}') == 304
    assert await status(tags[0].strip('"')) == 200  # no tag without its quotes
    await Runs(world.tables).save(replace(saved, reason="it waits"))
    assert await status(tags[0]) == 200


async def test_many_callers_at_once_read_the_current_day_once(world: WebWorld) -> None:
    await runs_of(world, 3)

    async def total(client: httpx.AsyncClient) -> int:
        return (await client.get("/api/v1/stats?window=7d")).json()["total"]["runs"]

    async with world.client(VIEWER) as client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(total(client)) for _ in range(50)]

    assert {task.result() for task in tasks} == {3}
