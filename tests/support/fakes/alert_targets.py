"""A webhook's receiver, PagerDuty and Teams, with their real limits and error codes, and trouble on order.

Each is reached in two ways: on virtual time by a client that needs no socket, and on loopback by a server.
"""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web

from worker.net.http_client import HttpAnswer, HttpClient, Reply, Request, Unanswered
from worker.runtime.clock import Clock

KEY = "R" * 32
SECRET = "whsec-test"
PAGERDUTY_PER_MINUTE = 120
TEAMS_PER_SECOND = 4
TEAMS_BYTES_MAX = 28_672
PAGERDUTY_BYTES_MAX = 512 * 1024


@dataclass(frozen=True, slots=True)
class Ordered:
    """What becomes of one request. `is_applied`: it takes effect, and only its answer goes wrong."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str = ""
    is_lost: bool = False  # there is no answer
    is_applied: bool = False


LOST_AFTER = Ordered(is_lost=True, is_applied=True)
LOST = Ordered(is_lost=True)


@dataclass
class FakeEndpoint:
    clock: Clock
    trouble: Callable[[Mapping[str, Any]], Ordered | None] = lambda _body: None
    latency_s: float = 0.05
    requests: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list[tuple[float, Mapping[str, Any]]])
    refused_for_pace: int = 0
    paths: list[str] = field(default_factory=list[str])

    def accept(self, body: Mapping[str, Any], raw: bytes, headers: Mapping[str, str], path: str) -> HttpAnswer:
        raise NotImplementedError

    def call(self, raw: bytes, headers: Mapping[str, str], path: str) -> HttpAnswer | None:
        """Do what is asked, or what was ordered instead; None: there is no answer."""
        body = cast("dict[str, Any]", json.loads(raw))
        self.paths.append(path)
        ordered = self.trouble(body)
        if ordered is None:
            return self.accept(body, raw, headers, path)
        if ordered.is_applied:
            self.accept(body, raw, headers, path)
        if ordered.is_lost:
            return None
        return HttpAnswer(status=ordered.status, headers=ordered.headers, body=ordered.body.encode())

    def applied(self, body: Mapping[str, Any]) -> None:
        self.requests.append((self.clock.monotonic(), body))

    def is_too_fast(self, most: int, within_s: float) -> bool:
        now = self.clock.monotonic()
        is_over = sum(at > now - within_s for at, _ in self.requests) >= most
        self.refused_for_pace += is_over
        return is_over

    # --- two ways to it -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def on_loopback(self, path: str = "/") -> AsyncGenerator[str]:
        """A server; gives its address."""

        async def serve(request: web.Request) -> web.Response:
            answer = self.call(await request.read(), request.headers, request.path_qs)
            if answer is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

        app = web.Application(client_max_size=2**20)
        app.router.add_post("/{path:.*}", serve)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        finally:
            await runner.cleanup()


@dataclass
class FakePagerDuty(FakeEndpoint):
    keys: set[str] = field(default_factory=lambda: {KEY})
    alerts: dict[str, str] = field(default_factory=dict[str, str])  # dedup key -> state
    notified: list[str] = field(default_factory=list[str])  # summaries that paged somebody

    def accept(self, body: Mapping[str, Any], raw: bytes, headers: Mapping[str, str], path: str) -> HttpAnswer:
        if problem := self._problem(body, raw):
            said = {"status": "invalid event", "message": "Event object is invalid", "errors": [problem]}
            return _answer(400, said)
        if self.is_too_fast(PAGERDUTY_PER_MINUTE, 60):
            return _answer(429, {"status": "throttle exceeded"}, {"Retry-After": "30"})
        self.applied(body)
        self._apply(body["event_action"], body["dedup_key"], body)
        return _answer(202, {"status": "success", "message": "Event processed", "dedup_key": body["dedup_key"]})

    def _problem(self, body: Mapping[str, Any], raw: bytes) -> str:
        payload = body.get("payload", {})
        is_trigger = body.get("event_action") == "trigger"
        rules = {
            "'routing_key' is invalid (must be the 32 character key of an integration)": body.get("routing_key")
            in self.keys,
            "'event_action' is invalid": body.get("event_action") in {"trigger", "acknowledge", "resolve"},
            "'dedup_key' is invalid": 0 < len(body.get("dedup_key", "")) <= 255,
            "the event is too large": len(raw) <= PAGERDUTY_BYTES_MAX,
            "'payload.summary' is missing or blank": not is_trigger or 0 < len(payload.get("summary", "")) <= 1024,
            "'payload.source' is missing or blank": not is_trigger or bool(payload.get("source")),
            "'payload.severity' is invalid": not is_trigger
            or payload.get("severity") in {"critical", "error", "warning", "info"},
        }
        return next((problem for problem, holds in rules.items() if not holds), "")

    def _apply(self, action: str, key: str, body: Mapping[str, Any]) -> None:
        state = self.alerts.get(key, "resolved")
        if action == "trigger" and state == "resolved":
            self.alerts[key] = "triggered"
            self.notified.append(body["payload"]["summary"])
        elif action == "acknowledge" and state == "triggered":
            self.alerts[key] = "acknowledged"
        elif action == "resolve" and key in self.alerts:
            self.alerts[key] = "resolved"


@dataclass
class FakeTeams(FakeEndpoint):
    signature: str = "sig=good"
    per_second: int = TEAMS_PER_SECOND

    def accept(self, body: Mapping[str, Any], raw: bytes, headers: Mapping[str, str], path: str) -> HttpAnswer:
        if self.signature not in path:
            return _answer(401, {"error": {"code": "DirectApiAuthorizationRequired"}})
        if len(raw) > TEAMS_BYTES_MAX:
            return _answer(413, {"error": {"code": "RequestEntityTooLarge"}})
        if not _is_card(body):
            return _answer(400, {"error": {"code": "TriggerInputSchemaMismatch"}})
        if self.is_too_fast(self.per_second, 1):
            return _answer(429, {"error": {"code": "WorkflowTriggerThrottled"}}, {"Retry-After": "5"})
        self.applied(body)
        return _answer(202, {})

    @property
    def texts(self) -> list[str]:
        """All text of each card."""
        return [_card_text(body) for _, body in self.requests]


@dataclass
class FakeReceiver(FakeEndpoint):
    """A receiver that verifies signatures as the docs say, and counts each event once."""

    secret: str = SECRET
    events: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    repeats: int = 0
    batch_max: int = 1_000

    def accept(self, body: Mapping[str, Any], raw: bytes, headers: Mapping[str, str], path: str) -> HttpAnswer:
        parts = dict(part.split("=", 1) for part in headers["Interlock-Signature"].split(","))
        expected = hmac.new(self.secret.encode(), f"{parts['t']}.".encode() + raw, hashlib.sha256).hexdigest()
        is_recent = abs(self.clock.now().timestamp() - int(parts["t"])) <= 300
        if not hmac.compare_digest(expected, parts["v1"]) or not is_recent:
            return _answer(401, {"error": "wrong signature"})
        if len(body["events"]) > self.batch_max:
            return _answer(413, {"error": "too many"})
        self.applied(body)
        for item in body["events"]:
            self.repeats += item["event"]["id"] in self.events
            self.events[item["event"]["id"]] = item
        return _answer(200, {})


class FakeHttp:
    """As much of the HTTP client as targets use, for virtual time: the host of the address names the endpoint."""

    def __init__(self, clock: Clock, **endpoints: FakeEndpoint) -> None:
        self._clock, self._endpoints = clock, endpoints

    async def send(self, request: Request) -> Reply:
        host = request.url.split("/")[2].split(".")[0]
        path = request.url.partition(host)[2]
        endpoint = self._endpoints[host]
        await self._clock.sleep(endpoint.latency_s)
        answer = endpoint.call(request.body, request.headers, path)
        if answer is None:
            await self._clock.sleep(request.timeout.total_seconds())
            return Unanswered("no answer in time")
        return answer

    def client(self) -> HttpClient:
        return cast("HttpClient", self)


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status=status, headers=headers or {}, body=json.dumps(body).encode())


def _is_card(body: Mapping[str, Any]) -> bool:
    match body:
        case {"type": "message", "attachments": [{"contentType": kind, "content": {"type": "AdaptiveCard"}}]}:
            return kind == "application/vnd.microsoft.card.adaptive"
        case _:
            return False


def _card_text(body: Mapping[str, Any]) -> str:
    blocks = body["attachments"][0]["content"]["body"]
    return "\n".join(run["text"] for block in blocks for run in block["inlines"])
