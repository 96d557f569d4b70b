"""The API as one application: its routes, its OpenAPI document, and its errors as problem documents."""

import asyncio
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from worker.core.errors import WorkerError
from worker.operations.runs.cursors import BadCursor
from worker.operations.runs.run_filter import WindowTooLong
from worker.store.table import StaleWrite
from worker.web.api.actions import actions_router
from worker.web.api.alerts import alerts_router
from worker.web.api.bulk import bulk_router
from worker.web.api.context import ApiContext
from worker.web.api.deadletters import deadletters_router
from worker.web.api.events import events_router
from worker.web.api.jobs import jobs_router
from worker.web.api.ledgers import ledgers_router
from worker.web.api.openapi import openapi_document
from worker.web.api.pipelines import pipelines_router
from worker.web.api.responses import PROBLEMS
from worker.web.api.run_log import run_log_router
from worker.web.api.run_summaries import run_summaries_router
from worker.web.api.runs import runs_router
from worker.web.api.sensors import sensors_router
from worker.web.api.stream import stream_router
from worker.web.api.summary import SummaryCache, summary_router
from worker.web.api.workers import workers_router
from worker.web.asgi import Scope
from worker.web.guard import REQUEST_ID
from worker.web.problems import (
    PROBLEM_JSON,
    FieldError,
    ProblemType,
    WebProblem,
    problem_body,
    problem_of,
)

PREFIX: Final = "/api/v1"
DESCRIPTION: Final = (
    "Runs, pipelines, sensors and events of one store. Errors are problem documents (RFC 9457); lists have pages, "
    "and are NDJSON with `Accept: application/x-ndjson`."
)
_HTTP: Final = {404: ProblemType.NOT_FOUND, 405: ProblemType.METHOD_NOT_ALLOWED}
ERRORS_SHOWN_MAX: Final = 100


ROUTERS: Final = (
    summary_router,
    sensors_router,
    pipelines_router,
    runs_router,
    run_log_router,
    actions_router,
    bulk_router,
    events_router,
    alerts_router,
    deadletters_router,
    jobs_router,
    ledgers_router,
    run_summaries_router,
    workers_router,
    stream_router,
)


def make_api(context: ApiContext) -> FastAPI:
    """Return the application, with its document at `/api/v1/openapi.json`."""
    api = _empty_api()
    api.state.context = context
    api.state.summary = SummaryCache()
    api.router.routes.extend(_routes())
    api.openapi = partial(openapi_document, api)
    api.add_route(f"{PREFIX}/openapi.json", _document, include_in_schema=False)
    api.add_exception_handler(WebProblem, _on_problem)
    api.add_exception_handler(WorkerError, _on_worker_error)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(HTTPException, _on_http)
    return api


def _empty_api() -> FastAPI:
    return FastAPI(
        title="Interlock",
        version=version("interlock"),
        description=DESCRIPTION,
        openapi_url=None,  # `make_api` adds what makes it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return the routes, which hold nothing of an application. To build them takes 60 ms."""
    api = _empty_api()
    for router in ROUTERS:
        api.include_router(router, prefix=PREFIX, responses=PROBLEMS)
    return tuple(api.router.routes)


def warm_up(api: FastAPI) -> None:
    """Build all routes: otherwise the first request would, in one step of the event loop of 60 ms."""
    nowhere: Scope = {
        "type": "http",
        "method": "GET",
        "path": f"{PREFIX}/-",
        "root_path": "",
        "headers": [],
        "app": api,
    }
    for route in api.routes:
        route.matches(dict(nowhere))


async def _document(request: Request) -> Response:
    """Return the OpenAPI document; a thread makes it for the first caller, in a quarter of a second."""
    api: FastAPI = request.app
    if api.openapi_schema is None:
        await asyncio.to_thread(api.openapi)
    return JSONResponse(api.openapi())


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, WebProblem)  # noqa: S101  registered for this type
    return _response(request, error)


async def _on_worker_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WorkerError)  # noqa: S101
    match error:
        case BadCursor():
            return _response(request, WebProblem(ProblemType.BAD_CURSOR, str(error)))
        case WindowTooLong():
            return _response(request, WebProblem(ProblemType.WINDOW_TOO_LONG, str(error)))
        case StaleWrite():
            return _response(request, WebProblem(ProblemType.CONFLICT, "another write was first; try again"))
        case _:
            return _response(request, problem_of(error))


async def _on_invalid(request: Request, error: Exception) -> Response:
    """Name each wrong parameter; the value itself is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    found = error.errors()
    is_sent_as_json = "json" in request.headers.get("Content-Type", "").lower()
    errors = [_field_error(each, is_sent_as_json=is_sent_as_json) for each in found[:ERRORS_SHOWN_MAX]]
    is_content = any(each.get("loc", ("",))[0] == "body" for each in found)
    is_json = not any(each.get("type") == "json_invalid" for each in found)
    kind = ProblemType.INVALID if is_content and is_json else ProblemType.BAD_REQUEST
    detail = "; ".join(f"{each.where}: {each.what}" for each in errors[:3])
    return _response(request, WebProblem(kind, detail, errors=errors))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    kind = _HTTP.get(error.status_code, ProblemType.BAD_REQUEST)
    return _response(request, WebProblem(kind, headers=dict(error.headers or {})))


def _field_error(error: dict[str, Any], *, is_sent_as_json: bool) -> FieldError:
    """Return an error in our words; the library's own speak of its classes."""
    match error.get("type"):
        case "missing":
            return FieldError(_place(error), "is required")
        case "extra_forbidden":
            return FieldError(_place(error), "is not a key here")
        case "json_invalid":
            at = error.get("loc", ("body", 0))[-1]
            return FieldError("body", f"is not JSON: {error.get('ctx', {}).get('error', 'error')} at character {at}")
        case "model_attributes_type" | "model_type" | "dict_type":
            is_unread = error.get("loc") == ("body",) and not is_sent_as_json
            hint = "; send it with `Content-Type: application/json`" if is_unread else ""
            return FieldError(_place(error), f"must be a JSON object{hint}")
        case _:
            return FieldError(_place(error), str(error.get("msg", "")))


def _place(error: dict[str, Any]) -> str:
    return ".".join(str(part) for part in error.get("loc", ()))


def _response(request: Request, problem: WebProblem) -> Response:
    body = problem_body(problem, request.scope["state"][REQUEST_ID])
    return Response(body, problem.kind.value.status, dict(problem.headers), PROBLEM_JSON)
