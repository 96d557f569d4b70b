"""Slack, as far as alerts need it: posts and updates, one message a second in each channel, and trouble on order.

The same fake is reached in two ways: on virtual time by a session that needs no socket, and on loopback by a server.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
from aiohttp import web

from worker.runtime.clock import Clock

TOKEN = "xoxb-test"
ALMOST_S = 0.999  # of a second between messages, for what clocks round


@dataclass(frozen=True, slots=True)
class Trouble:
    """What becomes of one call. `is_applied`: Slack has done it, and only its answer goes wrong."""

    status: int = 200
    error: str = ""
    retry_after_s: int | None = None
    body: str | None = None  # instead of JSON
    content_type: str = "text/html"
    is_reset: bool = False
    is_applied: bool = False


RESET = Trouble(is_reset=True)
RESET_AFTER = Trouble(is_reset=True, is_applied=True)
UNAVAILABLE = Trouble(status=503, body="<html>service unavailable</html>")
ERROR = Trouble(status=500, error="internal_error")


def refusal(error: str) -> Trouble:
    return Trouble(error=error)


@dataclass(slots=True)
class Said:
    """A message. `texts` is all it ever showed, oldest first."""

    channel: str
    ts: str
    thread_ts: str
    texts: list[str]
    at: float
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as it was first posted

    @property
    def text(self) -> str:
        return self.texts[-1]


@dataclass(slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content_type: str
    body: Any  # text, or what is written as JSON


class Reset(aiohttp.ServerDisconnectedError):
    """The connection ended without an answer."""


@dataclass
class FakeSlack:
    clock: Clock
    messages: list[Said] = field(default_factory=list[Said])
    trouble: Callable[[str, Mapping[str, Any]], Trouble | None] = lambda _method, _payload: None
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    channels: set[str] | None = None  # that there are; None: all one asks for
    calls: int = 0
    refused_for_pace: int = 0
    _last_at: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def threads(self) -> list[Said]:
        """The first messages."""
        return [said for said in self.messages if not said.thread_ts]

    def answers_in(self, thread: Said) -> list[str]:
        return [said.text for said in self.messages if said.thread_ts == thread.ts]

    def call(self, method: str, payload: Mapping[str, Any], token: str) -> Answer:
        """Do what is asked, or what was ordered instead. Raises `Reset`."""
        self.calls += 1
        trouble = self.trouble(method, payload)
        if trouble is not None:
            if trouble.is_applied:
                self._apply(method, payload)
            return self._troubled(trouble)
        if token not in self.tokens:
            return _no("invalid_auth")
        return _yes({}) if method == "auth.test" else self._apply(method, payload)

    def _apply(self, method: str, payload: Mapping[str, Any]) -> Answer:
        if method == "auth.test":
            return _yes({})
        channel = _id(payload["channel"])
        if self.channels is not None and channel not in {_id(name) for name in self.channels}:
            return _no("channel_not_found")
        if method == "chat.update":
            return self._update(channel, payload)
        now = self.clock.monotonic()
        if now - self._last_at.get(channel, -1e9) < ALMOST_S:
            self.refused_for_pace += 1
            return Answer(429, {"Retry-After": "2"}, "application/json", {"ok": False, "error": "ratelimited"})
        self._last_at[channel] = now
        ts = f"{1_700_000_000 + len(self.messages)}.000100"
        self.messages.append(Said(channel, ts, payload.get("thread_ts", ""), [_shown(payload)], now, payload))
        return _yes({"channel": channel, "ts": ts})

    def _update(self, channel: str, payload: Mapping[str, Any]) -> Answer:
        for said in self.messages:
            if (said.channel, said.ts) == (channel, payload["ts"]):
                said.texts.append(_shown(payload))
                return _yes({"channel": channel, "ts": said.ts})
        return _no("message_not_found")

    def _troubled(self, trouble: Trouble) -> Answer:
        if trouble.is_reset:
            raise Reset
        headers = {} if trouble.retry_after_s is None else {"Retry-After": str(trouble.retry_after_s)}
        if trouble.body is not None:
            return Answer(trouble.status, headers, trouble.content_type, trouble.body)
        return Answer(trouble.status, headers, "application/json", {"ok": False, "error": trouble.error})

    # --- two ways to it -----------------------------------------------------------------------------------------------

    def session(self, latency_s: float = 0.05) -> aiohttp.ClientSession:
        """For the SDK, without sockets: so it can be used on virtual time."""
        return cast("aiohttp.ClientSession", _Session(self, latency_s))

    @asynccontextmanager
    async def on_loopback(self) -> AsyncGenerator[str]:
        """A server; gives the address of its API."""
        app = web.Application()
        app.router.add_post("/api/{method}", self._serve)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            answer = self.call(request.match_info["method"], await request.json(), token)
        except Reset:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(answer.body, str):
            return web.Response(
                status=answer.status, headers=answer.headers, text=answer.body, content_type=answer.content_type
            )
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)


class _Session:
    """As much of a session as the SDK uses."""

    closed = False

    def __init__(self, slack: FakeSlack, latency_s: float) -> None:
        self._slack, self._latency_s = slack, latency_s

    def request(self, _verb: str, url: str, **arguments: Any) -> "_Response":  # noqa: ANN401 - the SDK's own
        return _Response(self._slack, self._latency_s, url.rpartition("/")[2], arguments)


class _Response:
    def __init__(self, slack: FakeSlack, latency_s: float, method: str, arguments: Mapping[str, Any]) -> None:
        self._slack, self._latency_s, self._method, self._arguments = slack, latency_s, method, arguments

    async def __aenter__(self) -> Self:
        await self._slack.clock.sleep(self._latency_s)
        token = str(self._arguments["headers"].get("Authorization", "")).removeprefix("Bearer ")
        answer = self._slack.call(self._method, self._arguments["json"], token)
        self.status, self.headers, self.content_type = answer.status, answer.headers, answer.content_type
        self._body = answer.body
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def json(self) -> object:
        if isinstance(self._body, str):
            raise aiohttp.ContentTypeError(cast("Any", None), ())
        return self._body

    async def text(self) -> str:
        return str(self._body)


def _id(channel: str) -> str:
    """Slack takes names, and answers with ids."""
    return f"C-{channel[1:]}" if channel.startswith("#") else channel


def _shown(payload: Mapping[str, Any]) -> str:
    """All text of a message's blocks."""
    parts: list[str] = []
    for block in payload.get("blocks", []):
        parts.extend(element["text"] for element in block.get("elements", []))
        parts.extend([block["text"]["text"]] if "text" in block else [])
    return "\n".join(parts)


def _yes(body: Mapping[str, Any]) -> Answer:
    return Answer(200, {}, "application/json", {"ok": True, **body})


def _no(error: str) -> Answer:
    return Answer(200, {}, "application/json", {"ok": False, "error": error})
