"""Wires the web server: console, API and health pages as one application, behind one guard.

FastAPI and uvicorn are loaded only where something is served: they take longer to load than most commands take.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from worker.app.dependencies import OutputDeps
from worker.config.settings import WEB, WEB_AUTH, WEB_SESSION_KEY, WEB_TOKENS, Settings
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.jobs.callbacks import callback_urls
from worker.jobs.secrets import MANAGED
from worker.operations.runs.job_output import job_folder
from worker.runtime import gc_tuning
from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.runtime.logs import logger
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.callback_key import make_callback_key
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import ChangeFeed, TableName, Tables
from worker.store.url import DynamoPlace, RedisPlace, SqlitePlace, locate
from worker.telemetry.meters import Meters, Metric
from worker.web.access import AccessMode, AccessRules, Caller, Identify, parse_tokens, unauthenticated
from worker.web.addresses import Address, parse_address
from worker.web.asgi import Scope
from worker.web.health import HealthPages, HealthProblem, WorkerHealth
from worker.web.operators import parse_operators
from worker.web.proxy_access import parse_proxy_access

if TYPE_CHECKING:
    from worker.web.identity.browser_sessions import BrowserSessions
    from worker.web.live.updates import LiveUpdates

SESSION_KEY_MIN: Final = 32
UPDATES_AGAIN_S: Final = 5.0
BEHIND_MAX_S: Final = 300.0  # of the console's lists, while somebody looks

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
    stack: AsyncExitStack,
    settings: Settings,
    *,
    tables: Tables,
    clock: Clock,
    health: WorkerHealth,
    meters: Meters,
    is_alone: bool = False,
) -> Address:
    """Serve the console, the API and the health pages until `stack` closes. Raises `ConfigError`.

    `is_alone`: the process has nothing else to do, so the console's lists are read before the first request.
    """
    from worker.app.aws_endpoint import aws_endpoint  # noqa: PLC0415
    from worker.jobs.aws.client import Aws  # noqa: PLC0415
    from worker.jobs.aws.log_tails import LogTails  # noqa: PLC0415

    try:
        from worker.web.api.application import make_api, warm_up  # noqa: PLC0415
        from worker.web.api.context import ApiContext  # noqa: PLC0415
        from worker.web.console.console import Console  # noqa: PLC0415
        from worker.web.console.links import Links  # noqa: PLC0415
        from worker.web.console.pages.application import make_console, with_console  # noqa: PLC0415
        from worker.web.console.problem_pages import ProblemPages  # noqa: PLC0415
        from worker.web.guard import Guard  # noqa: PLC0415
        from worker.web.measures import measured  # noqa: PLC0415
        from worker.web.server import WebServer  # noqa: PLC0415
    except ImportError as error:
        # An operator who sets the address relies on the console, so the worker does not run without it.
        raise ConfigError(
            f"{WEB} is set, but the console and the API cannot be loaded: {error}; install interlock again with all "
            f"its dependencies, or unset {WEB}"
        ) from error

    rules = access_rules(settings, await _tokens(settings, clock), await _identify(stack, settings, clock))
    sessions = _sessions(settings, rules, clock)
    if sessions is not None:
        rules = replace(rules, session=sessions.caller)
    address = rules.address
    context = ApiContext(
        tables=tables,
        clock=clock,
        job_folder=job_folder(settings.store),
        tails=LogTails(await stack.enter_async_context(Aws(aws_endpoint(settings)))),
        feed=_feed_of(tables, settings),
        reads_per_s=settings.web.reads_per_s,
    )
    console = Console(
        context=context,
        links=Links.below(settings.web.public_url),
        sessions=sessions,
        is_read_only=rules.is_read_only,
        installation=installation_name(settings),
    )
    console.warm_up()
    api = make_api(context)
    warm_up(api)
    app = with_console(api, make_console(console))
    # Where health has the same address, its pages stay as open as they are elsewhere.
    is_shared = settings.telemetry.health == settings.web.listen
    guard = Guard(
        app,
        rules,
        HealthPages(health, meters, lambda: stale_lists(context.live)),
        metrics_are_public=is_shared,
        problem_page=ProblemPages(console),
    )
    meters.watch(Metric.WEB_STREAMS, lambda: {"": context.live.fanout.streams})
    meters.watch(Metric.WEB_LIST_AGE, lambda: {"": context.live.behind_s})
    server = WebServer(address, measured(guard, meters, clock), setting=WEB)
    served = await server.start()
    stack.push_async_callback(server.stop)
    if is_alone:
        # The lists are hundreds of thousands of objects: without this, the collector would scan everything that was
        # loaded until now several times while they are read, and each scan would block the event loop for 0.1 s.
        gc_tuning.freeze_lasting_objects()
    _keep_live(stack, context.live, clock, is_alone=is_alone)
    _log.info("web.served", host=served.host, port=served.port, auth=rules.mode.value)
    return served


def _sessions(settings: Settings, rules: AccessRules, clock: Clock) -> "BrowserSessions | None":
    """Return who signs browsers in; None without tokens. Raises `ConfigError`."""
    from worker.web.identity.browser_sessions import BrowserSessions  # noqa: PLC0415

    key = settings.web.session_key
    if key and len(key) < SESSION_KEY_MIN:
        raise ConfigError(f"{WEB_SESSION_KEY} has fewer than {SESSION_KEY_MIN} characters; make a random one")
    return BrowserSessions(rules.tokens, clock, key.encode() or token_bytes(32)) if rules.tokens else None


def installation_name(settings: Settings) -> str:
    """Return what tells this installation from others: its name, else the file or the prefix of its store."""
    if settings.web.name:
        return settings.web.name
    match locate(settings.store):
        case SqlitePlace(named=named):
            return named.name
        case DynamoPlace(names=names):
            control = names[TableName.CONTROL]
            return control.removesuffix(TableName.CONTROL).rstrip("-_.") or control
        case RedisPlace(prefix=prefix):
            return prefix


def stale_lists(live: "LiveUpdates") -> Sequence[HealthProblem]:
    """Return why a load balancer should send requests to another process: its lists are no longer updated."""
    behind_s = live.behind_s
    if behind_s <= BEHIND_MAX_S:
        return ()
    return (HealthProblem(f"the console's lists were not updated for {behind_s:.0f} s; restart this process"),)


def _keep_live(stack: AsyncExitStack, live: "LiveUpdates", clock: Clock, *, is_alone: bool) -> None:
    """Keep the console's lists current in the background until `stack` closes."""
    if is_alone:
        live.touch()

    async def keep() -> None:
        while True:
            try:
                await live.run()
            except Exception as error:  # noqa: BLE001  a mistake here must not stop the worker
                _log.error("web.updates_failed", exc_info=error)
            await clock.sleep(UPDATES_AGAIN_S)

    # Not in a task group: on the stack of its owner, it would turn the owner's own errors into groups.
    keeping = asyncio.create_task(keep(), name="web-updates")

    async def end() -> None:
        live.fanout.close()  # open streams end at once
        keeping.cancel()
        await asyncio.wait((keeping,))

    stack.push_async_callback(end)


def _feed_of(tables: Tables, settings: Settings) -> ChangeFeed | None:
    """Return the store's change feed; None in shadow mode, whose own rows the feed has under other keys."""
    below = tables.below if isinstance(tables, FailureCountingTables) else tables
    return below if isinstance(below, SqliteTables) and not settings.shadow else None


def access_rules(settings: Settings, tokens: str, identify: Identify | None = None) -> AccessRules:
    """Return who may use the API. Raises `ConfigError` if it would be open to other machines."""
    return AccessRules(
        address=parse_address(WEB, settings.web.listen),
        mode=AccessMode(settings.web.auth),
        tokens=parse_tokens(tokens),
        public_url=settings.web.public_url,
        is_read_only=settings.web.is_read_only or settings.shadow,
        identify=identify,
    )


def checked_access(settings: Settings) -> AccessRules:
    """Return the rules as far as they can be checked without opening anything. Raises `ConfigError`."""
    web = settings.web
    operators = parse_operators(web.operators)
    match web.auth:
        case AccessMode.PROXY:
            identify: Identify | None = parse_proxy_access(web.proxies, web.proxy_secret, operators).identify
        case AccessMode.ALB:
            from worker.web.identity.key_source import key_address  # noqa: PLC0415

            key_address(web.alb)
            identify = _nobody
        case _:
            identify = None
    return access_rules(settings, web.tokens, identify)


async def _nobody(_: Scope) -> Caller:
    raise unauthenticated("nobody can sign in here")


async def _identify(stack: AsyncExitStack, settings: Settings, clock: Clock) -> Identify | None:
    """Return who knows the callers in the modes `alb` and `proxy`. Raises `ConfigError`."""
    web = settings.web
    operators = parse_operators(web.operators)
    match web.auth:
        case AccessMode.PROXY:
            return parse_proxy_access(web.proxies, web.proxy_secret, operators).identify
        case AccessMode.ALB:
            try:
                from worker.web.identity.alb_access import AlbAccess  # noqa: PLC0415  it needs an extra
            except ImportError as error:
                raise ConfigError(f"{WEB_AUTH} is alb, which needs the extra alb; install interlock[alb]") from error
            from worker.net.address_policy import AddressPolicy  # noqa: PLC0415
            from worker.net.http_client import HttpClient  # noqa: PLC0415
            from worker.web.identity.key_source import KeySource, keys_of_region  # noqa: PLC0415

            http = await stack.enter_async_context(HttpClient(AddressPolicy.parse(())))
            keys = KeySource(keys_of_region(http, web.alb), clock)
            return AlbAccess(web.alb, web.alb_client, keys, operators, clock).identify
        case _:
            return None


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
    # The AWS libraries, which `interlock web` needs only here.
    from worker.app.aws_endpoint import aws_endpoint  # noqa: PLC0415
    from worker.jobs.aws.client import Aws  # noqa: PLC0415
    from worker.jobs.aws.secrets_manager import SecretsManagerSecrets  # noqa: PLC0415

    async with Aws(aws_endpoint(settings)) as aws:
        found = await SecretsManagerSecrets(aws, clock).read(text)
    if found is None:
        raise ConfigError(f"{WEB_TOKENS} names {text}, and there is no such secret; create it, or correct the name")
    return found.strip()
