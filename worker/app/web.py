"""Wires the web server: console, API and health pages as one application, behind one guard.

FastAPI and uvicorn are loaded only where something is served: they take longer to load than most commands take.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from worker.app.dependencies import OutputDeps
from worker.config.settings import WEB, WEB_TOKENS, Settings
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.jobs.callbacks import callback_urls
from worker.jobs.secrets import MANAGED
from worker.operations.runs.job_output import job_folder
from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.runtime.logs import logger
from worker.store.repos.callback_key import make_callback_key
from worker.store.table import Tables
from worker.store.url import DynamoPlace, locate
from worker.telemetry.meters import Meters
from worker.web.access import AccessMode, AccessRules, parse_tokens
from worker.web.addresses import Address, parse_address
from worker.web.health import HealthPages, HealthProblem, WorkerHealth

_log = logger()


class NoWorker:
    """The health of a process that only serves: it does no work, so nothing hinders it but the store."""

    def ailments(self) -> Sequence[HealthProblem]:
        return ()

    def hindrances(self) -> Sequence[HealthProblem]:
        return ()

    def store_outage(self) -> HealthProblem | None:
        return None


async def open_health(stack: AsyncExitStack, setting: str, listen: str, health: WorkerHealth, meters: Meters) -> None:
    """Serve the health pages alone. Raises `ConfigError` if the address is not available."""
    from worker.web.server import WebServer  # noqa: PLC0415

    server = WebServer(parse_address(setting, listen), HealthPages(health, meters), setting=setting)
    served = await server.start()
    stack.push_async_callback(server.stop)
    _log.info("health.served", host=served.host, port=served.port)


async def open_web(
    stack: AsyncExitStack, settings: Settings, *, tables: Tables, clock: Clock, health: WorkerHealth, meters: Meters
) -> Address:
    """Serve the console, the API and the health pages until `stack` closes. Raises `ConfigError`."""
    try:
        from worker.web.api.application import make_api  # noqa: PLC0415
        from worker.web.api.context import ApiContext  # noqa: PLC0415
        from worker.web.console.application import make_console, with_console  # noqa: PLC0415
        from worker.web.console.console import Console  # noqa: PLC0415
        from worker.web.console.links import Links  # noqa: PLC0415
        from worker.web.console.problem_pages import ProblemPages  # noqa: PLC0415
        from worker.web.guard import Guard  # noqa: PLC0415
        from worker.web.server import WebServer  # noqa: PLC0415
    except ImportError as error:
        # An operator who sets the address relies on the console, so the worker does not run without it.
        raise ConfigError(
            f"{WEB} is set, but the console and the API cannot be loaded: {error}; install interlock again with all "
            f"its dependencies, or unset {WEB}"
        ) from error

    rules = access_rules(settings, await _tokens(settings, clock))
    address = rules.address
    context = ApiContext(tables=tables, clock=clock, job_folder=job_folder(settings.store))
    console = Console(
        context=context,
        links=Links.below(settings.web.public_url),
        can_sign_in=bool(rules.tokens),
        is_read_only=rules.is_read_only,
    )
    app = with_console(make_api(context), make_console(console))
    # Where health has the same address, its pages stay as open as they are elsewhere.
    is_shared = settings.telemetry.health == settings.web.listen
    guard = Guard(
        app,
        rules,
        HealthPages(health, meters),
        metrics_are_public=is_shared,
        problem_page=ProblemPages(console),
    )
    server = WebServer(address, guard, setting=WEB)
    served = await server.start()
    stack.push_async_callback(server.stop)
    _log.info("web.served", host=served.host, port=served.port, auth=rules.mode.value)
    return served


def access_rules(settings: Settings, tokens: str) -> AccessRules:
    """Return who may use the API. Raises `ConfigError` if it would be open to other machines."""
    return AccessRules(
        address=parse_address(WEB, settings.web.listen),
        mode=AccessMode(settings.web.auth),
        tokens=parse_tokens(tokens),
        public_url=settings.web.public_url,
        is_read_only=settings.web.is_read_only or settings.shadow,
    )


async def with_callbacks(outputs: OutputDeps, settings: Settings, tables: Tables, served: Address | None) -> OutputDeps:
    """Return outputs whose jobs get an address for their reports, if a server has one that they can use."""
    base = settings.web.public_url or (f"http://{served}" if served is not None and served.is_loopback else "")
    if not base:
        return outputs
    key = await make_callback_key(tables, GROUP, random_long_id)
    return replace(outputs, callback_url=callback_urls(base, key))


async def _tokens(settings: Settings, clock: Clock) -> str:
    """Return the tokens' text, or that of the secret it names, which is read once."""
    text = settings.web.tokens
    if not text.startswith(MANAGED):
        return text
    from worker.jobs.aws.client import Aws, AwsEndpoint  # noqa: PLC0415  the AWS libraries, which `interlock web` needs
    from worker.jobs.aws.secrets_manager import SecretsManagerSecrets  # noqa: PLC0415  only here

    place = locate(settings.store)
    at = AwsEndpoint(region=place.region, endpoint=place.endpoint) if isinstance(place, DynamoPlace) else AwsEndpoint()
    async with Aws(at) as aws:
        found = await SecretsManagerSecrets(aws, clock).read(text)
    if found is None:
        raise ConfigError(f"{WEB_TOKENS} names {text}, and there is no such secret; create it, or correct the name")
    return found.strip()
