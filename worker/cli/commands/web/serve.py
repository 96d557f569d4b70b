"""`interlock web`: serve the console and the HTTP API of a store, in a process of its own."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen
from worker.cli.terminal.run_streams import RunStreams, run_streams
from worker.cli.terminal.store_access import EXIT_CODES, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.settings import Settings, read_settings
from worker.runtime.logs import configure_logs
from worker.web.addresses import DEFAULT_LISTEN

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_web(_: Screen, access: StoreAccess, listen: str | None) -> int:
    """Serve until a stop signal, also while the streams of this process are full or nobody reads them."""
    with run_streams(sys.stdout, sys.stderr) as streams:
        configure_logs(streams.log, access.clock)
        return await _serve(streams, access, listen)


async def _serve(streams: RunStreams, access: StoreAccess, listen: str | None) -> int:
    # The wiring loads the AWS libraries and the web framework: that takes longer than most commands take in total.
    from worker.app.telemetry import report_metrics  # noqa: PLC0415
    from worker.app.web import NoWorker, open_web  # noqa: PLC0415
    from worker.telemetry.meters import Meters, Metric  # noqa: PLC0415
    from worker.web.measures import OF_WEB  # noqa: PLC0415

    settings = _listening(read_settings(os.environ, store=access.url), listen, DEFAULT_LISTEN)
    meters, log = Meters(OF_WEB), streams.log
    meters.watch(Metric.LOG_LINES_LOST, lambda: {"": log.lost})
    async with AsyncExitStack() as stack:
        tables = await stack.enter_async_context(access.tables())
        served = await open_web(
            stack, settings, tables=tables, clock=access.clock, health=NoWorker(), meters=meters, is_alone=True
        )
        await report_metrics(stack, settings.telemetry, meters, access.clock, lambda line: log.write(f"{line}\n"))
        streams.screen.remark(f"serving {access.admin.place} on http://{served}; stop with Ctrl-C")
        await stop_signal()
    return Exit.DONE


def _listening(settings: Settings, listen: str | None, default: str) -> Settings:
    return replace(settings, web=replace(settings.web, listen=listen or settings.web.listen or default))


async def stop_signal() -> None:
    """Wait until the process is asked to stop."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    try:
        await stopping.wait()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


web_app = typer.Typer()

WEB_HELP = f"""Serve the console and the HTTP API on this store, without a worker.

A worker with INTERLOCK_WEB=HOST:PORT serves the same. On a loopback address anyone who reaches the port may read; on \
any other address every request needs a token, and the command refuses to start without tokens. Changes always need a \
token with the role operator.

\b
Settings from the environment:
  INTERLOCK_WEB            HOST:PORT, as --listen
  INTERLOCK_WEB_AUTH       local, token, alb or proxy
  INTERLOCK_WEB_TOKENS     NAME:ROLE:SHA256, or secretsmanager://NAME#KEY
  INTERLOCK_WEB_OPERATORS  user:NAME and group:NAME, for alb and proxy
  INTERLOCK_WEB_READONLY   1 rejects every change
  INTERLOCK_NAME           name of the installation in the header
  INTERLOCK_WEB_READS      read units per second of lists on DynamoDB
  INTERLOCK_PUBLIC_URL     its public address
  INTERLOCK_METRICS        emf: metrics as log lines

\b
Examples:
  interlock web
  interlock web --listen 127.0.0.1:9000 --store sqlite:///interlock.db
  curl http://127.0.0.1:8040/api/v1/workers

{EXIT_CODES}"""


@web_app.command("web", help=WEB_HELP)
def web(
    context: typer.Context,
    *,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve.", show_default="INTERLOCK_WEB, else 127.0.0.1:8040"),
    ] = None,
    store: StoreUrl = None,
) -> None:
    on_store(context, store, lambda screen, at: run_web(screen, at, listen))
