"""A lane: one connection on which all requests of a moment travel together.

The client's work for a request costs far more than the server's, and with `appendfsync always` the server syncs once
for all requests that it finds waiting. So requests gather while a batch is on its way, and go as the next batch.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from redis.asyncio.connection import Connection
from redis.exceptions import BusyLoadingError, NoScriptError, ResponseError

from worker.core.errors import RetryLater, WorkerError
from worker.store.redis.connections import Servers, ask, read
from worker.store.redis.errors import (
    CONNECTION_ERRORS,
    ReplyLost,
    answered,
    answered_later,
    lost,
    needs_another_server,
    unreachable,
)
from worker.store.redis.scripts import Script, all_scripts

Command: TypeAlias = Sequence[str | bytes | int]

BATCH_MAX: Final = 256
BATCH_BYTES_MAX: Final = 8_000_000
WAITING_MAX: Final = 2_048  # further callers wait before they may queue
WAIT_SHARE: Final = 0.5  # of the time for an answer: how long replicas may take to confirm


def call(script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Command:
    """Return the command that runs a script which the server has loaded."""
    return ("EVALSHA", script.digest, len(keys), *keys, *arguments)


class Lane(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
        """Send a request once and return its answer. Raises `NotTaken`, `ReplyLost` and `ConfigError`.

        Cancelling the caller does not stop the request.
        """
        ...


@dataclass(slots=True)
class _Waiting:
    command: Command
    future: "asyncio.Future[Any]"
    size: int


class PipelinedLane:
    """Sends requests in batches. With `replicas`, a batch is answered once so many replicas have it."""

    def __init__(self, servers: Servers, name: str, replicas: int = 0) -> None:
        self._servers, self._name, self._replicas = servers, name, replicas
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._gathered: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. Raises `NotTaken` and `ConfigError`."""
        if self._task is None:
            self._connection = await self._servers.connect()
            self._task = asyncio.get_running_loop().create_task(self._serve(), name=self._name)

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._fail(self._gathered, RetryLater(f"{self._servers.where}: the store is stopped; this process is ending"))
        self._gathered = []
        await self._drop()

    async def run(self, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
        await self._room.acquire()
        try:
            if self._task is None:
                raise RetryLater(f"{self._servers.where}: the store is not started, or this process is ending")
            size = sum(len(part) for part in command if isinstance(part, str | bytes))
            waiting = _Waiting(command, asyncio.get_running_loop().create_future(), size)
            self._gathered.append(waiting)
            self._wake.set()
            return await waiting.future
        finally:
            self._room.release()

    # --- batches ------------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered:
                batch = self._next_batch()
                try:
                    await self._exchange(batch)
                except asyncio.CancelledError:
                    self._fail(batch, lost(ConnectionError("this process is ending"), self._servers.where))
                    raise

    def _next_batch(self) -> list[_Waiting]:
        size, count = 0, 0
        for waiting in self._gathered[:BATCH_MAX]:
            if count and size + waiting.size > BATCH_BYTES_MAX:
                break
            size, count = size + waiting.size, count + 1
        batch, self._gathered = self._gathered[:count], self._gathered[count:]
        return [waiting for waiting in batch if not waiting.future.done()]

    async def _exchange(self, batch: list[_Waiting], *, may_load: bool = True) -> None:
        if not batch:
            return
        try:
            connection = self._connection or await self._servers.connect()
        except WorkerError as error:
            self._fail(batch, error)
            return
        self._connection = connection
        answers: list[Any] = []
        try:
            async with asyncio.timeout(self._servers.answer_s):
                await self._send(connection, batch)
                for _ in batch:
                    answers.append(await _answer(connection))  # noqa: PERF401 - what was answered before an error counts
                confirmed = int(await read(connection)) if self._replicas else 0
        except CONNECTION_ERRORS as error:
            await self._drop()
            # An answer without the confirmation of the replicas is none.
            known = answers if not self._replicas else []
            await self._settle(batch[: len(known)], known, may_load=False)
            self._fail(batch[len(known) :], lost(error, self._servers.where))
            return
        if confirmed < self._replicas:
            self._fail(batch, self._unconfirmed(confirmed), but=answers)
        await self._settle(batch, answers, may_load=may_load)

    async def _send(self, connection: Connection, batch: Sequence[_Waiting]) -> None:
        commands = [waiting.command for waiting in batch]
        if self._replicas:
            commands.append(("WAIT", self._replicas, int(self._servers.answer_s * WAIT_SHARE * 1000)))
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)

    async def _settle(self, batch: Sequence[_Waiting], answers: Sequence[Any], *, may_load: bool) -> None:
        """Give each caller its answer; requests that met a server without the scripts are sent again."""
        again: list[_Waiting] = []
        is_elsewhere = False
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.future.done():
                continue
            if isinstance(answer, NoScriptError) and may_load:
                again.append(waiting)
            elif isinstance(answer, BusyLoadingError):
                is_elsewhere = True
                waiting.future.set_exception(unreachable(answer, self._servers.where))
            elif isinstance(answer, ResponseError):
                is_elsewhere = is_elsewhere or needs_another_server(answer)
                waiting.future.set_exception(self._refused(waiting.command, answer))
            else:
                self._servers.proven.prove(_operation(waiting.command))
                waiting.future.set_result(answer)
        if is_elsewhere:
            await self._drop()
        if again:
            await self._load(again)

    async def _load(self, again: list[_Waiting]) -> None:
        """Load the scripts, which the server has forgotten, and send the requests again: none was applied."""
        connection = self._connection
        if connection is not None:
            try:
                async with asyncio.timeout(self._servers.answer_s):
                    for script in all_scripts():
                        await ask(connection, "SCRIPT", "LOAD", script.text)
            except (*CONNECTION_ERRORS, ResponseError):
                await self._drop()  # a new connection loads them
        await self._exchange(again, may_load=False)

    def _refused(self, command: Command, answer: ResponseError) -> WorkerError:
        translate = answered_later if self._servers.proven.is_proven(_operation(command)) else answered
        return translate(answer, self._servers.where)

    def _unconfirmed(self, confirmed: int) -> ReplyLost:
        return ReplyLost(
            f"{self._servers.where}: {confirmed} of {self._replicas} replicas confirmed the commit in time; it is "
            "applied on the primary, and counts once they have it: see that the replicas run"
        )

    @staticmethod
    def _fail(batch: Sequence[_Waiting], error: WorkerError, but: Sequence[Any] = ()) -> None:
        """Fail the requests, except those that the server refused: they keep their own answer."""
        for at, waiting in enumerate(batch):
            is_refused = at < len(but) and isinstance(but[at], Exception)
            if not waiting.future.done() and not is_refused:
                waiting.future.set_exception(error)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _operation(command: Command) -> str:
    """Return what a right is for: a command, or one script."""
    return str(command[1] if command[0] == "EVALSHA" else command[0])


async def _answer(connection: Connection) -> Any:  # noqa: ANN401 - whatever the command returns
    try:
        return await read(connection)
    except (ResponseError, BusyLoadingError) as refusal:
        return refusal
