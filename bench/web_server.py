"""A console served in this process for the benchmark, with its requests and its reads of the store counted."""

import asyncio
import gc
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.runs import CountedReads, ReadMeter
from worker.app.web import NoWorker
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import ChangeFeed, Tables
from worker.telemetry.meters import Meters
from worker.web.access import AccessRules
from worker.web.addresses import Address
from worker.web.api.application import make_api, warm_up
from worker.web.api.context import ApiContext
from worker.web.asgi import Receive, Scope, Send, WebApp
from worker.web.console.console import Console
from worker.web.console.pages.application import make_console, with_console
from worker.web.guard import STREAM, Guard
from worker.web.health import HealthPages
from worker.web.live.fanout import Fanout
from worker.web.live.updates import LiveUpdates
from worker.web.server import WebServer

STREAMS_MAX = 600


@dataclass(slots=True)
class ServedBench:
    """A console that is served, but whose lists nobody has read yet: `live.run` does."""

    address: str
    context: ApiContext
    console: Console
    tables: Tables
    reads: ReadMeter = field(default_factory=ReadMeter)
    requests: Counter[str] = field(default_factory=Counter[str])

    @property
    def live(self) -> LiveUpdates:
        return self.context.live

    @property
    def asked(self) -> int:
        """Return how many requests there were, without the stream, which stays open."""
        return sum(number for path, number in self.requests.items() if path != STREAM)


@asynccontextmanager
async def served_on_file(path: Path) -> AsyncGenerator[ServedBench]:
    tables = SqliteTables(path, SystemClock())
    await tables.start()
    try:
        async with served(tables, tables) as made:
            yield made
    finally:
        await tables.stop()


@asynccontextmanager
async def served(tables: Tables, feed: ChangeFeed | None = None) -> AsyncGenerator[ServedBench]:
    """Serve a store as `interlock web` does; any number of streams may come from one user."""
    clock, reads = SystemClock(), ReadMeter()
    context = ApiContext(tables=CountedReads(tables, reads), clock=clock, feed=feed)
    context.live.fanout = Fanout("bench", per_user_max=STREAMS_MAX, streams_max=STREAMS_MAX)
    console = Console(context=context)
    console.warm_up()
    api = make_api(context)
    warm_up(api)
    app = with_console(api, make_console(console))
    guard = Guard(app, AccessRules(address=Address("127.0.0.1", 8040)), HealthPages(NoWorker(), Meters()))
    requests: Counter[str] = Counter()
    server = WebServer(Address("127.0.0.1", 0), _counting(guard, requests), setting="bench")
    at = await server.start()
    gc.freeze()
    try:
        yield ServedBench(f"{at}", context, console, tables, reads, requests)
    finally:
        context.live.fanout.close()
        await server.stop()


def _counting(app: WebApp, requests: Counter[str]) -> WebApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        requests[str(scope["path"])] += 1
        await app(scope, receive, send)

    return serve


@asynccontextmanager
async def kept_live(live: LiveUpdates) -> AsyncGenerator[None]:
    """Keep the lists current, as while somebody looks."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(live.run(), name="live")
        live.touch()
        yield
        running.cancel()


@asynccontextmanager
async def child(module: str, *arguments: object) -> AsyncGenerator[Process]:
    """Run a module of the benchmark as a process of its own until it has said that it is ready."""
    command = (sys.executable, "-m", module, *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**24)
    assert process.stdout is not None
    try:
        first = await process.stdout.readline()
        assert first, f"{module} ended without a word"
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def ask(process: Process, *question: object) -> dict[str, Any]:
    """Write one line to a child, if there is a question, and read one."""
    assert process.stdin is not None
    assert process.stdout is not None
    if question:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    assert line, "the process has ended"
    return json.loads(line)
