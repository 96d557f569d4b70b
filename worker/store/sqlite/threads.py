"""Job threads: run work on a connection, in batches on a separate thread or inline for simulation.

Passing work to a thread costs far more than a statement, so jobs share it: all waiting jobs go in one batch, and the
loop is woken once for all of its results.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from worker.core.errors import RetryLater

T = TypeVar("T")
Job: TypeAlias = Callable[[sqlite3.Connection], T]

BATCH_MAX: Final = 256
WAITING_MAX: Final = 2_048  # further callers wait before they may queue


class FailedJob(msgspec.Struct, frozen=True):
    error: Exception


# Runs jobs in order and returns for each its result or `FailedJob`.
RunBatch: TypeAlias = Callable[[sqlite3.Connection, Sequence[Job[object]]], Sequence[object]]


class JobThread(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, job: Job[T]) -> T:
        """Run the job and return its result. Cancelling the caller does not stop the job."""
        ...


class InlineJobThread:
    """Runs each job at once in the caller's thread, and never yields to the loop."""

    def __init__(self, connection: sqlite3.Connection, run_batch: RunBatch) -> None:
        self._connection, self._run_batch = connection, run_batch

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def run(self, job: Job[T]) -> T:
        [outcome] = self._run_batch(self._connection, [job])
        if isinstance(outcome, FailedJob):
            raise outcome.error
        return cast("T", outcome)


class OwnJobThread:
    """Runs jobs on one thread with one connection. Use it from one event loop."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        run_batch: RunBatch,
        must_stay_open: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name, self._connect, self._run_batch, self._must_stay_open = name, connect, run_batch, must_stay_open
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._is_open = False
        self._gathered: list[_Waiting] = []  # the jobs of this iteration of the loop
        self._unanswered = 0

    async def start(self) -> None:
        """Start the thread and open its connection. Raises what `connect` raises."""
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        opened, self._ended = self._loop.create_future(), self._loop.create_future()
        # A daemon: a process that exits without `stop` must not hang. Acknowledged commits are on disk by then.
        self._thread = threading.Thread(target=self._serve, args=(opened,), name=self._name, daemon=True)
        self._thread.start()
        try:
            await opened
        except BaseException:
            self._queue.put(None)  # ends the thread if it has opened its connection after all
            raise
        self._is_open = True

    async def stop(self) -> None:
        """Finish the waiting jobs, close the connection and end the thread."""
        if self._is_open:
            self._is_open = False
            self._hand_over()
            self._queue.put(None)
            if await self._ended:
                self._thread.join()  # setting `_ended` was its last action

    async def run(self, job: Job[T]) -> T:
        await self._room.acquire()
        if not self._is_open:
            self._room.release()
            raise RetryLater(f"the store's {self._name} is not running; start the store, or this process is ending")
        waiting = _Waiting(job, self._loop.create_future())
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(waiting)
        self._unanswered += 1
        return cast("T", await waiting.future)

    def waiting(self) -> int:
        """Return how many jobs wait for the thread or for their results, for monitoring."""
        return self._unanswered

    def _hand_over(self) -> None:
        """Pass all jobs of one iteration of the loop to the thread at once, because each wake-up is costly."""
        gathered, self._gathered = self._gathered, []
        for first in range(0, len(gathered), BATCH_MAX):
            self._queue.put(gathered[first : first + BATCH_MAX])

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _serve(self, opened: "asyncio.Future[None]") -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001  every error goes to the caller of start(), in another thread
            self._tell(_settle, opened, FailedJob(error))
            return
        self._tell(_settle, opened, None)
        while batch := self._next_batch():
            self._tell(self._deliver, batch, self._outcomes(connection, batch))
        if self._must_stay_open():
            threading.current_thread().name = f"abandoned {self._name}"
            self._tell(_settle, self._ended, False)
            threading.Event().wait()  # for ever: if the thread ended, its connection would be closed
        connection.close()
        self._tell(_settle, self._ended, True)

    def _outcomes(self, connection: sqlite3.Connection, batch: list["_Waiting"]) -> Sequence[object]:
        try:
            return self._run_batch(connection, [waiting.job for waiting in batch])
        except Exception as error:  # noqa: BLE001  if the thread died, every later caller would wait for ever
            return [FailedJob(error)] * len(batch)

    def _next_batch(self) -> list["_Waiting"]:
        """Wait for jobs, then return all there are; empty if the thread must end."""
        batch: list[_Waiting] = []
        handed = self._queue.get()
        while handed is not None:
            batch += handed
            if len(batch) >= BATCH_MAX:
                return batch
            try:
                handed = self._queue.get_nowait()
            except Empty:
                return batch
        if batch:
            self._queue.put(None)  # end after this batch
        return batch

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            return  # the loop is closed, so no task waits

    # --- in the loop --------------------------------------------------------------------------------------------------

    def _deliver(self, batch: list["_Waiting"], outcomes: Sequence[object]) -> None:
        self._unanswered -= len(batch)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            self._room.release()
            _settle(waiting.future, outcome)


class _Waiting(msgspec.Struct, frozen=True):
    job: Job[object]
    future: "asyncio.Future[object]"


def _settle(future: "asyncio.Future[object]", outcome: object) -> None:
    if future.done():
        return  # its caller was cancelled
    if isinstance(outcome, FailedJob):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)


def attempt(connection: sqlite3.Connection, job: Job[object]) -> object:
    """Run a job and return its result, or its error as `FailedJob`.

    Raises SQLite's own errors, which concern the whole transaction.
    """
    try:
        return job(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001  every error goes to the caller, in another thread
        return FailedJob(error)
