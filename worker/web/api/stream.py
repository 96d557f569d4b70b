"""News for programs and tabs: as a stream of server-sent events, or asked for now and then."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response

from worker.runtime.concurrency import as_one
from worker.web.api.context import Author, Context
from worker.web.api.responses import record
from worker.web.api.schemas import NewsDocument
from worker.web.asgi import Receive, Scope, Send
from worker.web.live.fanout import Fanout, NewsStream
from worker.web.live.updates import LiveUpdates

EVENT_STREAM: Final = "text/event-stream"
COMMENT_S: Final = 15.0  # a load balancer closes a connection that is idle for 60 s
NEWS_MAX: Final = 200
ID_MAX: Final = 64

stream_router = APIRouter(tags=["live updates"])


@stream_router.get("/news", summary="List what changed since an id", response_model=NewsDocument)
async def list_news(
    context: Context, after: Annotated[str, Query(max_length=ID_MAX, examples=["a1b2c3.17"])] = ""
) -> Response:
    """Return which runs and pipelines changed. With `resync`, some news are gone: read everything again."""
    live = context.live
    await live.fresh()
    items, is_whole = live.fanout.since(after) if after else ([], True)
    is_cut = len(items) > NEWS_MAX
    kept = [] if is_cut else [item.as_json() for item in items]
    return record(
        {
            "type": "news",
            "last": live.fanout.last_id,
            "resync": not is_whole or is_cut,
            "items": kept,  # pyright: ignore[reportArgumentType]  plain values, as `as_json` makes them
        }
    )


@stream_router.get(
    "/stream",
    summary="Stream what changes",
    response_class=Response,
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "Server-sent events"}},
)
async def stream_news(
    context: Context,
    author: Author,
    last_event_id: Annotated[str, Header(max_length=ID_MAX)] = "",
    after: Annotated[str, Query(max_length=ID_MAX, description="As `Last-Event-ID`, for a browser's stream.")] = "",
) -> Response:
    """Stream an event `news` for each batch of changes. On `resync`, read everything again."""
    await context.live.fresh()
    return NewsResponse(context.live, context.live.fanout.subscribe(author.caller.name, last_event_id or after))


class NewsResponse(Response):
    """Sends a subscriber's news until the client goes away, is too slow, or the server stops."""

    media_type = EVENT_STREAM

    def __init__(self, live: LiveUpdates, stream: NewsStream, *, comment_s: float = COMMENT_S) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live, self._stream, self._comment_s = live, stream, comment_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  as ASGI calls it
        fanout = self._live.fanout
        try:
            await as_one(self._until_over(receive, send, fanout))
        finally:
            fanout.unsubscribe(self._stream)

    async def _until_over(self, receive: Receive, send: Send, fanout: Fanout) -> None:
        async with asyncio.TaskGroup() as tasks:
            # Ends at once when the client goes away, not with the next write.
            leaving = tasks.create_task(_until_gone(receive), name="stream:client")
            sending = tasks.create_task(self._send_all(send, fanout), name="stream:news")
            await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
            fanout.unsubscribe(self._stream)
            leaving.cancel()
            sending.cancel()

    async def _send_all(self, send: Send, fanout: Fanout) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _write(send, f"retry: 3000\nevent: hello\nid: {fanout.last_id}\ndata: {{}}\n\n".encode())
        while True:
            try:
                async with asyncio.timeout(self._comment_s):
                    item = await self._stream.items.get()
            except TimeoutError:
                await _write(send, b": nothing new\n\n")
                continue
            if item is None:
                await _write(send, f"event: resync\nid: {fanout.last_id}\ndata: {{}}\n\n".encode(), is_last=True)
                return
            await _write(send, fanout.as_sent(item))


async def _write(send: Send, body: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
