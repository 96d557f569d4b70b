"""Serves this worker's health, readiness and metrics over HTTP, for probes and collectors.

Health is about this process: an orchestrator replaces an unhealthy one. A store outage does not make a worker
unhealthy, because its replacement would find the same outage. So a worker without a session is healthy and not ready.
Both pages state what is wrong with the store.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from aiohttp import web

from worker.core.errors import ConfigError
from worker.telemetry.meters import Meters
from worker.telemetry.prometheus import CONTENT_TYPE, page

LOOP_LAG_MAX_S: Final = 1.0
STOP_MAX_S: Final = 1.0


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
Answer: TypeAlias = Awaitable[web.StreamResponse]


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`; port 0 means any free port. Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            f"INTERLOCK_HEALTH is {text!r}, which is no address to serve on; use HOST:PORT, as in 0.0.0.0:8080"
        )
    return Address(host.strip("[]"), int(port))


class HealthServer:
    """Serves `/healthz`, `/readyz` and `/metrics` between `start` and `stop`."""

    def __init__(self, address: Address, standing: WorkerHealth, meters: Meters) -> None:
        self._address, self._standing, self._meters = address, standing, meters
        self._runner: web.AppRunner | None = None

    async def start(self) -> Address:
        """Start to serve; return the address with the actual port. Raises `ConfigError` if it is unavailable."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._answering(self._standing.ailments)),
                web.get("/readyz", self._answering(self._standing.hindrances)),
                web.get("/metrics", self._metrics),
            ]
        )
        # A slow client does not delay a worker that stops.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_MAX_S, lingering_time=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host, self._address.port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(
                f"health cannot be served on {self._address.host}:{self._address.port}: {error.strerror or error}; "
                "choose another address with INTERLOCK_HEALTH"
            ) from error
        return Address(self._address.host, int(self._runner.addresses[0][1]))

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answering(self, findings: Findings) -> Callable[[web.Request], Answer]:
        async def answer(_: web.Request) -> web.Response:
            found, outage = [finding.text for finding in findings()], self._standing.store_outage()
            store = {} if outage is None else {"store": outage.text}
            return web.json_response({"ok": not found, "why": found, **store}, status=503 if found else 200)

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=page(self._meters).encode(), headers={"Content-Type": CONTENT_TYPE})
