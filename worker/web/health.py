"""Pages about this worker's health, readiness and metrics, for probes and collectors.

Health is about this process: an orchestrator replaces an unhealthy one. A store outage does not make a worker
unhealthy, because its replacement would find the same outage. So a worker without a session is healthy and not ready.
Both pages state what is wrong with the store.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from worker.telemetry.meters import Meters
from worker.telemetry.prometheus import CONTENT_TYPE, page
from worker.web.asgi import Receive, Scope, Send, respond
from worker.web.problems import ProblemType, WebProblem, send_problem

LOOP_LAG_MAX_S: Final = 1.0
LIVE: Final = "/livez"
HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS: Final = "/metrics"
PROBES: Final = frozenset({LIVE, HEALTH, READY})
HEALTH_PATHS: Final = PROBES | {METRICS}


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Describes a problem that makes the worker unhealthy or not ready."""

    text: str


class WorkerHealth(Protocol):
    """Reports the current state of the worker; `app` implements it."""

    def ailments(self) -> Sequence[HealthProblem]:
        """Return why this process should be replaced."""
        ...

    def hindrances(self) -> Sequence[HealthProblem]:
        """Return why this process does no work at present."""
        ...

    def store_outage(self) -> HealthProblem | None:
        """Return why the store does not answer; None if it does."""
        ...


Findings: TypeAlias = Callable[[], Sequence[HealthProblem]]


class HealthPages:
    """Serves `/healthz`, `/readyz`, `/livez` and `/metrics`. `live` returns the findings of `/livez`."""

    def __init__(self, standing: WorkerHealth, meters: Meters, live: Findings = lambda: ()) -> None:
        self._standing, self._meters = standing, meters
        self._findings: dict[str, Findings] = {HEALTH: standing.ailments, READY: standing.hindrances, LIVE: live}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  as ASGI calls it
        path: str = scope["path"]
        if path not in HEALTH_PATHS:
            await send_problem(send, WebProblem(ProblemType.NOT_FOUND, f"there are {', '.join(sorted(HEALTH_PATHS))}"))
        elif scope["method"] not in {"GET", "HEAD"}:
            problem = WebProblem(ProblemType.METHOD_NOT_ALLOWED, "these pages are only read", headers={"Allow": "GET"})
            await send_problem(send, problem)
        elif path == METRICS:
            await respond(send, 200, page(self._meters).encode(), CONTENT_TYPE)
        else:
            await self._report(send, self._findings[path])

    async def _report(self, send: Send, findings: Findings) -> None:
        found, outage = [finding.text for finding in findings()], self._standing.store_outage()
        store = {} if outage is None else {"store": outage.text}
        body = json.dumps({"ok": not found, "why": found, **store}).encode()
        await respond(send, 503 if found else 200, body, "application/json; charset=utf-8")
