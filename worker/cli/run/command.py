"""`interlock run`: run a worker on this machine until a signal stops it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consumers.alerts.console import DIGEST_EVERY
from worker.cli.commands.push import PushRequest, push_files, read_sound_files
from worker.cli.run.watch import PipelineWatch, stamps_before_push
from worker.cli.run.watch_report import LoggedWatch, ShownWatch
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.files import Sources
from worker.cli.terminal.run_streams import RunStreams, run_streams
from worker.cli.terminal.store_access import RUN_EXIT_CODES, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess, exit_code, show_error, show_surprise
from worker.config.load import Directory
from worker.config.roles import Role
from worker.config.settings import SHADOW, Settings, read_settings, renamed
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.runtime.clock import Clock
from worker.runtime.line_writer import LineWriter
from worker.runtime.logs import configure_logs, logger
from worker.runtime.root_causes import root_causes
from worker.store.repos.pipelines import Pipelines

if TYPE_CHECKING:
    from worker.app.worker import Worker

SIGNALS_MAX = 3  # the last one cancels everything that is still running
# Log events about something that is also an alert.
ALSO_ALERTS = frozenset({"watchdog.degraded", "run.damaged"})

_STOPPING = "stopping: the worker finishes what it is doing, at most 25 s; Ctrl-C again stops it without finishing"

_log = logger()


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        return logging.getLevelNamesMapping()[self.name]


class OutputFormat(StrEnum):
    AUTO = "auto"
    TEXT = "text"
    JSON = "json"

    def is_text(self, stream: LineWriter) -> bool:
        """Return whether people read a stream: because it was asked for, or because it is a terminal."""
        return self is OutputFormat.TEXT or (self is OutputFormat.AUTO and stream.isatty())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    sources: Sources | None = None  # these files are pushed first
    each_success: bool = False
    log_level: LogLevel | None = None  # None: warnings for people, everything but details for machines
    format: OutputFormat = OutputFormat.AUTO
    watch: bool = False  # reload `sources` when they change


async def run_worker(_: Screen, access: StoreAccess, request: RunOptions) -> int:
    """Push the files if given, then work until a stop signal, or until an output stream is closed."""
    with run_streams(sys.stdout, sys.stderr) as streams:
        _configure_logs(streams, access.clock, request)
        try:
            code = await _run(streams, access, request)
        except WorkerError as error:
            if not request.format.is_text(streams.log):
                _log.error("worker.failed", reason=str(error))
            show_error(streams.screen, error)
            code = exit_code(error)
        except Exception as error:  # noqa: BLE001  the edge: every error must be in the log
            code = _crashed(streams.screen, error)
        return _unread(streams) if streams.unread else code


def _configure_logs(streams: RunStreams, clock: Clock, request: RunOptions) -> None:
    is_text = request.format.is_text(streams.log)
    level = request.log_level or (LogLevel.WARNING if is_text else LogLevel.INFO)
    configure_logs(
        streams.log,
        clock,
        level=level.number,
        is_json=not is_text,
        is_coloured=streams.log.isatty() and not os.environ.get("NO_COLOR"),
        # Their alert is a line too, and the same thing twice is a puzzle. Who asks for a level gets all of it.
        unshown=ALSO_ALERTS if request.log_level is None and request.format.is_text(streams.out) else frozenset(),
    )


async def _run(streams: RunStreams, access: StoreAccess, request: RunOptions) -> int:
    screen, settings = streams.screen, read_settings(os.environ, store=access.url)
    for old, new in renamed(os.environ).items():
        _log.warning("setting.renamed", setting=old, instead=new)
    for_people = request.format.is_text(streams.out)
    # Where programs read the log, every line of it is JSON, and the log's own events say the same.
    remark = screen.remark if request.format.is_text(streams.log) else _unsaid
    watch: PipelineWatch | None = None
    pushed: tuple[PushRequest, Directory] | None = None
    if request.sources is not None:
        if settings.shadow:
            raise ConfigError(f"a shadow changes nothing, and --pipelines would; leave it out, or unset {SHADOW}")
        if request.watch:
            report = ShownWatch(screen, access.clock) if for_people else LoggedWatch()
            # Before the files are read: a change while they are is then seen later.
            watch = PipelineWatch(access, request.sources, stamps_before_push(request.sources), report)
        push = PushRequest(sources=request.sources, consent=Consent(True, None))
        found = read_sound_files(screen, push)
        if found is None:
            return Exit.PROBLEMS
        pushed = push, found
    worker = _made_worker(streams, access.clock, settings, request)
    if pushed is not None:
        await _push(screen, remark, access, *pushed)
    introduction = await _introduction(access, settings)
    if watch is not None and pushed is not None:
        watch.note_pushed(pushed[1])
        introduction.append("watching the pipeline files: a change is in force within seconds")
    worker.when_begun(partial(_say_all, remark, introduction))
    return await _work(worker, streams, watch, for_people=for_people)


def _made_worker(streams: RunStreams, clock: Clock, settings: Settings, request: RunOptions) -> "Worker":
    """Return the worker, which has opened nothing yet. Raises `ConfigError` for wrong settings."""
    # The wiring loads everything, also the AWS libraries: that takes longer than most commands take in total.
    from worker.app.build import make_worker  # noqa: PLC0415
    from worker.app.embedded import Options  # noqa: PLC0415

    screen = streams.screen
    options = Options(
        settings=settings,
        environment=os.environ,
        write_alert=streams.write_alert(screen),
        digest_every=None if request.each_success else DIGEST_EVERY,
        write_metrics=lambda line: _write_metrics(streams, line),
        confirm_logged=streams.log.confirmed,
        log_lines_lost=lambda: streams.log.lost,
        show_line=streams.show_line(screen) if request.format.is_text(streams.out) else None,
    )
    return make_worker(options, clock)


def _say_all(remark: Callable[[str], None], lines: Sequence[str]) -> None:
    for line in lines:
        remark(line)


def _unsaid(_: str) -> None:
    pass


async def _push(
    screen: Screen, remark: Callable[[str], None], access: StoreAccess, request: PushRequest, found: Directory
) -> None:
    """Push the files, and create the store if it does not exist.

    `interlock run` creates a store only here, so that a mistyped path does not become an empty store. It does so after
    the files and the settings were checked, so that a mistake in either leaves no store behind.
    """
    if await access.admin.init(may_create=False):
        remark(f"made {access.admin.place}")
        _log.info("store.made", store=access.admin.place)
    await push_files(screen, access, request, found)


async def _introduction(access: StoreAccess, settings: Settings) -> list[str]:
    """Return what to say once the worker has begun."""
    if settings.shadow:
        return [f"a shadow on {access.admin.place}: it decides everything and does nothing; stop with Ctrl-C"]
    if Role.ENGINE not in settings.roles:
        # A worker whose roles do not need pipelines may lack the right to list them.
        roles = ", ".join(sorted(settings.roles))
        return [f"working on {access.admin.place} for {roles} alone; stop with Ctrl-C"]
    async with access.tables() as tables:
        count = len([stored async for stored in Pipelines(tables).list()])
    said = [f"working on {access.admin.place} with {counted(count, 'pipeline')}; stop with Ctrl-C"]
    if not count:
        _log.info("pipelines.none", store=access.admin.place)
        said.append("no pipeline is deployed yet: `interlock pipelines push DIR`, or start with --pipelines DIR")
    return said


async def _work(worker: "Worker", streams: RunStreams, watch: PipelineWatch | None, *, for_people: bool) -> int:
    """Run the worker to its end and return the exit code.

    The first signal drains the worker, the second stops it without draining, and the third cancels it like a crash.
    """
    screen = streams.screen

    def say(text: str) -> None:
        if for_people:
            screen.remark(text)

    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_to_its_end(worker, streams.screen), name="worker")
        on_signal = _stopping(worker, working, say)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _stop_signals())  # the process that started this one may block them
        for number in _stop_signals():
            loop.add_signal_handler(number, on_signal)
        streams.on_broken(lambda: _soon(loop, worker.stop_once))
        watching = tasks.create_task(watch.run(), name="watch-files") if watch is not None else None
        try:
            await asyncio.wait([working])
        finally:
            if watching is not None:
                watching.cancel()
            for number in _stop_signals():
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)  # it has ended: a late signal must not change its exit code
    if not working.cancelled() and working.result() == Exit.DONE:
        say("stopped; jobs that run continue, and the next worker follows them")
    return Exit.LATER if working.cancelled() else working.result()


async def _to_its_end(worker: "Worker", screen: Screen) -> int:
    """Run the worker and return the exit code."""
    try:
        await worker.run()
    except Exception as error:  # noqa: BLE001  the edge: every error must be in the log
        return _ended_by(screen, error)
    return Exit.DONE


def _ended_by(screen: Screen, error: Exception) -> int:
    causes = root_causes(error)
    troubles = [cause for cause in causes if isinstance(cause, WorkerError)]
    if len(troubles) < len(causes):
        return _crashed(screen, error)
    _log.error("worker.failed", reason=" and ".join(map(str, troubles)))
    return Exit.LATER if all(isinstance(trouble, RetryLater) for trouble in troubles) else Exit.WRONG


def _crashed(screen: Screen, error: Exception) -> int:
    """Report a bug in Interlock: first to the log with the traceback, then as a sentence."""
    causes = root_causes(error)
    reason = " and ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
    _log.error("worker.crashed", reason=reason, exc_info=error)
    show_surprise(screen, causes)
    return Exit.WRONG


def _unread(streams: RunStreams) -> int:
    """Report that an output stream is closed, and return `UNREAD`.

    A worker whose log or alerts have no reader must not look like one that a signal stopped.
    """
    reason = (
        f"nobody reads {' and '.join(streams.unread)} any more (broken pipe), so the worker stopped in order; "
        "keep what reads it running, or send it to a file, and start the worker again"
    )
    _log.error("worker.failed", reason=reason)
    streams.say_last(f"interlock run: {reason}")
    return Exit.UNREAD


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: the worker has ended already
        loop.call_soon_threadsafe(act)


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that stop the worker; SIGHUP is one of them unless `nohup` ignores it."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]


def _stopping(worker: "Worker", working: "asyncio.Task[int]", say: Callable[[str], None]) -> Callable[[], None]:
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked < SIGNALS_MAX:
            say(_STOPPING if asked == 1 else "stopping without finishing it")
            worker.stop()
        else:
            working.cancel()

    return stop


def _write_metrics(streams: RunStreams, line: str) -> None:
    streams.log.write(f"{line}\n")


run_app = typer.Typer()

RUN_HELP = f"""Run a worker: evaluate rules, start jobs, watch deadlines, send alerts.

The store is one SQLite file, tables in DynamoDB, or keys on a Redis server. A file is made with --pipelines if it \
is not there. Several workers may share a store: each run has one of them, and when one dies another takes over.

On a terminal, each change of a run is one line, with the local time: started, waiting and why, completed, failed, \
rerun, deadline. On a pipe, alerts are lines on standard output, successes are gathered into a digest every 15 \
minutes, and the log is JSON on standard error. --format forces either. With a Slack token, alerts go to Slack.

With --watch, changed and added files are in force within seconds, once nobody writes to them. Active runs keep the \
version they began with. A file with errors is reported, and the deployed version stays. A deleted file removes \
nothing: `interlock pipelines remove` does.

Sensors come from other commands, while this one runs: `interlock sensor put`.

\b
Settings from the environment:
  INTERLOCK_STORE             the store, as --store
  INTERLOCK_JOB_ENVIRONMENT   variables that command jobs get: NAME,NAME
  INTERLOCK_HTTP_ALLOW        where HTTP jobs may go beside public hosts
  INTERLOCK_TIMING            default or fast: how soon a death is noticed
  INTERLOCK_SLACK_TOKEN       a bot's token, or secretsmanager://NAME#KEY
  INTERLOCK_SLACK_CHANNEL     where alerts go
  INTERLOCK_HEALTH            HOST:PORT for /healthz, /readyz and /metrics
  and more, for AWS: see docs/running.md

\b
Examples:
  interlock run --pipelines pipelines/
  interlock run --pipelines pipelines/ --watch
  interlock run --store sqlite:///interlock.db --format json
  interlock run --store dynamodb://interlock?region=eu-west-1
  interlock run --store redis://127.0.0.1:6379/0

SIGTERM and Ctrl-C drain the worker within 25 seconds. A second signal stops without draining; a third exits \
immediately. Both are safe: unfinished work is repeated. A full disk under the log or the alerts does not stop it.

{RUN_EXIT_CODES}"""


@run_app.command("run", help=RUN_HELP)
def run(
    context: typer.Context,
    *,
    pipelines: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, help="Push these files first; any error in them and nothing runs."),
    ] = None,
    calendars: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="beside DIR"),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Reload the files of --pipelines when they change.")] = False,
    each_success: Annotated[
        bool, typer.Option("--each-success", help="A line for every success, as on a terminal.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            metavar="LEVEL",
            help="Log this and worse: debug, info, warning, error.",
            show_default="info; on a terminal: warning",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            metavar="FORM",
            help="text: lines for people; json: alerts, and the log as JSON; auto: text on a terminal.",
        ),
    ] = OutputFormat.AUTO,
    store: StoreUrl = None,
) -> None:
    clock: Clock = context.obj
    sources = None
    if watch and pipelines is None:
        raise typer.BadParameter("there is nothing to watch; add --pipelines DIR", param_hint="--watch")
    if pipelines is not None:
        sources = Sources(paths=[pipelines], calendars=calendars, today=clock.now().date())
    request = RunOptions(
        sources=sources, each_success=each_success, log_level=log_level, format=output_format, watch=watch
    )
    on_store(context, store, lambda screen, at: run_worker(screen, at, request))
