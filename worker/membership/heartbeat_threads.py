"""Where a heart beats: in a thread of its own, or on virtual time in the caller's loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from worker.core.errors import RetryLater
from worker.store.table import Tables

STOP_MAX_S: Final = 2.0
START_PAUSE_S: Final = 0.5  # between two tries to open the store

Beat: TypeAlias = Callable[[Tables], Coroutine[Any, Any, None]]


class Beater(Protocol):
    async def run(self, beat: Beat) -> None:
        """Run it with a store until it returns or we are cancelled. Raises what it raises."""
        ...


class TaskBeater:
    """Beats in the caller's own loop: for simulation on virtual time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def run(self, beat: Beat) -> None:
        await beat(self._tables)


class ThreadBeater:
    """Beats in a thread with a loop and a store of its own, so that a busy loop does not cost the session."""

    def __init__(self, open_tables: Callable[[], Tables]) -> None:
        self._open_tables = open_tables

    async def run(self, beat: Beat) -> None:
        outer, inner = asyncio.get_running_loop(), asyncio.new_event_loop()
        stop, ended = asyncio.Event(), outer.create_future()

        def serve() -> None:
            error: BaseException | None = None
            try:
                inner.run_until_complete(self._serve(beat, stop))
            except Exception as raised:  # noqa: BLE001  whatever it is belongs to the caller, in another thread
                error = raised
            _close(inner)
            with suppress(RuntimeError):  # the outer loop is closed: nobody is left to be told
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
        """Open the store. One that does not answer is a beat that is missed: the fence says for how long."""
        while True:
            tables = self._open_tables()
            try:
                await tables.start()
            except RetryLater:
                await asyncio.sleep(START_PAUSE_S)
            else:
                return tables


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that runs no more. What is left on it, as credentials on their way, ends with it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.close()


async def _stop(inner: asyncio.AbstractEventLoop, stop: asyncio.Event, ended: "asyncio.Future[None]") -> None:
    """End the thread, and wait for it a little: it is a daemon, so it cannot keep the process alive."""
    if ended.done():
        return
    with suppress(RuntimeError):  # it has closed its loop just now
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
