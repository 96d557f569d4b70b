"""News: the ring and its subscribers, the stream of server-sent events, and asking for news now and then."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.support.worlds.console import ConsoleWorld, a_console_world, fill_store
from tests.support.worlds.web import VIEWER, WebWorld
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Pause
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.web.api.stream import NewsResponse
from worker.web.asgi import Message, Scope, WebApp
from worker.web.live.fanout import Fanout, NewsItem
from worker.web.live.mirror import MirrorChanges
from worker.web.live.updates import open_updates
from worker.web.problems import WebProblem


def changes(*runs: str, pipelines: tuple[str, ...] = ()) -> MirrorChanges:
    return MirrorChanges(frozenset(runs), frozenset(pipelines))


# --- the ring ---------------------------------------------------------------------------------------------------------


def test_news_after_an_id_are_those_that_followed_it() -> None:
    fanout = Fanout("a")
    for number in range(5):
        fanout.publish(changes(f"p/s/{number}"), {})

    items, is_whole = fanout.since("a.3")

    assert is_whole
    assert [item.runs for item in items] == [["p/s/3"], ["p/s/4"]]
    assert fanout.since("a.5") == ([], True)


@pytest.mark.parametrize("after", ["b.1", "a.6", "a.", "a.x", "a.1", "", "a.-1", "a.\u0661"])
def test_who_names_an_id_that_is_unknown_or_gone_must_start_over(after: str) -> None:
    fanout = Fanout("a", ring=2)
    for number in range(5):
        fanout.publish(changes(f"p/s/{number}"), {})

    assert fanout.since(after) == ([], False)


def test_a_slow_subscriber_is_told_to_start_over_and_others_are_not() -> None:
    fanout = Fanout("a", queue=4)
    slow, fast = fanout.subscribe("ann"), fanout.subscribe("bob")
    got: list[NewsItem | None] = []
    for number in range(6):
        fanout.publish(changes(f"p/s/{number}"), {})
        got.append(fast.items.get_nowait())

    assert slow.is_over
    assert slow.items.get_nowait() is None
    assert slow.items.empty()
    assert None not in got


def test_streams_are_limited_in_all_and_for_each_user() -> None:
    fanout = Fanout("a", streams_max=3, per_user_max=2)
    first = fanout.subscribe("ann")
    fanout.subscribe("ann")
    with pytest.raises(WebProblem):
        fanout.subscribe("ann")
    fanout.subscribe("bob")
    with pytest.raises(WebProblem):
        fanout.subscribe("eve")

    fanout.unsubscribe(first)
    fanout.unsubscribe(first)

    assert fanout.streams == 2
    fanout.subscribe("ann")


def test_one_item_is_small_whatever_changed() -> None:
    fanout = Fanout("a")
    names = [f"{'long-pipeline-name-' * 3}{number}/stream/2027-03-22" for number in range(500)]

    fanout.publish(MirrorChanges(frozenset(names), frozenset(names)), {"active": 1})

    [item], _ = fanout.since("a.0")
    assert item.many
    assert len(json.dumps(item.as_json())) <= 4_500
    assert 0 < len(item.runs) <= 200


def test_what_is_built_again_makes_everyone_start_over() -> None:
    fanout = Fanout("a")
    fanout.publish(changes("p/s/1"), {})
    stream = fanout.subscribe("ann")

    fanout.start_over()

    assert stream.items.get_nowait() is None
    assert fanout.since("a.1") == ([], False)
    assert fanout.since(fanout.last_id) == ([], True)


@pytest.mark.parametrize("before", [0, 3, 20])
def test_a_page_continues_before_what_was_announced_while_it_was_made(before: int) -> None:
    fanout = Fanout("a")
    for number in range(before):
        fanout.publish(changes(f"p/s/{number}"), {})

    page_id = fanout.page_id
    fanout.publish(changes("p/s/new"), {})

    items, is_whole = fanout.since(page_id)
    assert is_whole
    assert items[-1].runs == ["p/s/new"]
    assert len(items) <= 17


def test_a_page_does_not_continue_before_what_was_announced_long_before_it() -> None:
    seconds = iter((1.0, 2.0, 9.0, 10.0, 30.0)).__next__
    fanout = Fanout("a", now_s=seconds)
    for number in range(3):
        fanout.publish(changes(f"p/s/{number}"), {})

    assert fanout.page_id == "a.2"  # the third was announced a second before
    assert fanout.page_id == "a.3"


def test_a_page_made_after_a_new_start_continues_after_it() -> None:
    fanout = Fanout("a")
    fanout.publish(changes("p/s/1"), {})
    fanout.start_over()

    assert fanout.since(fanout.page_id) == ([], True)


# --- the stream -------------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """A browser's end of a stream: what it got, and a way to go away."""

    parts: list[bytes] = field(default_factory=list[bytes])
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return b"".join(self.parts).decode()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.parts.append(message.get("body", b""))
        self.moved.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in self.text:
                self.moved.clear()
                await self.moved.wait()


def scope_of(path: str, query: str = "", **headers: str) -> Scope:
    known = {"host": "127.0.0.1:8040", **headers}
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in known.items()],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "server": ("127.0.0.1", 8040),
    }


@asynccontextmanager
async def a_stream(app: WebApp, query: str = "", **headers: str) -> AsyncGenerator[Client]:
    client = Client()

    async def serve() -> None:
        await app(scope_of("/api/v1/stream", query, **headers), client.receive, client.send)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(), name="stream")
        yield client
        client.gone.set()


@pytest.fixture
async def served() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as world:
        await fill_store(world.tables, days=2)
        yield world


async def _pause(world: ConsoleWorld, name: str) -> None:
    await Pauses(world.tables).put(PipelineId(name), Pause("why"))
    live = world.live
    live.mirror.see_pause(name, None)
    live.fanout.publish(live.mirror.take_changes(), {})


async def test_a_stream_says_what_changed_and_ends_at_once_with_its_client(served: ConsoleWorld) -> None:
    async with a_stream(served.guard) as client:
        await client.until("event: hello")
        assert served.live.fanout.streams == 1
        await _pause(served, "orders-daily")
        await client.until("event: news")
    assert served.live.fanout.streams == 0

    assert client.status == 200
    assert client.headers[b"content-type"].startswith(b"text/event-stream")
    assert client.headers[b"cache-control"] == b"private, no-store"
    assert b"content-length" not in client.headers
    data = next(line for line in client.text.splitlines() if line.startswith('data: {"id"'))
    assert json.loads(data.removeprefix("data: "))["pipelines"] == ["orders-daily"]


async def test_a_stream_continues_after_the_last_event_or_starts_over(served: ConsoleWorld) -> None:
    await served.live.fresh()
    first = served.live.fanout.last_id
    await _pause(served, "orders-daily")

    async with a_stream(served.guard, last_event_id=first) as client:
        await client.until('"pipelines":["orders-daily"]')
    async with a_stream(served.guard, f"after={first}") as client:
        await client.until('"pipelines":["orders-daily"]')
    async with a_stream(served.guard, last_event_id="another.7") as client:
        await client.until("event: resync")


async def test_streams_take_no_place_of_other_requests(served: ConsoleWorld) -> None:
    async with asyncio.TaskGroup() as tasks:
        clients = [Client() for _ in range(20)]
        for client in clients:
            scope = scope_of("/api/v1/stream")
            tasks.create_task(served.guard(scope, client.receive, client.send), name="stream")
        for client in clients:
            await client.until("hello")

        assert (await served.get("/pipelines")).status_code == 200
        refused = Client()
        await served.guard(scope_of("/api/v1/stream"), refused.receive, refused.send)
        assert refused.status == 429

        for client in clients:
            client.gone.set()
    assert served.live.fanout.streams == 0


async def test_a_quiet_stream_says_so_and_a_stopped_server_ends_it() -> None:
    async with a_console_world() as world:
        client = Client()
        response = NewsResponse(world.live, world.live.fanout.subscribe("ann"), comment_s=0.001)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(response(scope_of("/"), client.receive, client.send), name="stream")
            await client.until(": nothing new")
            world.live.fanout.close()
        assert world.live.fanout.streams == 0


async def test_news_are_asked_for_as_documented(world: WebWorld) -> None:
    async with world.client(VIEWER) as client:
        first: dict[str, Any] = (await client.get("/api/v1/news")).json()
        await Pipelines(world.tables).put(PipelineId("orders"), "pipeline: {id: orders, owner: new}\n")
        again: dict[str, Any] = (await client.get("/api/v1/news", params={"after": first["last"]})).json()
        unknown: dict[str, Any] = (await client.get("/api/v1/news", params={"after": "x.1"})).json()

    assert first["items"] == []
    assert again["resync"] is False
    assert unknown["resync"] is True


# --- who keeps it current ---------------------------------------------------------------------------------------------


async def test_without_viewers_nothing_is_read(served: ConsoleWorld) -> None:
    live = open_updates(served.tables, served.clock)
    before = served.tables.requests
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(live.run(), name="live")
        for _ in range(10):
            await asyncio.sleep(0)
        assert served.tables.requests == before
        assert not live.has_viewers

        mirror = await live.fresh()
        assert served.tables.requests > before
        assert live.has_viewers
        assert len(mirror.active) == 3

        served.clock.advance(timedelta(seconds=61))
        assert not live.has_viewers
        running.cancel()


async def test_a_store_that_does_not_answer_leaves_the_mirror_and_its_age(served: ConsoleWorld) -> None:
    assert (await served.get("/")).status_code == 200
    served.tables.is_down = True
    served.clock.advance(timedelta(minutes=7))

    assert (await served.get("/")).status_code == 200
    text = (await served.get("/pipelines")).text

    assert "The store does not respond. What lists show is 7m 00s old." in text
    assert "orders-daily" in text
    served.tables.is_down = False
    assert "does not respond" not in (await served.get("/pipelines")).text
