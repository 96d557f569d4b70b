"""`interlock demo`: run a real worker, real jobs and a small data lake for about half a minute."""

import asyncio
import os
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, chdir, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TextIO, cast

import typer

from consumers.alerts.console import WriteLine
from consumers.outbox.severities import Severity
from worker.cli.commands.push import PushRequest, run_push
from worker.cli.commands.status_table import StatusRequest, show_status
from worker.cli.commands.web.serve import stop_signal
from worker.cli.demo.acts import BRONZE, GOLD, PIPELINES, Play
from worker.cli.demo.folder import ALERTS, LOG, STORE, FolderRequest, jobs_path, make_folder
from worker.cli.demo.history import write_history
from worker.cli.demo.past_runs import DAYS
from worker.cli.demo.stage import NotInTime, Stage, short_name
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_access import EXIT_CODES
from worker.cli.terminal.store_session import Exit, StoreAccess, told
from worker.config.settings import JOB_ENVIRONMENT, WEB, read_settings
from worker.config.settings import STORE as STORE_SETTING
from worker.core.errors import ConfigError
from worker.runtime.clock import Clock
from worker.runtime.logs import configure_logs
from worker.store.url import RedisPlace, SqlitePlace, locate, without_secrets
from worker.web.addresses import DEFAULT_LISTEN

INTRODUCTION = """Interlock starts a job when its data is ready, not before and not twice, and goes on watching.

A shop's orders come in by the hour. Three pipelines make a small lake of them, each with a real program as its job:
bronze-orders and silver-orders every hour, gold-orders every day. This demo plays the shop: it writes files and
reports them by sensors. Everything else is done by an ordinary worker, as `interlock run` starts it.
"""


class ConsoleWish(StrEnum):
    """ConsoleWish says how long the demo's worker serves the console."""

    NONE = "none"
    DURING = "during"
    UNTIL_STOPPED = "until stopped"


async def run_demo(
    screen: Screen,
    clock: Clock,
    request: FolderRequest,
    console: ConsoleWish = ConsoleWish.NONE,
    store: str | None = None,
) -> int:
    """Run the demo in a directory of its own. Raises `ConfigError` if that or the store cannot be used."""
    if store is not None:
        await _take_new_store(StoreAccess(url=store, clock=clock))
    folder = make_folder(screen, request)
    if folder is None:
        screen.remark("nothing was changed")
        return Exit.PROBLEMS
    with _inside(folder) as written:
        configure_logs(written.log, clock)
        return await _play(screen, StoreAccess(url=store or f"sqlite:///{STORE}", clock=clock), written, console)


async def _take_new_store(access: StoreAccess) -> None:
    """Create the store that the user named. Raises `ConfigError` if it exists: it may be in use."""
    if not isinstance(locate(access.url), RedisPlace):
        raise ConfigError("--store of the demo takes a redis:// URL; without it, the demo makes a file of its own")
    if not await access.admin.init(may_create=False):
        raise ConfigError(
            f"there is a store at {access.admin.place} already, and a demo must not mix with it; name one of its own: "
            "add ?prefix=demo1 to the URL"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """_Written holds the demo's directory and the files for the worker's log and alerts."""

    folder: Path
    log: TextIO
    alerts: TextIO


@contextmanager
def _inside(folder: Path) -> Generator[_Written]:
    """Change to the demo's directory, so that paths and the commands shown are as in a shell there."""
    with chdir(folder), Path(LOG).open("w") as log, Path(ALERTS).open("w") as alerts:
        yield _Written(folder=folder, log=log, alerts=alerts)


async def _play(screen: Screen, access: StoreAccess, written: _Written, console: ConsoleWish) -> int:
    day = access.clock.now().date() - timedelta(days=1)
    listen = free_address() if console is not ConsoleWish.NONE else ""
    await _begin(screen, access, written.folder)
    try:
        async with _working(access, written.alerts, listen), access.tables() as tables:
            if listen:
                screen.line(f"\nThe console is on http://{listen} while the demo plays.", style="bold")
            stage = Stage(screen, access, tables, PIPELINES)
            play = Play(stage, day)
            await _perform(stage, play)
            if console is ConsoleWish.UNTIL_STOPPED:
                show_highlights(screen, stage, play)
                screen.line(f"\nThe console stays on http://{listen} until Ctrl-C.", style="bold")
                await stop_signal()
                return Exit.DONE
    except NotInTime as late:
        screen.remark(f"{late}; the machine may be very busy, or this is a mistake in Interlock", "red")
        screen.remark(f"    {written.folder / LOG} shows what the worker did")
        return Exit.PROBLEMS
    show_highlights(screen, stage, play)
    screen.line("\n$ interlock status", style="bold")
    async with access.tables() as tables:
        request = StatusRequest(pipeline=None, days=2, limit=20, as_json=False)
        await show_status(screen, tables, request, access.clock.now())
    show_next_steps(screen, written.folder, day, access.url)
    return Exit.DONE


def free_address() -> str:
    """Return the console's usual address, or one with another port if that is taken."""
    host, _, port = DEFAULT_LISTEN.partition(":")
    for number in (int(port), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError:
                continue
            return f"{host}:{probe.getsockname()[1]}"
    raise ConfigError(f"no port of {host} is free for the console; use --no-web")


async def _begin(screen: Screen, access: StoreAccess, folder: Path) -> None:
    screen.line(INTRODUCTION)
    screen.line(f"$ cd {shlex.quote(str(folder))}", style="bold")
    screen.line("$ interlock run --pipelines pipelines/", style="bold")
    await access.admin.init(may_create=True)
    sources = Sources(paths=[Path("pipelines")], today=access.clock.now().date())
    if await run_push(screen, access, PushRequest(sources=sources, consent=Consent(True, None))) != Exit.DONE:
        raise ConfigError("the demo's own pipelines are not valid, so the package is damaged; install it again")
    async with access.tables() as tables:
        runs = await write_history(tables, access.clock.now())
    screen.line(
        f"\n{runs} invented runs of the last {DAYS} days are added, so that the lists and charts have a past.",
        style="dim",
    )


async def _perform(stage: Stage, play: Play) -> None:
    await stage.until_heard()
    for number, (title, act) in enumerate(play.acts, start=1):
        _heading(stage.screen, f"{number}. {title}")
        await act()


@asynccontextmanager
async def _working(access: StoreAccess, alerts: TextIO, listen: str) -> AsyncGenerator[None]:
    """Run a worker during the demo, built as `interlock run` builds it, with a console on `listen`.

    Raises the first error of the worker or of the demo.
    """
    # The wiring loads everything, also the AWS libraries: that takes longer than most commands take in total.
    from worker.app.build import make_worker  # noqa: PLC0415
    from worker.app.embedded import Options  # noqa: PLC0415

    options = Options(
        # The demo must not depend on the environment. Its jobs write sensors, so they must find its store.
        settings=read_settings({JOB_ENVIRONMENT: STORE_SETTING, WEB: listen}, store=access.url),
        environment={**os.environ, "PATH": jobs_path(), STORE_SETTING: access.url},
        write_alert=_writing(alerts),
        digest_every=None,
    )
    worker = make_worker(options, access.clock)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run(), name="worker")
            yield
            worker.stop()
    except BaseExceptionGroup as ended:
        raise first_of(cast("BaseException", ended)) from None


def _writing(alerts: TextIO) -> WriteLine:
    async def write(_: Severity, line: str) -> None:
        print(line, file=alerts, flush=True)

    return write


def first_of(ended: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(ended, BaseExceptionGroup):
        ended = cast("BaseExceptionGroup[BaseException]", ended).exceptions[0]
    return ended


# --- summary ----------------------------------------------------------------------------------------------------------


def show_highlights(screen: Screen, stage: Stage, play: Play) -> None:
    _heading(screen, f"What you saw, in {stage.elapsed_s:.0f} seconds")
    rows = [
        (stage.seen_after_s(told), what, short_name(told.pipeline, told.period), f"{sentence}: {told.type}")
        for what, told, sentence in play.highlights
    ]
    screen.table([(f"{after_s:5.1f}s", *words) for after_s, *words in rows])


def show_next_steps(screen: Screen, folder: Path, day: date, store: str = "") -> None:
    _heading(screen, "What to try next")
    screen.line(f"  cd {shlex.quote(str(folder))}")
    if store and not isinstance(locate(store), SqlitePlace):
        screen.line(f"  export INTERLOCK_STORE={shlex.quote(without_secrets(store))}")
    if shutil.which("interlock") is None:
        screen.line(f'  export PATH="{jobs_path().partition(os.pathsep)[0]}:$PATH"')
    for command, comment in (
        (f"interlock history {GOLD} {day}", "everything recorded about a run"),
        (f"interlock explain {BRONZE} {day}T02", "why the last one waits"),
        ("interlock events --type JOB_FAILED", f"list events; {ALERTS} has the alerts that people get"),
        ("interlock web", f"the console, on http://{DEFAULT_LISTEN} until Ctrl-C"),
        ("interlock run", "a worker, until Ctrl-C; then, in another shell, complete the waiting run:"),
    ):
        screen.line(f"  {command:<46}  # {comment}")
    # Longer than the others, and not aligned with a comment: people copy it.
    screen.line(f"  interlock sensor put {BRONZE} landing status=complete rows=130 --period {day}T02")


def _heading(screen: Screen, title: str) -> None:
    screen.line(f"\n== {title}", style="bold cyan")


demo_app = typer.Typer()

DEMO_HELP = f"""Watch three pipelines with real jobs run on this machine, in under a minute.

Shows incomplete data, a start, a retry, an SLA warning, late data, a rerun after drift and a dry run, and leaves a \
store to explore. Everything is in one directory: ./interlock-demo, or the one of --dir; without a terminal, a new \
one. With --store, the rows are on a Redis server, under a prefix that is not in use yet.

\b
Examples:
  interlock demo
  interlock demo --dir /tmp/demo
  interlock demo --yes
  interlock demo --store redis://127.0.0.1:6379/0?prefix=demo

{EXIT_CODES}"""


@demo_app.command("demo", help=DEMO_HELP)
def demo(
    context: typer.Context,
    *,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Directory for the demo.", show_default="./interlock-demo"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace an earlier demo without asking.")] = False,
    web: Annotated[
        bool | None,
        typer.Option(
            "--web/--no-web",
            help="Serve the console, and keep it after the demo until Ctrl-C.",
            show_default="only during the demo, on a terminal",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="A Redis server for the rows.", show_default="a file of its own"),
    ] = None,
) -> None:
    screen = Screen()
    clock: Clock = context.obj
    request = FolderRequest(directory=directory, consent=Consent.by_option(yes))
    raise typer.Exit(told(screen, lambda: run_demo(screen, clock, request, _console(web), store)))


def _console(wish: bool | None) -> ConsoleWish:
    if wish is None:
        return ConsoleWish.DURING if sys.stdout.isatty() else ConsoleWish.NONE
    return ConsoleWish.UNTIL_STOPPED if wish else ConsoleWish.NONE
