"""The web application in memory, with callers of every role; each response is checked against the OpenAPI document."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from tests.support.aws.calls import Call
from tests.support.aws.recorded_tables import RecordedTables
from worker.app.web import NoWorker
from worker.runtime.clock import Clock, SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables
from worker.telemetry.meters import Meters
from worker.web.access import AccessRules, parse_tokens
from worker.web.addresses import Address
from worker.web.api.application import make_api
from worker.web.api.context import ApiContext
from worker.web.guard import Guard, WebLimits
from worker.web.health import HealthPages

VIEWER: Final = "viewer-token-of-the-tests"
OPERATOR: Final = "operator-token-of-the-tests"
BASE: Final = "http://127.0.0.1:8040"
OPEN_PATHS: Final = ("/livez", "/healthz", "/readyz", "/metrics", "/api/v1/openapi.json")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


TOKENS: Final = f"vera:viewer:{sha256(VIEWER)},olaf:operator:{sha256(OPERATOR)}"


def rules(**changes: Any) -> AccessRules:  # noqa: ANN401  any of its fields
    standard: dict[str, Any] = {"address": Address("127.0.0.1", 8040), "tokens": parse_tokens(TOKENS)}
    return AccessRules(**{**standard, **changes})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, kw_only=True)
class WebWorld:
    """A served store, and clients that act as a viewer, an operator or anyone."""

    tables: Tables
    api: FastAPI
    guard: Guard
    calls: Collection[Call] = ()  # what the API did, as it would be on DynamoDB
    checked: list[str] = field(default_factory=list[str])

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client whose every response must be one that the OpenAPI document describes."""
        transport = httpx.ASGITransport(self.guard)
        hooks = {"response": [self._check]}
        known = {**(bearer(token) if token else {}), **headers}
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=known, event_hooks=hooks)

    async def _check(self, response: httpx.Response) -> None:
        await response.aread()
        check_response(self.api, response)
        self.checked.append(f"{response.request.method} {response.request.url.path}")


@asynccontextmanager
async def a_web_world(
    *,
    clock: Clock | None = None,
    access: AccessRules | None = None,
    limits: WebLimits | None = None,
    job_folder: Path | None = None,
) -> AsyncGenerator[WebWorld]:
    now = clock or SystemClock()
    tables = SqliteTables.in_memory(now)
    await tables.start()
    try:
        recorded = RecordedTables(tables)
        api = make_api(ApiContext(tables=recorded, clock=now, job_folder=job_folder))
        api.openapi_schema = _document()  # the same for all, and slow to make
        guard = Guard(api, access or rules(), HealthPages(NoWorker(), Meters()), limits=limits)
        yield WebWorld(tables=tables, api=api, guard=guard, calls=recorded.calls)
    finally:
        await tables.stop()


# --- against the document ---------------------------------------------------------------------------------------------


def check_response(api: FastAPI, response: httpx.Response) -> None:
    """Fail unless the document describes this response: its status, its type, and its content."""
    request, kind = response.request, response.headers.get("content-type", "")
    assert "x-request-id" in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"
    if response.status_code >= 400 and request.url.path not in OPEN_PATHS:
        assert kind == "application/problem+json", (response.status_code, kind, response.text)
        problem = response.json()
        _validate(api, {"$ref": "#/components/schemas/ProblemDocument"}, problem)
        assert problem["status"] == response.status_code
        assert "Traceback" not in response.text
        return
    operation = _operation(api, request)
    if operation is None:
        return
    documented = operation["responses"][str(response.status_code)]
    if response.status_code == 304:
        assert (response.content, documented.get("content")) == (b"", None)
        return
    content = documented["content"]
    assert kind in content, f"{kind} is not documented for {request.url.path}: {sorted(content)}"
    if kind == "application/x-ndjson":
        lines = [json.loads(line) for line in response.text.splitlines()]
        assert lines[-1]["type"] == "end"
        item = content["application/json"]["schema"]
        document = {"items": lines[:-1], **{name: value for name, value in lines[-1].items() if name != "type"}}
        _validate(api, item, document)
    else:
        _validate(api, content[kind]["schema"], response.json())


@cache
def _document() -> dict[str, Any]:
    clock = SystemClock()
    return make_api(ApiContext(tables=SqliteTables.in_memory(clock), clock=clock)).openapi()


def _operation(api: FastAPI, request: httpx.Request) -> Mapping[str, Any] | None:
    if request.url.path in OPEN_PATHS:
        return None
    path = request.url.raw_path.decode().partition("?")[0]
    paths = api.openapi()["paths"]
    # A path without parameters goes before one with them.
    for template in sorted(paths, key=lambda each: each.count("{")):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and request.method.lower() in paths[template]:
            return paths[template][request.method.lower()]
    raise AssertionError(f"no operation is documented for {request.method} {request.url.path}")


def _validate(api: FastAPI, schema: Mapping[str, Any], content: object) -> None:
    _validator(json.dumps(schema), json.dumps(api.openapi()["components"])).validate(content)


@cache
def _validator(schema: str, components: str) -> Any:  # noqa: ANN401  its own types know only part of it
    return Draft202012Validator({**json.loads(schema), "components": json.loads(components)})
