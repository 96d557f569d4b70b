"""Measures requests from outside the guard, so that rejected and failed ones count, too.

The label is the template of a route, such as `/api/v1/runs/{pipeline}`: a path would make a new value for every run.
"""

from typing import Final

from worker.runtime.clock import Clock
from worker.telemetry.meters import Meters, Metric
from worker.web.asgi import Message, Receive, Scope, Send, WebApp
from worker.web.guard import STREAM
from worker.web.health import HEALTH_PATHS

ROUTE: Final = "route"  # where the router leaves the route that it found
API: Final = STREAM.removesuffix("/stream")
NO_ROUTE: Final = "none"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

# What a process measures that only serves; the counters of a worker would all be zero there, and cost money.
OF_WEB: Final = (
    Metric.WEB_REQUEST,
    Metric.WEB_STREAMS,
    Metric.WEB_LIST_AGE,
    Metric.LOOP_LAG,
    Metric.LOG_LINES_LOST,
)


def measured(app: WebApp, meters: Meters, clock: Clock) -> WebApp:
    """Return the application, with each of its requests measured until its response has ended."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == STREAM:  # a stream lasts for hours; open ones are counted
            await app(scope, receive, send)
            return
        status, began = 0, clock.monotonic()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, note)
        finally:
            labels = (_route_of(scope), _method_of(scope), f"{status // 100}xx" if status else NO_ROUTE)
            meters.observe(Metric.WEB_REQUEST, clock.monotonic() - began, labels)

    return serve


def _route_of(scope: Scope) -> str:
    path = getattr(scope.get(ROUTE), "path", None)
    if isinstance(path, str):  # that of the API is relative to where its router is
        return f"{API}{path}" if scope["path"].startswith(API) and not path.startswith(API) else path
    return scope["path"] if scope["path"] in HEALTH_PATHS else NO_ROUTE


def _method_of(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else "other"
