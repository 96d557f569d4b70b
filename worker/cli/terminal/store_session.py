"""Run a command's work on its store, and report every error without a traceback."""

import asyncio
import os
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

from worker.cli.terminal.console import Screen
from worker.config.store_setting import read_store_url
from worker.core.errors import ConfigError, Rejected, WorkerError
from worker.runtime.clock import Clock
from worker.runtime.root_causes import root_causes
from worker.store.admin import StoreAdmin
from worker.store.backends.open import open_admin, open_tables
from worker.store.table import Tables


class Exit(IntEnum):
    """Exit lists the exit codes, which are the same in every command.

    `WRONG` is also the code if there is no such pipeline, run or dead letter. The code is not 1, because 1 is often the
    answer to the question, such as that a run was missed, and a typing error must not look like it.
    """

    DONE = 0
    PROBLEMS = 1
    WRONG = 2
    LATER = 3
    UNREAD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """StoreAccess holds the URL of the store that a command uses, and opens nothing by itself."""

    url: str
    clock: Clock

    @property
    def admin(self) -> StoreAdmin:
        return open_admin(self.url, self.clock)

    @asynccontextmanager
    async def tables(self) -> AsyncGenerator[Tables]:
        """Open the store. Reject a store that must be created or migrated first: no command does so silently."""
        await self.admin.require_ready()
        tables = open_tables(self.url, self.clock)
        await tables.start()
        try:
            yield tables
        finally:
            await tables.stop()


Work: TypeAlias = Callable[[Screen, StoreAccess], Awaitable[int]]


def work_on_store(clock: Clock, url: str | None, work: Work) -> int:
    """Run a command's work on its store and return its exit code."""
    screen = Screen()

    async def run() -> int:
        return await work(screen, StoreAccess(url=read_store_url(os.environ, store=url), clock=clock))

    return told(screen, run)


def work_until_interrupted(clock: Clock, url: str | None, work: Work) -> int:
    """Run as `work_on_store`; Ctrl-C is the normal end of a command that does not end by itself."""
    try:
        return work_on_store(clock, url, work)
    except KeyboardInterrupt:
        return Exit.DONE


def told(screen: Screen, run: Callable[[], Awaitable[int]]) -> int:
    """Run the work and return its exit code; show an error as one line, with the remedy below."""

    async def guarded() -> int:
        try:
            return await run()
        except WorkerError as error:
            show_error(screen, error)
            return exit_code(error)
        except BrokenPipeError:
            raise  # the reader has read enough, as `head` does: that is a normal end
        except Exception as error:  # noqa: BLE001  the edge: the user gets a sentence with enough detail to report it
            return show_causes(screen, error)

    return asyncio.run(guarded())


def show_error(screen: Screen, error: WorkerError) -> None:
    """Show an error and its remedy, which is the part of the message after the last semicolon."""
    what, _, remedy = str(error).rpartition("; ")
    show_failure(screen, what or remedy, remedy if what else "")


def show_failure(screen: Screen, what: str, remedy: str = "") -> None:
    """Show an error as every command does: what is wrong, and below it what to do."""
    screen.remark(f"error: {what}", style="red")
    if remedy:
        screen.remark(f"    {remedy}")


def show_causes(screen: Screen, error: Exception) -> int:
    """Show the root causes of an error, also from nested groups, and return the exit code."""
    causes = root_causes(error)
    if broken := next((cause for cause in causes if isinstance(cause, BrokenPipeError)), None):
        raise broken
    expected = [cause for cause in causes if isinstance(cause, WorkerError)]
    mistakes = [cause for cause in causes if cause not in expected]
    for cause in expected:
        show_error(screen, cause)
    if mistakes:
        show_surprise(screen, mistakes)
        return Exit.WRONG
    return exit_code_of(expected)


def show_surprise(screen: Screen, mistakes: Sequence[BaseException]) -> None:
    for mistake in mistakes:
        what = f"{type(mistake).__name__}: {mistake}{_place(mistake)}"
        show_failure(screen, f"something unexpected went wrong: {what}")
    screen.remark("    run `interlock store check`; if it finds no problem, this is a bug in Interlock: report it")


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def exit_code_of(errors: Sequence[WorkerError]) -> Exit:
    """Return the exit code for several errors: `WRONG` first, then `PROBLEMS`, then `LATER`."""
    codes = {exit_code(error) for error in errors}
    return next(code for code in (Exit.WRONG, Exit.PROBLEMS, Exit.LATER) if code in codes)


def exit_code(error: WorkerError) -> Exit:
    match error:
        case ConfigError():
            return Exit.WRONG
        case Rejected():
            return Exit.PROBLEMS
        case _:
            return Exit.LATER
