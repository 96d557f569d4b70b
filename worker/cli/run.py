"""`interlock run`: a worker on this machine, until it is told to stop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from consumers.console import DIGEST_EVERY
from consumers.severities import Severity
from worker.cli.consent import Consent
from worker.cli.console import Screen, counted
from worker.cli.onstore import Exit, StoreAccess
from worker.cli.push import PushRequest, push_files, read_sound_files
from worker.cli.sources import Sources
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.logs import configure_logs, logger
from worker.settings import SHADOW, Duty, Settings, read_settings
from worker.store.pipelines import Pipelines

if TYPE_CHECKING:
    from worker.app import Worker

STYLES = {Severity.ALERT: "bold red", Severity.WARNING: "yellow", Severity.SUCCESS: "green", Severity.NOTE: ""}

SIGNALS_MAX = 3  # with the last of which it ends whatever is under way

_log = logger()


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        return logging.getLevelNamesMapping()[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    sources: Sources | None = None  # pushed first
    each_success: bool = False
    log_level: LogLevel = LogLevel.INFO


async def run_worker(screen: Screen, access: StoreAccess, request: RunRequest) -> int:
    """Push what is to be pushed, then work until SIGTERM or Ctrl-C."""
    configure_logs(sys.stderr, access.clock, level=request.log_level.number)
    settings = read_settings(os.environ, store=access.url)
    if request.sources is not None:
        if settings.shadow:
            raise ConfigError(f"a shadow changes nothing, and --pipelines would; leave it out, or unset {SHADOW}")
        pushed = await _push(screen, access, request.sources)
        if pushed != Exit.DONE:
            return pushed
    await _introduce(screen, access, settings)
    # The wiring loads everything there is, the AWS libraries too: longer than most commands take as a whole.
    from worker.wiring.choice import make_worker  # noqa: PLC0415
    from worker.wiring.embedded import Options  # noqa: PLC0415

    options = Options(
        settings=settings,
        environment=os.environ,
        write_alert=_writer(screen),
        digest_every=None if request.each_success else DIGEST_EVERY,
        write_metrics=_write_metrics,
    )
    return await _work(make_worker(options, access.clock))


async def _push(screen: Screen, access: StoreAccess, sources: Sources) -> int:
    """Bring the store to what the files say. Only here is it made: a mistyped path must not become an empty store.

    It is made once the files are known to be sound: a bad file must not leave a store behind.
    """
    request = PushRequest(sources=sources, consent=Consent(True, None))
    found = read_sound_files(screen, request)
    if found is None:
        return Exit.PROBLEMS
    if await access.admin.init(may_create=False):
        screen.remark(f"made {access.admin.place}")
    return await push_files(screen, access, request, found)


async def _introduce(screen: Screen, access: StoreAccess, settings: Settings) -> None:
    if settings.shadow:
        screen.remark(f"a shadow on {access.admin.place}: it decides everything and does nothing; stop with Ctrl-C")
        return
    if Duty.ENGINE not in settings.duties:
        # Whoever has nothing to do with pipelines need not be allowed to list them.
        duties = ", ".join(sorted(settings.duties))
        screen.remark(f"working on {access.admin.place} for {duties} alone; stop with Ctrl-C")
        return
    async with access.tables() as tables:
        count = len([stored async for stored in Pipelines(tables).list()])
    screen.remark(f"working on {access.admin.place} with {counted(count, 'pipeline')}; stop with Ctrl-C")
    if not count:
        screen.remark("no pipeline is deployed yet: `interlock pipelines push DIR`, or start with --pipelines DIR")


async def _work(worker: "Worker") -> int:
    """Run to the end. The first signal asks for an end in order, the second for a quick one; the third is a crash."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_to_its_end(worker), name="worker")
        on_signal = _stopping(worker, working)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        try:
            await asyncio.wait([working])
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
    return Exit.LATER if working.cancelled() else working.result()


async def _to_its_end(worker: "Worker") -> int:
    """Give the exit code. A mistake of ours is not caught: it ends the process with all there is to say about it."""
    code = Exit.DONE
    try:
        await worker.run()
    except* RetryLater as troubles:
        _log.error("worker.failed", reason=str(_first(troubles)))
        code = Exit.LATER
    except* WorkerError as problems:
        _log.error("worker.failed", reason=str(_first(problems)))
        code = Exit.WRONG
    return code


def _stopping(worker: "Worker", working: "asyncio.Task[int]") -> Callable[[], None]:
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked < SIGNALS_MAX:
            worker.stop()
        else:
            working.cancel()

    return stop


def _write_metrics(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _writer(screen: Screen) -> Callable[[Severity, str], None]:
    return lambda severity, line: screen.line(line, STYLES[severity])


def _first(group: BaseExceptionGroup[WorkerError]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
