"""Where the heartbeat runs: in its own thread, or on virtual time in the caller's loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from worker.core.errors import RetryLater
from worker.store.table import Tables

STOP_MAX_S: Final = 2.0
START_PAUSE_S: Final = 0.5  # between two attempts to open the store

Beat: TypeAlias = Callable[[Tables], Coroutine[Any, Any, None]]


class Beater(Protocol):
    async def run(self, beat: Beat) -> None:
        """Run `beat` with a store until it returns or this task is cancelled. Raises what `beat` raises."""
        ...


class TaskBeater:
    """Runs the heartbeat in the caller's loop: for simulation on virtual time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def run(self, beat: Beat) -> None:
        await beat(self._tables)


class ThreadBeater:
    """Runs the heartbeat in a thread with its own loop and store, so a busy loop keeps its session."""

    def __init__(self, open_tables: Callable[[], Tables]) -> None:
        self._open_tables = open_tables

    async def run(self, beat: Beat) -> None:
        outer, inner = asyncio.get_running_loop(), asyncio.new_event_loop()
        stop, ended = asyncio.Event(), outer.create_future()

        def serve() -> None:
            error: BaseException | None = None
            try:
                inner.run_until_complete(self._serve(beat, stop))
            except Exception as raised:  # noqa: BLE001  every error goes to the caller, in another thread
                error = raised
            _close(inner)
            with suppress(RuntimeError):  # the outer loop is closed, so no task waits
                outer.call_soon_threadsafe(_settle, ended, error)

        threading.Thread(target=serve, name="heartbeat", daemon=True).start()
        try:
            await asyncio.shield(ended)
        finally:
            await _stop(inner, stop, ended)

    async def _serve(self, beat: Beat, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(self._beat(beat), name="heart")
            beating.add_done_callback(lambda _: stop.set())
            await stop.wait()
            beating.cancel()

    async def _beat(self, beat: Beat) -> None:
        tables = await self._started_tables()
        try:
            await beat(tables)
        finally:
            await tables.stop()

    async def _started_tables(self) -> Tables:
        """Open the store. Retry while it does not answer: that is a missed heartbeat, which the fence limits."""
        while True:
            tables = self._open_tables()
            try:
                await tables.start()
            except RetryLater:
                await asyncio.sleep(START_PAUSE_S)
            else:
                return tables


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that no longer runs, and cancel its remaining tasks, such as a credential renewal."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.close()


async def _stop(inner: asyncio.AbstractEventLoop, stop: asyncio.Event, ended: "asyncio.Future[None]") -> None:
    """Stop the thread and wait at most `STOP_MAX_S`: it is a daemon, so it cannot block the exit."""
    if ended.done():
        return
    with suppress(RuntimeError):  # it has just closed its loop
        inner.call_soon_threadsafe(stop.set)
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_MAX_S):
            await asyncio.shield(ended)


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
